"""The leader head in torch, numpy and ONNX Runtime: the same numbers in all of them."""

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


def draw(lengths, seed=0, width=32, n_copies=0):
    """Return states of tokens, and the words of each text as rows of tokens; in each text, `n_copies` words
    have the states of its first three.
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
        for i, word in enumerate(text[3 : 3 + n_copies]):
            states[word], words[word] = states[text[i % 3][0]], words[text[i % 3][0]]
    return states, words, texts


def run_session(session, states, words, texts, weights=MappingProxyType({})):
    members = [word for text in texts for word in text]
    padded = np.full((len(members), max(map(len, members))), len(states))
    for row, word in zip(padded, members, strict=True):
        row[: len(word)] = word
    rows, begin = np.full((len(texts), max(map(len, texts))), len(members)), 0
    for row, text in zip(rows, texts, strict=True):
        row[: len(text)] = np.arange(begin, begin + len(text))
        begin += len(text)
    feeds = {"states": states, "words": words, "members": padded, "texts": rows, **weights}
    outputs = zip(OUTPUTS, session.run(feeds, OUTPUTS), strict=True)
    return {name: output[:, 0] if name == "plane" else output[0] for name, output in outputs}


@pytest.mark.parametrize(("d", "labels"), [(2, 1), (2, 3), (5, 4)])
@pytest.mark.parametrize("use_embeddings", [False, True], ids=["last", "both"])
@pytest.mark.parametrize("n_copies", [0, 4, 500], ids=["", "copies", "only copies"])
def test_graph_gives_the_numbers_of_the_definition(d, labels, n_copies, use_embeddings):
    weights = quantize(random_head(d, labels, use_embeddings=use_embeddings), random_encoder().output_scales)
    session = Runtime("cpu", 1).open(to_onnx(weights).SerializeToString())
    states, words, texts = draw(LENGTHS, n_copies=n_copies)
    definitions = [run(weights, states, words, text) for text in texts]
    for i in (slice(None), *(slice(b, b + 1) for b in range(len(texts)))):  # together, and each alone
        outputs = run_session(session, states, words, texts[i])
        for b, (text, expected) in enumerate(zip(texts[i], definitions[i], strict=True)):
            n = len(text)
            assert np.array_equal(outputs["plane"][:, b, :n], expected.plane)
            assert np.array_equal(outputs["target"][b, :n], expected.target)
            assert np.array_equal(outputs["since"][b, :n], expected.since)
            assert np.array_equal(outputs["contribution"][b, :, :n], expected.contribution)
            assert np.array_equal(outputs["bias"][b], expected.bias)
            assert (outputs["target"][b, n:] == -1).all()
            assert not outputs["contribution"][b, :, n:].any()


@pytest.mark.parametrize(("d", "labels"), [(2, 1), (5, 4)])
@pytest.mark.parametrize("n_copies", [0, 4, 500], ids=["", "copies", "only copies"])
def test_float_graph_gives_the_numbers_of_the_integer_graph(d, labels, n_copies):
    weights = quantize(random_head(d, labels, use_embeddings=True), random_encoder().output_scales)
    model = to_onnx(weights)
    graph, shared_weights = to_float(model).SerializeToString(), split_weights(model.SerializeToString())[1]
    assert len(graph) < 30_000  # without weights
    states, words, texts = draw(LENGTHS, n_copies=n_copies)
    expected = run_session(Runtime("cpu", 1).open(model.SerializeToString()), states, words, texts)
    outputs = run_session(Runtime("cpu", 1).open(graph), states, words, texts, shared_weights)
    for name in OUTPUTS:
        np.testing.assert_array_equal(outputs[name], expected[name])


def test_float_graph_has_no_integer_product():
    model = to_float(to_onnx(quantize(random_head(), random_encoder().output_scales)))
    op_types = {node.op_type for function in model.functions for node in function.node}
    assert "MatMulInteger" not in op_types
    assert "MatMul" in op_types


@pytest.mark.parametrize("use_embeddings", [False, True], ids=["last", "both"])
def test_torch_gives_the_logits_of_the_definition(use_embeddings):
    head, encoder = random_head(labels=3, use_embeddings=use_embeddings), random_encoder()
    weights = quantize(head, encoder.output_scales)
    states, words, texts = draw((9, 4))
    M = max(map(len, texts))
    word = np.concatenate(
        [np.full(len(rows), b * M + i) for b, text in enumerate(texts) for i, rows in enumerate(text)]
    )
    batch = Batch(torch.zeros(1, len(word)), torch.from_numpy(word)[None], len(texts), M)
    with torch.no_grad():
        logits, _ = head(
            encoder.output_scales,
            *(torch.from_numpy(x.astype(np.float32) - 128)[None] for x in (states, words)),
            batch,
        )
    for row, text in zip(logits, texts, strict=True):
        expected = run(weights, states, words, text)
        np.testing.assert_allclose(row.numpy(), expected.bias + expected.contribution.sum(1), rtol=1e-12)


def test_words_contribute_with_the_sign_of_their_leader():
    weights = quantize(random_head(), random_encoder().output_scales)
    states, words, (text,) = draw([40])
    outputs = run(weights, states, words, text)
    for leader in set(outputs.target.tolist()):
        assert outputs.target[leader] == leader
        assert (outputs.plane[:, leader] == outputs.plane[0, leader]).all()  # it never moved
        followers = np.flatnonzero(outputs.target == leader)
        signs = np.sign(outputs.contribution[0, followers])
        assert len(set(signs.tolist())) == 1


@pytest.mark.alone
def test_time_of_a_repetitive_text_is_linear_in_its_length():
    """All of its words may be vertices, and were compared with each other: ten times the words took 160 times
    as long.
    """
    session = Runtime("cpu", 1).open(
        to_onnx(quantize(random_head(), random_encoder().output_scales)).SerializeToString()
    )

    def measure_s(n_words):
        inputs, times_s = draw([n_words], n_copies=n_words), []
        for _ in range(5):
            start_s = time.perf_counter()
            run_session(session, *inputs)
            times_s.append(time.perf_counter() - start_s)
        return min(times_s)

    assert measure_s(2_500) < 20 * measure_s(250)


def test_graph_of_the_pretrained_head_is_reproduced_to_the_byte():
    """The graph was one of six by chance: heads with different graphs do not run in one batch."""
    pretrained = (PRETRAINED_FOLDER / "sentiment-small" / "model.onnx").read_bytes()
    model = to_onnx(read_weights(onnx.load_from_string(pretrained)))
    assert model.SerializeToString(deterministic=True) == pretrained
