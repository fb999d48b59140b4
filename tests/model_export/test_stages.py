"""Steps of learning: looks at lessons, going on after a stop, what must not be forgotten, what is taught."""

from itertools import product

import numpy as np
import pytest
import torch
from encoders import random_encoder

from model_export import stages
from model_export.data.corpora import Row
from model_export.data.training_set import Lessons
from model_export.recipe import Asked, Recipe, short_lessons, wanted
from model_export.stages import Memory, Pooled, Step, StepContext, hard, looks, soft
from model_export.teacher.logits import RECORD, Answers, _key
from service.text.tokenizer import Vocabulary, WordPieceTokenizer

WORDS = ["[PAD]", *(f"[unused{i}]" for i in range(99)), *"[UNK] [CLS] [SEP] good bad film soup plot".split()]
PIECES = WordPieceTokenizer(
    Vocabulary((*WORDS, *(f"w{i}" for i in range(292))), frozenset(), frozenset(), frozenset())
)
PARTS = (("good", "bad"), ("film", "soup", "plot"), ("film", "soup", ""))
TEXTS = [" ".join(words) for words in product(*PARTS)]
LESSONS = Lessons.of(PIECES, TEXTS * 3, [float(text.startswith("good")) for text in TEXTS * 3])
HOW = Step(looks=1.5, pieces=12, warm_up=2)


class Stopped(Exception):
    pass


def context(reader, say=lambda line: None):
    return StepContext(Memory(reader), 0, say)


def learnt(reader, pooled):
    return [p.detach().clone() for part in (reader, pooled) for p in part.parameters()]


def teach(step, checkpoint, stop_after=None):
    """What a step makes of a reader; stopped by whoever is told of the progress."""
    torch.manual_seed(0)
    reader, pooled = random_encoder(), Pooled(32)

    def say(line):
        if stop_after and f" {stop_after}/" in line:
            raise Stopped

    step(reader, pooled, LESSONS, HOW, context(reader, say), checkpoint)
    return learnt(reader, pooled)


@pytest.mark.parametrize("step", [soft, hard])
def test_a_step_that_was_stopped_goes_on_and_learns_the_same(step, tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "CHECKPOINT", 4)
    monkeypatch.setattr(stages, "EVERY", 3)
    whole = teach(step, tmp_path / "whole")
    with pytest.raises(Stopped):
        teach(step, tmp_path / "stopped", stop_after=9)
    assert torch.load(tmp_path / "stopped")["step"] == 8
    again = teach(step, tmp_path / "stopped")
    assert all(torch.equal(a, b) for a, b in zip(whole, again, strict=True))
    assert torch.load(tmp_path / "stopped")["step"] == 16  # it stays until what was learnt is kept


def test_soft_learns_its_lessons(tmp_path):
    torch.manual_seed(0)
    reader, pooled = random_encoder(), Pooled(32)
    step = Step(looks=30, pieces=60, rate=3e-3, warm_up=2)
    soft(reader, pooled, LESSONS, step, context(reader), tmp_path / "x")
    x = LESSONS.padded(np.arange(len(LESSONS)))
    told = pooled(reader.soft(x)[-1], x != 0) > 0
    assert torch.equal(told, LESSONS.answers(np.arange(len(LESSONS))) > 0.5)


@pytest.mark.parametrize("times", [0.4, 1.0, 2.5])
def test_looks_are_that_many_looks_at_every_lesson(times):
    seen = np.bincount(np.concatenate(looks(LESSONS, Step(looks=times, pieces=12), np.random.default_rng(0))))
    assert seen.max() <= np.ceil(times)
    assert seen.sum() == pytest.approx(times * len(LESSONS), abs=4)


def test_the_published_encoder_remembers_itself_and_another_does_not():
    reader = random_encoder()
    memory, x = Memory(reader), LESSONS.padded(np.arange(9))
    assert memory(x, reader.soft(x)[-1]).item() == pytest.approx(0, abs=1e-5)
    assert memory(x, random_encoder(seed=1).soft(x)[-1]).item() > 0.1
    assert len(list(memory.parameters())) == 1  # the published encoder itself does not learn


SETS = {
    "films": [Row(f"Film {i} is good.", 1.0) for i in range(9)] + [Row("held out", 0.0, "report")],
    "long": [Row("The first sentence is here. And a second one follows it.", 0.0)],
}
FILMS = Asked(("films",), most=4, label=0.25, times=2)
RECIPE = Recipe(asked={"films": FILMS, "cut": Asked(("long",), words=(1, 5), cut=True)})


def test_wanted_are_texts_to_learn_from_and_single_sentences():
    asked = wanted(SETS, RECIPE)
    assert len(asked["films"]) == 4
    assert {row.split for row in asked["films"]} == {"train"}
    assert asked["cut"] == [Row("The first sentence is here.", None)]
    assert asked == wanted(SETS, RECIPE)


def test_a_part_may_have_as_many_of_one_side_as_of_the_other():
    sets = {"films": [Row(f"Film {i}.", float(i > 5)) for i in range(20)]}
    drawn = wanted(sets, Recipe(asked={"films": Asked(("films",), even=True)}))["films"]
    assert sorted(row.target for row in drawn) == 6 * [0.0] + 6 * [1.0]


def test_a_label_counts_beside_the_teacher(tmp_path):
    asked = wanted(SETS, RECIPE)
    texts = [row.text for rows in asked.values() for row in rows]
    np.save(tmp_path / "said.npy", np.array([(_key(text), (1.0, 0.0, 1.0)) for text in texts], RECORD))
    answers = Answers(tmp_path / "said.npy")
    said = answers.positive(texts[:1])[0]
    targets = short_lessons(asked, answers, PIECES, RECIPE).targets
    assert targets.tolist() == pytest.approx(8 * [0.75 * said + 0.25] + [said])
