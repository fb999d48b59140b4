"""How the bundled models begin, and how they are written."""

import torch

from model_export.bundled import drawn
from model_export.recipe import Recipe


def test_two_runs_of_one_recipe_begin_with_the_same_weights():
    def weights(recipe):
        torch.rand(1)  # whatever was drawn before
        return torch.cat([p.detach().flatten() for part in drawn(recipe, 384) for p in part.parameters()])

    assert torch.equal(weights(Recipe()), weights(Recipe()))
    assert not torch.equal(weights(Recipe()), weights(Recipe(seed=4)))
