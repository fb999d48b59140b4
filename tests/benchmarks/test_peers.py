"""Peers have what they need, compute what we do, and are told of in the report where that fails."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from paths import ROOT
from pins import read_pins

from benchmarks.clouds import CLOUDS, Ours, hull_peer, numpy_peer
from benchmarks.environments import CannotInstall, _run, environment
from benchmarks.http import MODEL_LIBRARIES, is_present
from benchmarks.record import Record
from benchmarks.servers import OURS
from benchmarks.soft_transformers import DISTILBERT
from model_export.encoder.model import Encoder


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("ERROR: one\nERROR: No such version\n[notice] a new pip", "No such version"),
        ("Killed\n", "Killed"),
        ("", "it ended with 3"),
    ],
)
def test_installer_that_fails_is_told_in_a_line(said: str, reason: str) -> None:
    program = f"import sys; sys.stderr.write({said!r}); sys.exit(3)"
    with pytest.raises(CannotInstall) as refused:
        _run(sys.executable, "-c", program)
    assert str(refused.value) == reason


def test_our_own_environment_is_always_present() -> None:
    record = Record("http", "HTTP", MODEL_LIBRARIES)
    assert environment(None) == sys.executable
    assert is_present(OURS, record)
    assert record.notes == []


LOADED = """
import sys
from benchmarks.peers.sentiment import Classifier
Classifier().classify(["fine"])
print(*{name for name in sys.modules if "." not in name and name[0] != "_"} - sys.stdlib_module_names)
"""


OF_PYDANTIC = {"annotated_types", "pydantic_core", "typing_extensions", "typing_inspection"}  # it bounds them


@pytest.mark.parametrize("peer", ["litserve", "bentoml", "mlserver"])
def test_http_peers_have_our_versions_of_what_the_model_needs(peer: str) -> None:
    loaded = subprocess.check_output([sys.executable, "-c", LOADED], cwd=ROOT, text=True).split()
    wanted = {name for name in loaded if not (ROOT / name).is_dir()} - OF_PYDANTIC
    assert {"numpy", "onnxruntime"} <= wanted
    ours = read_pins((ROOT / "constraints.txt").read_text())
    theirs = read_pins((ROOT / f"benchmarks/requirements-{peer}.txt").read_text())
    assert {name: theirs.get(name) for name in wanted} == {name: ours[name] for name in wanted}


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("d", [2, 3])
def test_ours_and_the_peers_take_the_same_step(cloud: str, d: int) -> None:
    points = CLOUDS[cloud](300, d)
    for peer in (numpy_peer(), hull_peer()):
        np.testing.assert_allclose(Ours()(points), peer(points)(points), atol=1e-12)


def test_transformer_has_the_size_of_distilbert() -> None:
    with torch.device("meta"):  # shapes without numbers
        reader = Encoder(DISTILBERT)
    assert 65e6 < sum(weights.numel() for weights in reader.parameters()) < 67e6
