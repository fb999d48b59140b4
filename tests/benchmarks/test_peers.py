"""Peers have the same libraries and compute the same; a failed installation is noted in the report."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from encoders import RELATIVE, TINY, random_encoder
from numpy.typing import NDArray
from paths import ROOT
from pins import read_pins
from torch.nn.utils.rnn import pad_sequence

from benchmarks.clouds import CLOUDS, HardmaxLayer, hull_peer, numpy_peer
from benchmarks.environments import CannotInstall, _run, environment
from benchmarks.http import MODEL_LIBRARIES, is_present
from benchmarks.record import Record
from benchmarks.servers import HARDMAX
from benchmarks.soft_transformers import DISTILBERT, Pooled, SoftTransformer
from model_export.encoder.attention import PAD
from model_export.encoder.layer import EncoderConfig
from model_export.encoder.model import Encoder
from service.text.tokenizer import TokenizedText


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("ERROR: one\nERROR: No such version\n[notice] a new pip", "No such version"),
        ("Killed\n", "Killed"),
        ("", "it ended with 3"),
    ],
)
def test_failed_installation_has_a_reason_of_one_line(output: str, reason: str) -> None:
    program = f"import sys; sys.stderr.write({output!r}); sys.exit(3)"
    with pytest.raises(CannotInstall) as error:
        _run(sys.executable, "-c", program)
    assert str(error.value) == reason


def test_our_own_environment_is_always_present() -> None:
    record = Record("http", "HTTP", MODEL_LIBRARIES)
    assert environment(None) == sys.executable
    assert is_present(HARDMAX, record)
    assert record.notes == []


PRINT_MODULES = """
import sys
from benchmarks.peers.sentiment import Classifier
Classifier().classify(["fine"])
print(*{name for name in sys.modules if "." not in name and name[0] != "_"} - sys.stdlib_module_names)
"""

OF_PYDANTIC = {"annotated_types", "pydantic_core", "typing_extensions", "typing_inspection"}  # it bounds them


def test_http_peers_have_our_versions_of_the_libraries_of_the_model() -> None:
    modules = subprocess.check_output([sys.executable, "-c", PRINT_MODULES], cwd=ROOT, text=True).split()
    needed = {name for name in modules if not (ROOT / name).is_dir()} - OF_PYDANTIC
    assert {"numpy", "onnxruntime"} <= needed
    our_pins = read_pins((ROOT / "constraints.txt").read_text())
    for peer in ("litserve", "bentoml", "mlserver"):
        peer_pins = read_pins((ROOT / f"benchmarks/requirements-{peer}.txt").read_text())
        differing = {name for name in needed if peer_pins.get(name) != our_pins[name]}
        assert differing == set(), peer


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("d", [2, 3])
def test_hardmax_and_peers_take_the_same_step(cloud: str, d: int) -> None:
    points = CLOUDS[cloud](300, d)
    for peer in (numpy_peer(), hull_peer()):
        np.testing.assert_allclose(HardmaxLayer()(points), peer(points)(points), atol=1e-12)


def test_transformer_has_the_size_of_distilbert() -> None:
    with torch.device("meta"):  # shapes without numbers
        encoder = Encoder(DISTILBERT)
    assert 65e6 < sum(weights.numel() for weights in encoder.parameters()) < 67e6


@pytest.mark.parametrize("config", [TINY, RELATIVE], ids=["absolute positions", "relative positions"])
def test_soft_transformer_answers_batches_of_any_size_as_torch_does(config: EncoderConfig) -> None:
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
