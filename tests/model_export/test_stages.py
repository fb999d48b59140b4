"""The training stages: resuming, learning, and the targets of a text."""

from copy import deepcopy
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from encoders import RELATIVE, predict, random_encoder, random_head

from model_export import training
from model_export.data.corpora import Row
from model_export.data.training_set import TrainingSet
from model_export.recipe import (
    Recipe,
    SourceConfig,
    draw_pairs,
    join_texts,
    make_short_set,
    repeat_texts,
    select_texts,
    set_targets,
)
from model_export.stages import (
    StageConfig,
    StageRun,
    calibrate,
    finetune,
    fit_head,
    harden,
    mean_state,
    teach,
    tune_jointly,
)
from model_export.teacher import TeacherModel
from model_export.teacher import predict as predict_teacher
from model_export.training_model import EmbeddingDistillation, NeutralThreshold, TrainingModel
from service.text.tokenizer import Vocabulary, WordPieceTokenizer

WORDS = ["[PAD]", *(f"[unused{i}]" for i in range(99)), *"[UNK] [CLS] [SEP] good bad film soup plot".split()]
TOKENIZER = WordPieceTokenizer(
    Vocabulary((*WORDS, *(f"w{i}" for i in range(292))), frozenset(), frozenset(), frozenset())
)
PARTS = (("good", "bad"), ("film", "soup", "plot"), ("film", "soup", ""))
SENTENCES = [" ".join(words) for words in product(*PARTS)] * 3
TARGETS = [float(text.startswith("good")) for text in SENTENCES]
EMBEDDINGS = np.random.default_rng(0).normal(size=(len(SENTENCES), 32)).astype(np.float16)
TEXTS = replace(
    TrainingSet.from_texts(TOKENIZER, SENTENCES, TARGETS, has_neutral=True), embeddings=EMBEDDINGS
)
CONFIG = StageConfig(epochs=1.5, tokens_per_batch=12, warm_up=2)


class Interrupted(Exception):
    pass


@cache
def calibrated_encoder():
    encoder = random_encoder(RELATIVE)
    calibrate(encoder, TEXTS)
    return encoder


def new_model():
    torch.manual_seed(0)
    return TrainingModel(deepcopy(calibrated_encoder()), random_head())


def new_run(model, config=CONFIG, report=lambda line: None):
    return StageRun(model, TEXTS, config, 0, report)


def run(stage, checkpoint, interrupt_after=None):
    """Return the weights after a stage, which its report may interrupt."""
    model = new_model()

    def report(line):
        if interrupt_after and f" {interrupt_after}/" in line:
            raise Interrupted

    stage(new_run(model, CONFIG, report), checkpoint)
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("stage", [finetune, harden, fit_head, tune_jointly])
def test_stages_resume_with_the_same_result(stage, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "STEPS_PER_CHECKPOINT", 4)
    monkeypatch.setattr(training, "STEPS_PER_LINE", 3)
    uninterrupted = run(stage, tmp_path / "whole")
    with pytest.raises(Interrupted):
        run(stage, tmp_path / "part", interrupt_after=9)
    assert torch.load(tmp_path / "part")["step"] == 8
    resumed = run(stage, tmp_path / "part")
    assert all(torch.equal(a, b) for a, b in zip(uninterrupted, resumed, strict=True))


def test_finetune_learns_the_training_set(tmp_path):
    model = new_model()
    config = StageConfig(epochs=30, tokens_per_batch=60, lr=3e-3, warm_up=2)
    finetune(new_run(model, config), tmp_path / "x")
    x = TEXTS.packed.padded(np.arange(len(TEXTS)))
    predicted = model.pooled(mean_state(model.encoder.soft(x)[-1], x)) > 0
    assert predicted.tolist() == (TEXTS.targets > 0.5).tolist()


def test_tune_jointly_learns_the_training_set_in_whole_numbers(tmp_path):
    model = new_model()
    config = StageConfig(epochs=60, tokens_per_batch=60, lr=3e-3, head_lr=1e-2, warm_up=2)
    tune_jointly(new_run(model, config), tmp_path / "x")
    logits = predict(model.encoder, model.head, TEXTS)[:, 0]
    assert ((logits > 0) == (TEXTS.targets > 0.5)).mean() > 0.95


def test_teacher_learns_the_training_set(tmp_path):
    torch.manual_seed(0)
    teacher = TeacherModel(deepcopy(calibrated_encoder()))
    config = StageConfig(epochs=30, tokens_per_batch=60, lr=3e-3, head_lr=1e-2, warm_up=2)
    noise = np.full(len(TEXTS), 0.05, np.float32)
    teach(teacher, TEXTS, noise, config, 0, lambda line: None, tmp_path / "x")
    predicted = predict_teacher(teacher, TEXTS.packed).argmax(1) / 2
    assert predicted.tolist() == TARGETS


