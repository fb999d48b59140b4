"""The last touch moves what it names and nothing else."""

from __future__ import annotations

import numpy as np
import torch

from model_export.model import HardmaxTransformer, Shape
from model_export.polish import polish
from model_export.tokens import Vocabulary

WORDS = ["it", "was", "not", "at", "all", "bad", "dull", "good", "the", "film"]


def test_polish_moves_only_rows_that_turn_an_opinion_round():
    torch.manual_seed(0)
    vocabulary = Vocabulary.of([*WORDS, "not bad", "bad at", "not dull", "dull at all", "the film"])
    weights = HardmaxTransformer(Shape(len(vocabulary), 4, pseudo_weight=5.0)).weights()
    polished = polish(weights, vocabulary)
    moved = np.flatnonzero((polished.embedding != weights.embedding).any(axis=1))
    assert [vocabulary.names[i] for i in moved] == ["bad at", "dull at all"]
    assert polished.bias == weights.bias
    np.testing.assert_array_equal(polished.readout, weights.readout)


def test_polish_leaves_a_model_without_such_phrases_alone():
    vocabulary = Vocabulary.of(WORDS)
    weights = HardmaxTransformer(Shape(len(vocabulary), 4)).weights()
    assert polish(weights, vocabulary) is weights
