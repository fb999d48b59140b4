"""The torch model against the paper's formulas, written out again in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from model_export.model import HardmaxTransformer, Shape, Weights
from service.errors import MalformedInput, NotFound


def _by_hand(w: Weights, tokens: np.ndarray, counts: np.ndarray) -> float:
    """The logit of one text on the cloud of all its words, repeated ones repeated, as the paper has it."""
    words = np.repeat(tokens, counts.astype(int))
    Z = w.embedding[words].astype(np.float64)
    A = np.eye(Z.shape[1]) if w.metric is None else w.metric
    for _ in range(w.layers):
        scores = Z @ A @ Z.T
        attends = scores >= scores.max(1, keepdims=True) - 1e-9
        mean = (attends @ Z) / attends.sum(1, keepdims=True)
        Z = Z + w.alpha / (1 + w.alpha) * (mean - Z)
    weight = w.word_weights[words].astype(np.float64)
    return float(w.bias + weight @ (Z @ w.readout) / (w.pseudo_weight + weight.sum()))


SHAPES = {
    "paper": Shape(vocabulary=30, dimension=2, layers=8, alpha=2.35, weighted=False, spread=1.0),
    "weighted": Shape(vocabulary=30, dimension=4, layers=2, pseudo_weight=1.5, spread=1.0),
    "metric": Shape(vocabulary=30, dimension=3, layers=3, learn_metric=True, spread=1.0),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_model_is_the_dynamics_on_repeated_words(shape):
    torch.manual_seed(0)
    model = HardmaxTransformer(shape).eval()
    with torch.no_grad():
        model.u.normal_()
        model.B.add_(0.3 * torch.randn_like(model.B) if shape.learn_metric else 0.0)
        if not shape.weighted:
            model.u.zero_()
    tokens = np.array([[3, 7, 11, 2, 29, 0, 0], [5, 6, 7, 8, 9, 10, 11]])
    counts = np.array([[2, 1, 3, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 4]], dtype=np.float32)
    logit = model(torch.from_numpy(tokens), torch.from_numpy(counts)).detach().numpy()
    for b in range(2):
        there = counts[b] > 0
        assert logit[b] == pytest.approx(
            _by_hand(model.weights(), tokens[b, there], counts[b, there]), abs=1e-4
        )


def test_a_text_without_words_gets_the_bias():
    model = HardmaxTransformer(Shape(vocabulary=5, dimension=3)).eval()
    with torch.no_grad():
        model.b.fill_(0.25)
    assert float(model(torch.zeros(1, 4, dtype=torch.int64), torch.zeros(1, 4)).detach()) == 0.25


def test_gradient_reaches_leaders_and_no_padding():
    model = HardmaxTransformer(Shape(vocabulary=4, dimension=2, weighted=False, spread=1.0))
    model(torch.tensor([[1, 2, 0]]), torch.tensor([[1.0, 1.0, 0.0]])).sum().backward()
    gradient = model.E.grad.to_dense()
    assert (gradient[0] == 0).all()
    assert (gradient[3] == 0).all()
    assert gradient[1].abs().sum() > 0


def test_reach_changes_nothing_that_is_long_enough_to_lead():
    """With as many long tokens as `reach`, the short ones find the same leaders as in the whole cloud."""
    torch.manual_seed(1)
    model = HardmaxTransformer(Shape(vocabulary=10, dimension=3, reach=8))
    Z = torch.cat([5 * torch.randn(2, 8, 3), 0.1 * torch.randn(2, 40, 3)], dim=1)
    model.eval()
    whole = model.attend(Z)
    model.train()
    assert (model.attend(Z) == whole).float().mean() > 0.9
    assert model.attend(Z)[:, 8:].max() < 48


def test_lean_starts_as_naive_bayes():
    torch.manual_seed(0)
    model = HardmaxTransformer(Shape(vocabulary=50, dimension=4))
    ratio = torch.linspace(-3, 3, 50)
    model.lean(ratio, 0.3)
    along = (model.E.detach() @ model.v.detach()) / model.v.detach().norm()
    assert along[0] == 0
    np.testing.assert_allclose(along[1:], 0.3 * ratio[1:], atol=1e-5)
    np.testing.assert_allclose(model.u.detach()[:, 0].exp(), 0.3 + ratio.abs(), rtol=1e-5)


def test_weights_survive_their_file(tmp_path):
    model = HardmaxTransformer(SHAPES["metric"])
    model.weights().save(tmp_path / "w.npz")
    loaded = Weights.load(tmp_path / "w.npz")
    for name, value in vars(model.weights()).items():
        np.testing.assert_array_equal(getattr(loaded, name), value)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_model_of_weights_answers_alike(shape):
    torch.manual_seed(2)
    model = HardmaxTransformer(shape).eval()
    again = HardmaxTransformer.of(model.weights()).eval()
    tokens, counts = torch.tensor([[3, 4, 5, 0]]), torch.tensor([[1.0, 2.0, 1.0, 0.0]])
    assert float(again(tokens, counts).detach()) == pytest.approx(
        float(model(tokens, counts).detach()), abs=1e-5
    )


def test_sharpened_weights_scale_the_logit():
    model = HardmaxTransformer(SHAPES["weighted"])
    tokens, counts = np.array([3, 4, 5]), np.ones(3, dtype=np.float32)
    plain = model.weights()
    assert _by_hand(plain.sharpened(1.5), tokens, counts) == pytest.approx(
        1.5 * _by_hand(plain, tokens, counts), rel=1e-5
    )


def test_unreadable_weights_are_named(tmp_path):
    with pytest.raises(NotFound, match="no such weights"):
        Weights.load(tmp_path / "none.npz")
    np.savez(tmp_path / "other.npz", x=1)
    with pytest.raises(MalformedInput, match="does not hold weights"):
        Weights.load(tmp_path / "other.npz")
