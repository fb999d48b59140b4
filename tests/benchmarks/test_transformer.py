"""The transformer that texts are measured beside has the size that the report gives it."""

from __future__ import annotations

import torch

from benchmarks.peers.transformer import LONGEST, Transformer


def test_transformer_has_the_size_of_distilbert() -> None:
    with torch.device("meta"):  # shapes without numbers
        model = Transformer()
        scores = model(torch.zeros(1, LONGEST, dtype=torch.int64))
    assert sum(weights.numel() for weights in model.parameters()) == 66_362_882
    assert scores.shape == (1, 2)
