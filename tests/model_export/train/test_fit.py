"""Texts as arrays, batches, and fitting on a task whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from model_export.sentiment.model import (
    CONCEDES,
    ENDS,
    NEGATES,
    HardmaxTransformer,
    Shape,
    clause_of,
    conceded,
    negators,
    sentence_of,
)
from model_export.train.fit import Blur, Optimisation, below, blur_of, fit, logits, loss
from model_export.train.material import Texts
from service.texts.reader import ENDINGS, SPECIAL, UNKNOWN

WORDS = (*SPECIAL, "good", "bad", "the", "film", "walking", ".")
GOOD, BAD, THE, FILM, WALKING, DOT = range(len(SPECIAL), len(WORDS))
ING = WORDS.index("<~ing>")


def texts(*rows):
    return Texts.of([ids for ids, _ in rows], [p for _, p in rows], 6)


def model(outputs=1, **changes):
    torch.manual_seed(0)
    vectors = np.random.default_rng(0).normal(size=(len(WORDS), 8)).astype(np.float32) * 0.3
    vectors[0] = 0
    reach = np.ones(len(WORDS), np.float32)
    return HardmaxTransformer(
        vectors,
        reach,
        clause_of(WORDS),
        sentence_of(WORDS),
        Shape(hidden=4, bits=8, outputs=outputs, **changes),
    )


def test_texts_keep_both_ends_and_are_never_empty():
    some = Texts.of([[7, 8, 9, 10], [], [7] * 3 + [8] * 9], [1, 0, 0.5], 6)
    assert [some.text(i) for i in range(3)] == [[7, 8, 9, 10], [UNKNOWN], [7, 7, 7, 8, 8, 8]]
    assert (some + some).take(np.array([5, 0])).text(0) == [7, 7, 7, 8, 8, 8]
    assert some.take(np.array([2])).targets.tolist() == [0.5]


def test_batches_hold_every_row_once_within_their_places():
    rng = np.random.default_rng(1)
    some = Texts.of([[7] * int(n) for n in rng.integers(1, 40, 500)], np.zeros(500), 40)
    parts = list(some.batches(np.arange(500), 100, 16))
    assert sorted(np.concatenate(parts).tolist()) == list(range(500))
    assert all(len(part) <= 16 and len(part) * some.lengths[part].max() <= 100 for part in parts)


def test_padding_stands_behind_the_words():
    some = texts(([GOOD, THE], 1), ([BAD], 0))
    assert some.padded(np.array([0, 1])).tolist() == [[GOOD, THE], [BAD, 0]]


def test_a_word_falls_back_to_its_ending():
    blur = blur_of(WORDS)
    assert blur.fallback[WALKING] == ING
    assert blur.fallback[FILM] == UNKNOWN
    assert blur.fallback[:5].tolist() == [0, 1, 2, 3, 4]
    assert WORDS[ING] == f"<~{ENDINGS[ING - 5]}>"


def test_blur_drops_words_and_last_marks():
    blur: Blur = blur_of(WORDS)
    x = torch.tensor([[GOOD, WALKING, DOT, 0], [DOT, 0, 0, 0]])
    dropped = blur(x, Optimisation(drop_words=1.0, drop_mark=0.0))
    assert dropped.tolist() == [[UNKNOWN, ING, UNKNOWN, 0], [UNKNOWN, 0, 0, 0]]
    unmarked = blur(x, Optimisation(drop_words=0.0, drop_mark=1.0))
    assert unmarked.tolist() == [[GOOD, WALKING, 0, 0], [DOT, 0, 0, 0]]  # a mark alone stays


def test_negators_reach_to_the_end_of_their_clause():
    does = torch.tensor([[NEGATES, 0, 0, 0, ENDS, 0, NEGATES, *[0] * 12]])
    under = negators(does)[0].tolist()
    assert under == [-1, 0, 0, 0, -1, -1, -1, *[6] * 10, -1, -1]


def test_concession_reaches_back_to_the_beginning_of_its_sentence():
    does = torch.tensor([[0, ENDS, 0, 0, CONCEDES, 0, ENDS, *[0] * 26, CONCEDES]])
    found = conceded(does)[0].tolist()
    assert found == [*[False] * 2, *[True] * 3, *[False] * 4, *[True] * 25]


def test_loss_clamps_hard_labels():
    far = torch.tensor([[40.0]])
    assert loss(far, torch.tensor([1.0]), 0.97).item() == pytest.approx(0.03 * 40, rel=1e-4)
    even = torch.zeros(1, 3)
    assert loss(even, torch.tensor([[0.0, 1.0, 0.0]]), 0.97).item() == pytest.approx(np.log(3))


def rows(number):
    rng = np.random.default_rng(2)
    found = []
    for _ in range(number):
        word, p = (GOOD, 1.0) if rng.random() < 0.5 else (BAD, 0.0)
        found.append((rng.permutation([word, THE, FILM, WALKING]).tolist(), p))
    return texts(*found)


QUICK = Optimisation(epochs=15, texts=16, warm_up=5, rate=0.02, vectors_rate=0.02, drop_words=0.0, skip=0.3)


def test_fit_learns_and_two_runs_are_equal():
    some = rows(64)
    epochs = [np.arange(64)] * QUICK.epochs
    answers = [
        logits(fit(model(), some, epochs, QUICK, blur_of(WORDS), say=lambda _: None), some)[:, 0]
        for _ in range(2)
    ]
    assert ((answers[0] > 0) == (some.targets > 0.5)).all()
    np.testing.assert_array_equal(answers[0], answers[1])


def test_fit_goes_on_from_a_checkpoint(tmp_path):
    some, kept = rows(32), tmp_path / "fit.checkpoint"
    epochs = [np.arange(32)] * 4
    said = []

    class Stop(Exception):
        pass

    def stop_after_two(line):
        said.append(line)
        if len(said) == 3:
            raise Stop

    with pytest.raises(Stop):
        fit(model(), some, epochs, QUICK, blur_of(WORDS), checkpoint=kept, say=stop_after_two)
    said.clear()
    fit(model(), some, epochs, QUICK, blur_of(WORDS), checkpoint=kept, say=said.append)
    assert [line.split(",")[0] for line in said] == ["epoch 3/4", "epoch 4/4"]


def test_a_place_below_the_first_axis_costs_the_more_the_steeper_it_points():
    z = torch.tensor([[[3.0, 4.0], [3.0, -4.0], [0.0, -0.01]], [[1.0, 0.0], [0.0, -2.0], [0.0, 0.0]]])
    there = torch.tensor([[True, True, True], [True, False, False]])
    assert below(z, there).item() == pytest.approx((0.8 + 0.995) / 4, abs=1e-3)
