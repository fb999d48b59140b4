"""The training stages: resuming, learning, and the targets of a text."""

from copy import deepcopy
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from encoders import RELATIVE, predict, random_encoder, random_head

from model_export import training
from model_export.data.corpora import Row
from model_export.data.training_set import TrainingSet, plan_epochs
from model_export.encoder.attention import AttentionRecord
from model_export.recipe import Recipe, SourceConfig, make_short_set, select_texts, sum_targets
from model_export.stages import (
    StageConfig,
    StageRun,
    attention_cost,
    calibrate,
    finetune,
    fit_head,
    harden,
    mean_state,
    refit_head,
    tune_jointly,
)
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
TEXTS = TrainingSet.from_texts(TOKENIZER, SENTENCES, TARGETS, TARGETS, EMBEDDINGS)
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


def test_refit_head_changes_neither_the_encoder_nor_the_reach_of_words(tmp_path):
    model, untrained = new_model(), new_model()
    states = np.random.default_rng(0).integers(0, 255, (TEXTS.packed.sizes.sum(), 2, 32), np.uint8)
    refit_head(new_run(model), tmp_path / "x", states)
    changed = {
        name.rpartition(".")[0]
        for name, weight in model.state_dict().items()
        if not torch.equal(weight, untrained.state_dict()[name])
    }
    assert changed == {"head", "head.projection", "threshold"}


@pytest.mark.parametrize("epochs", [0.4, 1.0, 2.5])
def test_plan_has_every_text_once_an_epoch(epochs):
    plan = plan_epochs(TEXTS.packed.sizes, epochs, 12, np.random.default_rng(0))
    times = np.bincount(np.concatenate(plan))
    assert times.max() <= np.ceil(epochs)
    assert times.sum() == pytest.approx(epochs * len(TEXTS), abs=4)


@pytest.mark.parametrize(("progress", "share"), [(0.0, 0.0), (0.3, 0.0), (0.35, 0.5), (0.4, 1.0), (0.9, 1.0)])
def test_attention_cost_rises_late_and_is_highest_in_the_last_layer(progress, share):
    config = StageConfig(attention_price=0.2, price_from=0.3)
    attention = AttentionRecord(to_tokens=[torch.tensor(0.8), torch.tensor(0.4)])
    full = 0.2 * (0.8 * 0.5**0.5 + 0.4) / 2
    assert attention_cost(attention, config, progress).item() == pytest.approx(share * full)
    at_once = StageConfig(attention_price=0.2)
    assert attention_cost(attention, at_once, progress).item() == pytest.approx(full)


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


def test_target_is_the_sum_of_both_teachers():
    rows = [Row("a", 1.0), Row("b", None)]
    targets = sum_targets(
        rows, np.array([0.05, -0.1]), np.array([0.4, 0.4]), SourceConfig((), label_weight=0.5)
    )
    logit = np.log(np.array([0.7, 0.4]) / np.array([0.3, 0.6])) + 20 * np.array([0.05, -0.1])
    assert targets == pytest.approx(1 / (1 + np.exp(-logit)), abs=1e-6)
    without_teacher = sum_targets(rows, np.array([0.0, 1.0]), None, SourceConfig((), teacher=False))
    assert without_teacher.tolist() == pytest.approx([0.5, 0.97])


def test_short_texts_have_targets_labels_and_embeddings():
    selected = select_texts(SETS, RECIPE)
    teacher = 0.6
    embeddings = np.arange(5, dtype=np.float16)[:, None]
    texts = make_short_set(
        selected, SETS, np.full(5, teacher), embeddings, np.zeros(5, np.float32), TOKENIZER, RECIPE
    )
    assert texts.targets.tolist() == pytest.approx(8 * [0.75 * teacher + 0.25] + [teacher])
    assert texts.three_labels.tolist()[:8] == 8 * [1.0]
    assert np.isnan(texts.three_labels[8])
    assert texts.embeddings[:, 0].tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4]


def test_texts_without_a_teacher_have_mean_score_zero_and_neutral_labels():
    recipe = Recipe(sources={"everyday": SourceConfig(("wordnet",), teacher=False, zero_shot_weight=10.0)})
    rows = [Row(text, None, "train") for text in ("good film", "bad film", "soup")]
    scores = np.array([0.2, -0.3, -0.2], np.float32)  # their mean is -.1
    embeddings = np.zeros((3, 1), np.float16)
    texts = make_short_set(
        {"everyday": rows}, {"tweets": [], "electronics": []}, np.zeros(3, np.float32), embeddings,
        scores, TOKENIZER, recipe,
    )  # fmt: skip
    assert texts.targets.tolist() == pytest.approx((1 / (1 + np.exp([-3.0, 2.0, 1.0]))).tolist())
    assert texts.three_labels.tolist() == pytest.approx(
        [np.nan, np.nan, 0.5], nan_ok=True
    )  # near zero: neutral
