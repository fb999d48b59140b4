"""The teacher computes what its published weights say, learns, and answers in the order it was asked."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from encoders import CONFIG, published_weights, write_encoder

from model_export.train.encoder import Encoder, Fitting, fitted
from service.errors import NotFound

WORDS = "the room was is never not good bad and a film".split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_encoder(tmp_path_factory.mktemp("encoder"), WORDS)


def by_hand(state, ids):
    """BERT as its paper writes it, a text at a time, in doubles: the states of all pieces."""
    heads, eps = CONFIG["num_attention_heads"], CONFIG["layer_norm_eps"]
    state = {name: tensor.double() for name, tensor in state.items()}

    def product(x, name):
        return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]

    def norm(x, name):
        x = (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + eps)
        return x * state[f"{name}.weight"] + state[f"{name}.bias"]

    x = state["embeddings.word_embeddings.weight"][ids]
    x = x + state["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + state["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for i in range(CONFIG["num_hidden_layers"]):
        at = f"encoder.layer.{i}"
        q, k, v = (
            product(x, f"{at}.attention.self.{part}").view(len(ids), heads, -1).transpose(0, 1)
            for part in ("query", "key", "value")
        )
        weight = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(q.shape[-1]), -1)
        mixed = product((weight @ v).transpose(0, 1).reshape(len(ids), -1), f"{at}.attention.output.dense")
        x = norm(x + mixed, f"{at}.attention.output.LayerNorm")
        inner = product(x, f"{at}.intermediate.dense")
        inner = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
        x = norm(x + product(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm")
    return x


def test_the_encoder_computes_what_its_published_weights_say(folder):
    encoder = Encoder(folder).eval()
    torch.nn.init.normal_(encoder.head.weight)
    texts = ["the room was never bad", "good", "a film and a room and a film"]
    head = encoder.head.weight[0].detach().double()
    expected = [
        float(by_hand(published_weights(), ids.tolist()).mean(0) @ head) for ids in encoder.pieces(texts)
    ]
    assert np.ptp(expected) > 0.5
    np.testing.assert_allclose(encoder.logits(texts), expected, atol=0.1)  # its products have 8 bits
    np.testing.assert_allclose(encoder.logits(texts[::-1]), encoder.logits(texts)[::-1], atol=0.05)


def test_a_long_text_keeps_its_two_ends_and_markup_is_not_read(folder):
    encoder = Encoder(folder)
    (cut,) = encoder.pieces(["good " + "the " * 50 + "<br />bad"], longest=6)
    good, the, bad = map(encoder.tokenizer.token_to_id, ("good", "the", "bad"))
    assert cut.tolist() == [2, good, the, the, bad, 3]


def test_the_encoder_learns_what_denies_what(folder, tmp_path):
    rng = random.Random(0)
    rows = []
    for _ in range(600):
        thing, word = rng.choice(["room", "film"]), rng.choice(["good", "bad"])
        denial = rng.choice([[], ["not"], ["never"]])
        rows.append((" ".join(["the", thing, "was", *denial, word]), float((word == "good") != bool(denial))))
    texts, targets = [text for text, _ in rows], np.array([target for _, target in rows], np.float32)
    how = Fitting(epochs=8, rate=5e-3, warm_up=10, pieces=200)
    keep = tmp_path / "encoder.pt"
    epochs = [np.arange(500)] * how.epochs
    encoder = fitted(folder, texts, targets, epochs, how, keep, say=lambda _: None)
    assert ((encoder.logits(texts[500:]) > 0) == (targets[500:] > 0.5)).mean() > 0.95
    again = fitted(folder, texts, targets, [], how, keep)  # what is kept is not fitted again
    np.testing.assert_array_equal(again.logits(texts[:5]), encoder.logits(texts[:5]))


def test_the_vectors_stay_as_they_were_published(folder, tmp_path):
    texts, targets = ["good", "bad"] * 4, np.array([1, 0] * 4, np.float32)
    how, published = Fitting(rate=5e-3, warm_up=1), Encoder(folder).state_dict()
    fit = fitted(folder, texts, targets, [np.arange(8)], how, tmp_path / "encoder.pt", say=lambda _: None)
    changed = {name for name, value in fit.state_dict().items() if not torch.equal(value, published[name])}
    assert {name.split(".")[2] for name in changed if name.startswith("layers.")} == {"0", "1"}
    assert changed - {name for name in changed if name.startswith("layers.")} == {"head.weight", "head.bias"}


def test_a_folder_that_is_no_encoder_says_what_it_lacks(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(NotFound, match=r"model\.safetensors, tokenizer\.json"):
        Encoder(tmp_path)


def test_the_encoder_is_asked_once_about_the_same_texts(folder, tmp_path, monkeypatch):
    encoder = Encoder(folder)
    torch.nn.init.normal_(encoder.head.weight)
    first = encoder.asked(["good", "a bad film"], tmp_path)
    np.testing.assert_array_equal(first, encoder.logits(["good", "a bad film"]))
    other = encoder.asked(["a bad film", "good"], tmp_path)
    np.testing.assert_allclose(other, first[::-1], rtol=1e-2)
    monkeypatch.setattr(encoder, "logits", None)
    np.testing.assert_array_equal(encoder.asked(["good", "a bad film"], tmp_path), first)
    with torch.no_grad():
        encoder.head.weight.neg_()
    with pytest.raises(TypeError, match="not callable"):  # another fit is asked again
        encoder.asked(["good", "a bad film"], tmp_path)
