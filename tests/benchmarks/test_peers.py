"""Peers compute what they should, with random weights."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from encoders import RELATIVE, TINY, random_encoder
from numpy.typing import NDArray
from onnx import numpy_helper
from torch.nn.utils.rnn import pad_sequence

from benchmarks.clouds import CLOUDS, HardmaxLayer, draw, hull_peer, numpy_peer, torch_peer
from benchmarks.models import Pooled, SoftTransformer, export, random_twin
from model_export.encoder.attention import PAD
from service.text.tokenizer import TokenizedText


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("d", [2, 3])
def test_hardmax_and_peers_take_the_same_step(cloud: str, d: int) -> None:
    points = draw(cloud, 300, d)
    for peer in (numpy_peer(), hull_peer(), torch_peer()):
        np.testing.assert_allclose(HardmaxLayer()(points), peer(points)(points), atol=1e-12)


def test_int8_graph_of_a_peer_has_no_constant_matrix(tmp_path: Path) -> None:
    graph = onnx.load(export(Pooled(random_twin(TINY)), tmp_path, int8=True)).graph
    matrices = [numpy_helper.to_array(tensor) for tensor in graph.initializer if len(tensor.dims) == 2]
    assert len(matrices) > 6 * TINY.layers
    assert all(np.ptp(matrix.astype(float)) > 0 for matrix in matrices)


def test_soft_transformer_answers_batches_of_any_size_as_torch_does() -> None:
    config = RELATIVE  # the shape of ours, with fewer numbers
    encoder = random_encoder(config)
    texts = {str(n): np.random.default_rng(n).integers(1, config.vocabulary, n) for n in (5, 9, 2)}
    transformer = SoftTransformer(lambda text: one_chunk(texts[text]), encoder)
    for batch in (["5"], ["5", "9", "2"]):
        token_ids = pad_sequence([torch.from_numpy(texts[name]) for name in batch], True, PAD)
        expected = Pooled(encoder)(token_ids).detach().numpy()
        np.testing.assert_allclose(transformer(batch), expected, atol=1e-4)


def one_chunk(token_ids: NDArray[np.int64]) -> TokenizedText:
    """Return a text of one chunk whose words have one token each."""
    offsets = np.arange(len(token_ids) + 1)
    numbers, zeros = offsets[:-1], np.zeros(len(token_ids), np.int64)
    return TokenizedText("", numbers, offsets[1:], offsets, token_ids, numbers, zeros, truncated=False)
