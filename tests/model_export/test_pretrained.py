"""Initialization, calibration and export of the pretrained models."""

import json

import numpy as np
import pytest
import torch
from bundles import TRAINING_TEXTS, WORD_LISTS
from encoders import RELATIVE, predict, random_encoder, random_head

from model_export.data.corpora import Row
from model_export.data.names import is_english_token
from model_export.data.training_set import TrainingSet
from model_export.encoder.quantization import quantize
from model_export.head.leader_head import LeaderHead
from model_export.measure.scores import neutral_band, sigmoid, three_labels
from model_export.measure.served import ServedModel
from model_export.pretrained import set_special_tokens
from model_export.publish import compute_figures, fit_neutral_threshold, write_models
from model_export.restore import released_outputs, restore
from model_export.stages import calibrate
from model_export.training_model import TrainingModel
from service.errors import BundleError
from service.text.encoder import VOCABULARY_KEYS
from service.text.tokenizer import Vocabulary, WordPieceTokenizer

VOCABULARY = Vocabulary(**{field: WORD_LISTS[key] for field, key in VOCABULARY_KEYS.items()})
TEXTS = [f"{a}, {b}." for a in TRAINING_TEXTS[:7] for b in TRAINING_TEXTS[:7]]
LABELS = (0.0, 0.5, 1.0)
SETS = {"films": [Row(text, LABELS[i % 3], ("validation", "test")[i % 2]) for i, text in enumerate(TEXTS)]}


class Louder(LeaderHead):
    """A head whose logits in torch are larger by a thousandth than those of its graph."""

    def forward(self, *args):
        logits, reach = super().forward(*args)
        return logits + 1e-3, reach


def write(encoder, head, models):
    model = TrainingModel(encoder, head)
    write_models(model, "sentiment", VOCABULARY, SETS, models, {}, lambda line: None)


def test_head_is_written_only_if_its_graph_gives_the_logits_of_torch(tmp_path):
    encoder, head = random_encoder(), random_head()
    louder = Louder(head.config)
    louder.load_state_dict(head.state_dict())
    with pytest.raises(BundleError, match="the logits of 0 of 25 texts"):
        write(encoder, louder, tmp_path)
    assert not (tmp_path / "sentiment").exists()
    write(encoder, head, tmp_path)
    assert np.ptp(ServedModel(tmp_path, "sentiment").logits(TEXTS)) > 0.1


def test_encoder_is_refused_if_its_graph_does_not_give_the_states_of_torch(tmp_path, monkeypatch):
    encoder = random_encoder()
    quantized = encoder.quantized
    monkeypatch.setattr(encoder, "quantized", lambda x: (quantized(x)[0] + 1, *quantized(x)[1:]))
    with pytest.raises(BundleError, match="the states of 0 of 25 chunks"):
        write(encoder, random_head(), tmp_path)


def test_card_has_figures_of_the_test_split_by_the_graph_that_is_served(tmp_path):
    write(random_encoder(), random_head(), tmp_path)
    card = json.loads((tmp_path / "sentiment" / "card.json").read_text())
    rows = [row for row in SETS["films"] if row.split == "test"]
    logits = ServedModel(tmp_path, "sentiment").logits([row.text for row in rows])
    targets = np.array([row.target for row in rows])
    expected = compute_figures(logits, targets, card["neutral_threshold"])
    figures = card["figures"]["films"]
    assert figures["confusion"] == [list(row) for row in expected["confusion"]]
    for name in ("balanced_accuracy", "three_labels", "log_loss"):
        assert figures[name] == pytest.approx(expected[name])


def test_released_weights_are_restored_to_the_bit(tmp_path):
    random, published = random_encoder(RELATIVE), random_encoder(RELATIVE, seed=1)
    model = TrainingModel(random, random_head())
    texts = TrainingSet.from_texts(WordPieceTokenizer(VOCABULARY), TEXTS, [0.5] * len(TEXTS))
    calibrate(random, texts)
    write(random, model.head, tmp_path)
    restored = TrainingModel(published, random_head(seed=1))
    restore(restored, tmp_path, "sentiment")
    for name, stored in quantize(random).items():
        assert np.allclose(quantize(published)[name], stored, rtol=1e-6, atol=0), name
    assert np.array_equal(predict(published, restored.head, texts), predict(random, model.head, texts))
    threshold = json.loads((tmp_path / "sentiment" / "card.json").read_text())["neutral_threshold"]
    outputs = released_outputs(restored, texts)
    assert np.allclose(outputs[0], predict(published, restored.head, texts)[:, 0], rtol=1e-5)
    assert restored.threshold.value.item() == pytest.approx(threshold)


def test_special_tokens_begin_as_the_mean_of_their_words():
    encoder, ids = random_encoder(), {token: i for i, token in enumerate(VOCABULARY.tokens)}
    vocabulary = Vocabulary(VOCABULARY.tokens, ["film", "movie", "unknown"], [], [])
    words = encoder.words.weight.detach().clone()
    with torch.no_grad():
        set_special_tokens(encoder, vocabulary)
    name = encoder.words.weight[vocabulary.special.name]
    assert torch.allclose(name, words[[ids["film"], ids["movie"]]].mean(0))


@pytest.mark.parametrize(
    ("token_id", "token", "is_english"),
    [(100, "[UNK]", True), (500, "[unused400]", False), (3000, "good", True), (3000, "##é", True),
     (3000, "漢", False), (3000, "##й", False), (3000, "…", True),
     (3000, "2010", False), (3000, "##00", False), (3000, "3", True), (3000, "##3", True),
     (3000, "mp3", False), (3000, "##!", False), (3000, "!", True)],
)  # fmt: skip
def test_vocabulary_keeps_the_tokens_of_english(token_id, token, is_english):
    assert is_english_token(token_id, token) == is_english


@pytest.mark.parametrize("threshold", [0.5, 0.8, 1.2, 2.0])
def test_neutral_band_is_where_neutral_is_most_probable(threshold):
    x = np.linspace(-4, 4, 4_001)
    positive, negative = sigmoid(x - threshold), sigmoid(-x - threshold)
    most_probable = np.stack([negative, 1 - positive - negative, positive]).argmax(0) / 2
    inside = np.abs(np.abs(x) - 1e-9) > 2e-3
    band = three_labels(sigmoid(x), neutral_band(threshold))
    assert (band == most_probable)[inside].mean() > 0.999


def test_threshold_has_nearly_the_best_balanced_accuracy_of_three_labels():
    logits = np.array([-3.0, -2.5, -1.0, 0.1, 0.9, 2.4, 3.0])
    labels = np.array([0.0, 0.0, 0.5, 0.5, 0.5, 1.0, 1.0], np.float32)
    two_labels = {"films": (np.array([0.1, -0.1]), np.array([1.0, 0.0], np.float32))}
    sets = {"tweets": (logits, labels), **two_labels}
    t = fit_neutral_threshold(sets)
    edge = np.log(np.exp(t) - 2 * np.exp(-t))
    assert 1.0 <= edge < 1.1  # the smallest one without errors


def test_figures_are_by_the_sign_and_of_three_labels():
    figures = compute_figures(np.array([3.0, -3.0, 0.1, -0.2]), np.array([1.0, 0.0, 0.5, 0.0]), 1.0)
    assert figures["balanced_accuracy"] == 1.0
    assert figures["three_labels"] == pytest.approx((1 + 1 + 0.5) / 3)
    figures = compute_figures(np.array([3.0, -0.1, 0.1, -0.2]), np.full(4, 0.5), 1.0)
    assert figures == {"texts": 4, "neutral": 0.75}  # of neutral texts the share classified so
