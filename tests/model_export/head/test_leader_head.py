"""A plane in numpy and in ONNX Runtime: the same numbers, and the definition of the dynamics."""

import time
from types import MappingProxyType

import numpy as np
import onnx
import pytest
import torch
from encoders import random_encoder, random_head

from model_export.data.training_set import Batch
from model_export.head.float_graph import to_float
from model_export.head.functions import MAX_WORDS_WITHOUT_SEARCH
from model_export.head.graph import read_weights, to_onnx
from model_export.head.quantized import quantize, run
from service.runtime.graph import split_weights
from service.runtime.session import Runtime
from service.settings import PRETRAINED_FOLDER

LENGTHS = (9, 1, 30, 5 * MAX_WORDS_WITHOUT_SEARCH, 100, 3)
OUTPUTS = ("bias", "contribution", "target", "since", "plane")


def draw(lengths, seed=0, width=32, alike=0):
    """States of pieces, and the words of each text by the rows of their pieces; of each, `alike` words are
    twins of its first three.
    """
    rng = np.random.default_rng(seed)
    texts, T = [], 0
    for n in lengths:
        sizes = rng.integers(1, 4, n)
        ends = T + np.cumsum(sizes)
        texts.append([list(range(end - size, end)) for size, end in zip(sizes, ends, strict=True)])
        T = int(ends[-1])
    states = rng.integers(0, 256, (T, width)).astype(np.uint8)
    words = rng.integers(0, 256, (T, width)).astype(np.uint8)
    for text in texts:
        for i, word in enumerate(text[3 : 3 + alike]):
            states[word], words[word] = states[text[i % 3][0]], words[text[i % 3][0]]
    return states, words, texts


def answers(session, states, words, texts, fed=MappingProxyType({})):
    members = [word for text in texts for word in text]
    padded = np.full((len(members), max(map(len, members))), len(states))
    for row, word in zip(padded, members, strict=True):
        row[: len(word)] = word
    places, at = np.full((len(texts), max(map(len, texts))), len(members)), 0
    for row, text in zip(places, texts, strict=True):
        row[: len(text)] = np.arange(at, at + len(text))
        at += len(text)
    feeds = {"states": states, "words": words, "members": padded, "texts": places, **fed}
    found = session.run(feeds, OUTPUTS)
    return {
        name: value[:, 0] if name == "plane" else value[0] for name, value in zip(OUTPUTS, found, strict=True)
    }


@pytest.mark.parametrize(("d", "labels"), [(2, 1), (2, 3), (5, 4)])
@pytest.mark.parametrize("use_embeddings", [False, True], ids=["last", "both"])
@pytest.mark.parametrize("alike", [0, 4, 500], ids=["", "twins", "nothing else"])
def test_graph_gives_the_count_output_numbers_the_definition(d, labels, alike, use_embeddings):
    weights = quantize(random_head(d, labels, use_embeddings=use_embeddings), random_encoder().output_scales)
    session = Runtime("cpu", 1).open(to_onnx(weights).SerializeToString())
    states, words, texts = draw(LENGTHS, alike=alike)
    for company in (texts, *([text] for text in texts)):
        found = answers(session, states, words, company)
        for b, text in enumerate(company):
            told, n = run(weights, states, words, text), len(text)
            assert np.array_equal(found["plane"][:, b, :n], told.plane)
            assert np.array_equal(found["target"][b, :n], told.target)
            assert np.array_equal(found["since"][b, :n], told.since)
            assert np.array_equal(found["contribution"][b, :, :n], told.contribution)
            assert np.array_equal(found["bias"][b], told.bias)
            assert (found["target"][b, n:] == -1).all()
            assert not found["contribution"][b, :, n:].any()


@pytest.mark.parametrize(("d", "labels"), [(2, 1), (5, 4)])
@pytest.mark.parametrize("alike", [0, 4, 500], ids=["", "twins", "nothing else"])
def test_float_graph_gives_the_numbers_of_the_integer_graph(d, labels, alike):
    weights = quantize(random_head(d, labels, use_embeddings=True), random_encoder().output_scales)
    model = to_onnx(weights)
    graph, given = to_float(model).SerializeToString(), split_weights(model.SerializeToString())[1]
    assert len(graph) < 30_000  # no weights
    states, words, texts = draw(LENGTHS, alike=alike)
    expected = answers(Runtime("cpu", 1).open(model.SerializeToString()), states, words, texts)
    found = answers(Runtime("cpu", 1).open(graph), states, words, texts, given)
    for name in OUTPUTS:
        np.testing.assert_array_equal(found[name], expected[name])


def test_float_graph_has_no_product_of_whole_numbers():
    model = to_float(to_onnx(quantize(random_head(), random_encoder().output_scales)))
    left = {node.op_type for function in model.functions for node in function.node}
    assert "MatMulInteger" not in left
    assert "MatMul" in left


@pytest.mark.parametrize("use_embeddings", [False, True], ids=["last", "both"])
def test_torch_gives_the_logits_of_the_definition(use_embeddings):
    plane, reader = random_head(labels=3, use_embeddings=use_embeddings), random_encoder()
    weights = quantize(plane, reader.output_scales)
    states, words, texts = draw((9, 4))
    M = max(map(len, texts))
    word = np.concatenate(
        [np.full(len(rows), b * M + i) for b, text in enumerate(texts) for i, rows in enumerate(text)]
    )
    batch = Batch(torch.zeros(1, len(word)), torch.from_numpy(word)[None], len(texts), M)
    with torch.no_grad():
        logits, _ = plane(
            reader.output_scales,
            *(torch.from_numpy(x.astype(np.float32) - 128)[None] for x in (states, words)),
            batch,
        )
    for row, text in zip(logits, texts, strict=True):
        told = run(weights, states, words, text)
        np.testing.assert_allclose(row.numpy(), told.bias + told.contribution.sum(1), rtol=1e-12)


def test_every_word_is_counted_where_its_leader_stands():
    weights = quantize(random_head(), random_encoder().output_scales)
    states, words, (text,) = draw([40])
    told = run(weights, states, words, text)
    for leader in set(told.target.tolist()):
        assert told.target[leader] == leader
        assert (told.plane[:, leader] == told.plane[0, leader]).all()  # it never moved
        followers = np.flatnonzero(told.target == leader)
        sides = np.sign(told.contribution[0, followers])
        assert len(set(sides.tolist())) == 1


@pytest.mark.alone
def test_time_for_a_text_that_repeats_grows_with_its_length():
    """All of its words may stand at corners, and were compared with each other: with ten times the words 160
    times the time.
    """
    session = Runtime("cpu", 1).open(
        to_onnx(quantize(random_head(), random_encoder().output_scales)).SerializeToString()
    )

    def took_s(words):
        asked, took = draw([words], alike=words), []
        for _ in range(5):
            began = time.perf_counter()
            answers(session, *asked)
            took.append(time.perf_counter() - began)
        return min(took)

    assert took_s(2_500) < 20 * took_s(250)


def test_head_is_written_as_the_bundled_one_was_to_the_byte():
    """It was of one family of six, by chance: heads of different ones do not run together."""
    bundled = (PRETRAINED_FOLDER / "sentiment-small" / "model.onnx").read_bytes()
    model = to_onnx(read_weights(onnx.load_from_string(bundled)))
    assert model.SerializeToString(deterministic=True) == bundled
