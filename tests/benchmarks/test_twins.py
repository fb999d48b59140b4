"""The transformers that texts are measured beside have the size that the report gives them."""

import torch

from benchmarks.twins import DISTILBERT
from model_export.reader.model import Reader


def test_transformer_has_the_size_of_distilbert() -> None:
    with torch.device("meta"):  # shapes without numbers
        reader = Reader(DISTILBERT)
    assert 65e6 < sum(weights.numel() for weights in reader.parameters()) < 67e6