def test_hidden_states_are_compared_with_those_before_the_next_layer_of_the_teacher():
    teacher = TeacherModel(random_encoder(replace(RELATIVE, layers=3)))
    run = replace(new_run(new_model()), teacher=teacher, layers=(0, 2))
    x = TEXTS.packed.padded(np.arange(4))
    states = teacher.encoder.soft(x)
    assert run.hidden_distance([states[1], states[2]], x).item() == pytest.approx(0, abs=1e-9)
    assert run.hidden_distance([states[0], states[2]], x).item() > 0.01


def test_distillation_is_zero_where_the_embedding_is_read_off():
    distillation, mean = EmbeddingDistillation(8), torch.randn(5, 8)
    assert distillation(mean, 2 * mean).item() == pytest.approx(0, abs=1e-6)
    unknown = torch.full((5, 8), float("nan"))
    assert distillation(mean, unknown).item() == 0
    partly_known = torch.cat([-mean[:1], unknown[1:]])
    assert distillation(mean, partly_known).item() == pytest.approx(2)


def test_threshold_loss_is_that_of_proportional_odds():
    threshold = NeutralThreshold()
    logits, labels = torch.tensor([0.3, -2.0, 1.0]), torch.tensor([0.5, 0.0, float("nan")])
    t = threshold.value.item()
    s = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    rows = [[s(-x - t), s(x + t) - s(x - t), s(x - t)] for x in (0.3, -2.0)]
    losses = [0.88 * np.log(p[i]) + 0.04 * np.log(p).sum() for p, i in zip(rows, (1, 0), strict=True)]
    assert threshold(logits, labels).item() == pytest.approx(-sum(losses) / 3, abs=1e-5)


SETS = {
    "tweets": [Row(f"Film {i} is good.", 1.0) for i in range(9)] + [Row("held out", 0.0, "test")],
    "electronics": [],
    "long": [Row("The first sentence is here. And a second one follows it.", 0.0)],
}
FILMS = SourceConfig(("tweets",), max_texts=4, label_weight=0.25, repeats=2)
RECIPE = Recipe(sources={"films": FILMS, "cut": SourceConfig(("long",), words=(1, 5), split_sentences=True)})


def test_selected_texts_are_of_the_training_split_and_single_sentences():
    selected = select_texts(SETS, RECIPE)
    assert len(selected["films"]) == 4
    assert {row.split for row in selected["films"]} == {"train"}
    assert selected["cut"] == [Row("The first sentence is here.", None)]
    assert selected == select_texts(SETS, RECIPE)


def test_balanced_source_has_as_many_positive_as_negative_texts():
    sets = {"films": [Row(f"Film {i}.", float(i > 5)) for i in range(20)]}
    selected = select_texts(sets, Recipe(sources={"films": SourceConfig(("films",), balance=True)}))["films"]
    assert sorted(row.target for row in selected) == 6 * [0.0] + 6 * [1.0]


def test_target_mixes_label_and_teacher():
    """A neutral logit counts for both sides only where texts may be neutral."""
    recipe = Recipe(
        sources={
            "two": SourceConfig(("films",), label_weight=0.25),
            "three": SourceConfig(("films",), has_neutral=True, label_weight=0.5),
        }
    )
    rows = {"two": [Row("good", 1.0)], "three": [Row("bad", 0.0), Row("soup", None)]}
    texts = make_short_set(rows, TOKENIZER, recipe)
    logits = np.log(np.array([[0.1, 0.6, 0.3], [0.2, 0.2, 0.6], [0.05, 0.9, 0.05]], np.float32))
    labelled = set_targets(texts, logits, recipe)
    assert labelled.targets.tolist() == pytest.approx([0.75 * 0.75 + 0.25, 0.5 * 0.7, 0.5])
    assert labelled.labels.tolist() == pytest.approx([np.nan, 0.0, 0.5], nan_ok=True)


def test_joined_texts_have_the_words_and_the_targets_of_their_parts():
    first, second = draw_pairs(TEXTS, 5, 0)
    joined = join_texts(TEXTS, first, second)
    for i, pair in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        whole = TrainingSet.from_texts(TOKENIZER, [" ".join(SENTENCES[k] for k in pair)], [0.0]).packed
        part = joined.packed.take(np.array([i]))
        for name in ("token_ids", "word_index", "chunk_offsets", "text_offsets", "word_offsets"):
            assert np.array_equal(getattr(part, name), getattr(whole, name)), name
        sizes = [len(SENTENCES[k].split()) for k in pair]
        assert part.parts.tolist() == [0] * sizes[0] + [1] * sizes[1]
        assert joined.part_targets[i].tolist() == [TARGETS[k] for k in pair]


def test_texts_are_repeated_by_their_source():
    texts = replace(TEXTS.take(np.arange(3)), source=np.array([0, 1, -1], np.int8))
    assert repeat_texts(texts, {0: 2, 1: 3}).source.tolist() == [0, 0, 1, 1, 1, -1]
