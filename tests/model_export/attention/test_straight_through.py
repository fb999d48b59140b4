"""The torch attention against the definition."""

import numpy as np
import torch

from model_export.attention import reference
from model_export.attention.straight_through import argmax_mask, hardmax, round_to_grid, straight_through


def test_hardmax_is_the_definition_with_ties():
    rng = np.random.default_rng(0)
    Z = rng.integers(-2, 3, (40, 2)).astype(float)  # small integers: many ties
    scores, values = torch.from_numpy(reference.scores(Z, Z)), torch.from_numpy(Z)
    C = reference.argmax_sets(Z)
    assert C.sum(1).max() > 1
    assert np.array_equal(argmax_mask(scores).numpy() == 1, C)
    np.testing.assert_allclose(hardmax(scores, values).numpy(), reference.means(C, Z), rtol=1e-15)


def test_straight_through_keeps_the_value_to_the_bit_and_takes_the_gradient():
    """A head with a tie of two has means of .5, which would be rounded to another integer."""
    value = torch.cat([torch.tensor([0.1]), torch.arange(-255, 256) / 2])
    gradient = torch.linspace(0.1, 1e8, 512).requires_grad_()
    out = straight_through(value, 3 * gradient)
    out.sum().backward()
    assert torch.equal(out, value)
    assert torch.equal(gradient.grad, torch.full((512,), 3.0))


def test_round_to_grid_rounds_and_passes_the_gradient():
    x = torch.tensor([0.3, -0.6], requires_grad=True)
    y = round_to_grid(x, 4.0)
    y.sum().backward()
    assert y.tolist() == [0.25, -0.5]
    assert x.grad.tolist() == [1, 1]
