"""The trace behind the paper's figures, against the paper's own example clouds and the torch model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from model_export.model import HardmaxTransformer, Shape
from model_export.reproduce import FIGURE_2, golden_cloud
from model_export.tokens import Vocabulary
from model_export.trace import attention, trace, traces


def test_figure_2_has_the_papers_leaders():
    triangle = golden_cloud(FIGURE_2["triangle"])
    assert triangle.leaders.tolist() == [0, 1, 2]
    emerging = golden_cloud(FIGURE_2["emerging leader"])
    assert emerging.since[[0, 1, 2]].tolist() == [0, 1, 0]
    np.testing.assert_allclose(emerging.states[-1][1], [-0.0556, 0.1389], atol=5e-5)


def test_trace_answers_as_the_model():
    torch.manual_seed(0)
    model = HardmaxTransformer(
        Shape(vocabulary=20, dimension=3, layers=3, spread=1.0, pseudo_weight=2.0)
    ).eval()
    tokens, counts = np.array([3, 5, 7, 11]), np.array([1, 2, 1, 3], dtype=np.float32)
    logit = model(torch.from_numpy(tokens)[None], torch.from_numpy(counts)[None])
    assert trace(model.weights(), tokens, counts).logit == pytest.approx(float(logit.detach()), abs=1e-4)


def test_a_cold_softmax_is_hardmax():
    Z = np.random.default_rng(0).normal(size=(6, 2))
    counts = np.array([1, 1, 2, 1, 1, 3], dtype=np.float32)
    hard = attention(Z, Z, counts, 0.0)
    np.testing.assert_allclose(attention(Z, Z, counts, 1e-6), hard, atol=1e-6)
    np.testing.assert_allclose(hard.sum(1), 1.0)


def test_texts_without_a_known_word_are_left_out():
    vocabulary = Vocabulary.of(["good"])
    model = HardmaxTransformer(Shape(vocabulary=3, dimension=2))
    bags = vocabulary.bags(["good good", "strange", "good"])
    assert [t.counts.tolist() for t in traces(model.weights(), bags, np.arange(3))] == [[2.0], [1.0]]
