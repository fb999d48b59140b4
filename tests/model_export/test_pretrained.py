"""How the bundled models begin, and how they are written."""

import json

import numpy as np
import pytest
import torch
from bundles import LISTS, TAUGHT
from encoders import random_encoder, random_head

from model_export.head.leader_head import LeaderHead
from model_export.measure.meaning import Served
from model_export.pretrained import drawn, write
from model_export.recipe import Recipe
from service.errors import BundleError
from service.text.tokenizer import Vocabulary


def test_two_runs_of_one_recipe_begin_with_the_same_weights():
    def weights(recipe):
        torch.rand(1)  # whatever was drawn before
        return torch.cat([p.detach().flatten() for part in drawn(recipe, 384) for p in part.parameters()])

    assert torch.equal(weights(Recipe()), weights(Recipe()))
    assert not torch.equal(weights(Recipe()), weights(Recipe(seed=4)))


class Louder(LeaderHead):
    """In torch it says a thousandth more than its weights, which the graph has."""

    def forward(self, *of):
        logits, reach = super().forward(*of)
        return logits + 1e-3, reach


def test_head_is_written_only_if_its_graph_says_what_torch_does(tmp_path):
    lists, about = (
        Vocabulary(*LISTS.values()),
        {},
    )
    reader, plane = random_encoder(), random_head()
    louder = Louder(plane.config)
    louder.load_state_dict(plane.state_dict())
    own = [f"{text}, {other}." for text in TAUGHT for other in TAUGHT]
    with pytest.raises(BundleError, match="the logits of 0 of 196 texts"):
        write(reader, louder, lists, tmp_path, own=own, even=0.1, about=about, figures={})
    assert not (tmp_path / "sentiment").exists()
    write(reader, plane, lists, tmp_path, own=own, even=0.1, about=about, figures={})
    assert np.ptp(Served(tmp_path, "sentiment").logits(own)) > 0.1
    assert json.loads((tmp_path / "sentiment" / "card.json").read_text())["even"] == 0.1
