"""Peers have the same libraries and compute the same; a failed installation is noted in the report."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from paths import ROOT
from pins import read_pins

from benchmarks.clouds import CLOUDS, HardmaxLayer, hull_peer, numpy_peer
from benchmarks.environments import CannotInstall, _run, environment
from benchmarks.http import MODEL_LIBRARIES, is_present
from benchmarks.record import Record
from benchmarks.servers import HARDMAX
from benchmarks.soft_transformers import DISTILBERT
from model_export.encoder.model import Encoder


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
