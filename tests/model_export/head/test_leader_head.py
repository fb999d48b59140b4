"""The leader head in torch, its graphs in numpy and in ONNX Runtime: the same numbers in all of them."""

import time

import numpy as np
import pytest
import torch
from encoders import random_encoder, random_head

from model_export.attention.reference import argmax_sets, means
from model_export.data.training_set import Batch
from model_export.head.float_graph import to_float
from model_export.head.functions import MAX_WORDS_WITHOUT_SEARCH
from model_export.head.graph import to_onnx
from model_export.head.leader_head import LAYER_GRID
from model_export.head.quantization import quantize
from model_export.referee import Referee
from service.runtime.session import Runtime

LENGTHS = (9, 1, 2 * MAX_WORDS_WITHOUT_SEARCH, 30, 3)
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


def make_feeds(states, words, texts):
    members = [word for text in texts for word in text]
    padded = np.full((len(members), max(map(len, members))), len(states))
    for row, word in zip(padded, members, strict=True):
        row[: len(word)] = word
    rows, begin = np.full((len(texts), max(map(len, texts))), len(members)), 0
    for row, text in zip(rows, texts, strict=True):
        row[: len(text)] = np.arange(begin, begin + len(text))
        begin += len(text)
    return {"states": states, "words": words, "members": padded, "texts": rows}


def run_session(session, states, words, texts):
    feeds = make_feeds(states, words, texts)
    return dict(zip(OUTPUTS, session.run(feeds, OUTPUTS), strict=True))


def to_session(weights):
    return Runtime("cpu", 1).open(to_onnx(weights).SerializeToString(), optimized=False)  # as served


def follow_definition(z, weights):
    """Return c_i after the last layer, targets, first layers of leaders, and the points of all layers.

    Points at one position are one point with a weight, as in the definition of the dynamics.
    """
    gamma, layers = float(weights["gamma"]), int(weights["layers"])
    since, clouds = np.full(len(z), -1), [z]
    for k in range(layers + 1):
        points, first, inverse, counts = np.unique(
            z, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        C = argmax_sets(points)
        c = (np.round(means(C, points, counts) * LAYER_GRID) / LAYER_GRID)[inverse]
        is_single = C.sum(1) == 1
        since[(since < 0) & (is_single & C.diagonal())[inverse]] = k
        if k < layers:
            z = np.round((z + gamma * (c - z)) * LAYER_GRID) / LAYER_GRID
            clouds.append(z)
    return c, np.where(is_single, first[C.argmax(1)], -1)[inverse], since, np.array(clouds)


COPIES = pytest.mark.parametrize("n_copies", [0, 4, 500], ids=["", "copies", "only copies"])


@pytest.mark.parametrize(("d", "labels", "use_embeddings"), [(2, 1, False), (2, 3, True), (5, 4, False)])
@COPIES
def test_graph_gives_the_numbers_of_the_definition(d, labels, n_copies, use_embeddings):
    """To the bit, from the initial points of torch on, in every batch."""
    head, scales = random_head(d, labels, use_embeddings=use_embeddings), random_encoder().output_scales
    weights = quantize(head, scales)
    session = to_session(weights)
    states, words, texts = draw(LENGTHS, n_copies=n_copies)
    with torch.no_grad():
        initial = [head.word_points(scales, *to_torch(states, words, [text])) for text in texts]
    for i in (slice(None), *(slice(b, b + 1) for b in range(len(texts)))):  # together, and each alone
        outputs = run_session(session, states, words, texts[i])
        for b, (text, points) in enumerate(zip(texts[i], initial[i], strict=True)):
            n, w = len(text), points.weights[0].numpy()
            c, target, since, clouds = follow_definition(points.points[0].numpy(), weights)
            share = w / (float(weights["pseudo_weight"]) + w.sum())
            assert np.array_equal(outputs["plane"][:, b, :n], clouds)
            assert np.array_equal(outputs["target"][b, :n], target)
            assert np.array_equal(outputs["since"][b, :n], since)
            contribution = (share[:, None] * (c @ weights["v"].T)).T
            assert np.array_equal(outputs["contribution"][b, :, :n], contribution)
            assert np.array_equal(outputs["bias"][b], weights["b"])
            assert (outputs["target"][b, n:] == -1).all()
            assert not outputs["contribution"][b, :, n:].any()


@COPIES
def test_onnx_runtime_gives_what_the_operators_of_the_graph_give(n_copies):
    model = to_onnx(quantize(random_head(5, 4), random_encoder().output_scales))
    inputs = draw((9, 1, MAX_WORDS_WITHOUT_SEARCH + 6), n_copies=n_copies)
    for graph in (model, to_float(model)):
        content = graph.SerializeToString()
        session = Runtime("cpu", 1).open(content, optimized=False)
        assert Referee(content).differences(session, make_feeds(*inputs), OUTPUTS) == set()


@COPIES
def test_float_graph_gives_the_numbers_of_the_integer_graph(n_copies):
    weights = quantize(random_head(5, 4, use_embeddings=True), random_encoder().output_scales)
    model = to_onnx(weights)
    graph = to_float(model).SerializeToString()
    states, words, texts = draw(LENGTHS, n_copies=n_copies)
    expected = run_session(Runtime("cpu", 1).open(model.SerializeToString()), states, words, texts)
    outputs = run_session(Runtime("cpu", 1).open(graph), states, words, texts)
    for name in OUTPUTS:
        np.testing.assert_array_equal(outputs[name], expected[name])


def to_torch(states, words, texts):
    """Return the inputs of the head in torch."""
    M = max(map(len, texts))
    word = np.concatenate(
        [np.full(len(rows), b * M + i) for b, text in enumerate(texts) for i, rows in enumerate(text)]
    )
    tokens = [row for text in texts for rows in text for row in rows]
    batch = Batch(torch.zeros(1, len(word)), torch.from_numpy(word)[None], len(texts), M)
    return *(torch.from_numpy(x[tokens].astype(np.float32) - 128)[None] for x in (states, words)), batch


def test_words_contribute_with_the_sign_of_their_leader():
    session = to_session(quantize(random_head(), random_encoder().output_scales))
    outputs = run_session(session, *draw([40]))
    target, plane, contribution = outputs["target"][0], outputs["plane"][:, 0], outputs["contribution"][0, 0]
    for leader in set(target.tolist()):
        assert target[leader] == leader
        assert (plane[:, leader] == plane[0, leader]).all()  # it never moved
        assert len(set(np.sign(contribution[target == leader]).tolist())) == 1


@pytest.mark.alone
def test_time_of_a_repetitive_text_is_linear_in_its_length():
    """All of its words may be vertices, and were compared with each other: ten times the words took 160 times
    as long.
    """
    session = to_session(quantize(random_head(), random_encoder().output_scales))

    def measure_s(n_words):
        inputs, times_s = draw([n_words], n_copies=n_words), []
        for _ in range(5):
            start_s = time.perf_counter()
            run_session(session, *inputs)
            times_s.append(time.perf_counter() - start_s)
        return min(times_s)

    assert measure_s(2_500) < 20 * measure_s(250)
