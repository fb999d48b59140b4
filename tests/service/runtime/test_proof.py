"""Bundles are proved harmless: too much memory, endless loops and crashes are found in another process."""

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import onnx
import pytest
from bundles import write_encoder, write_head
from graphs import change_graph, loop_forever, take_memory

from service.errors import BundleError
from service.loaders import make_prover
from service.runtime import proof
from service.runtime.bundle import Bundle, find_bundles, read_bundle
from service.runtime.proof import Prover
from service.runtime.session import Runtime
from service.settings import PRETRAINED_FOLDER, Settings

SETTINGS = Settings(compute_memory_mb=2000)


def prove(folder: Path, graphs: str = "cpu") -> None:
    runtime = Runtime("cpu", 2)
    runtime.graphs = "cuda" if graphs == "cuda" else "cpu"
    make_prover(runtime, SETTINGS).prove(read_bundle(folder))


@pytest.mark.system
@pytest.mark.parametrize("name", find_bundles([PRETRAINED_FOLDER]))
def test_pretrained_bundles_are_harmless(name: str) -> None:
    """The service trusts them without a proof."""
    assert read_bundle(PRETRAINED_FOLDER / name).is_pretrained
    prove(PRETRAINED_FOLDER / name)


def write_dynamics(folder: Path) -> None:
    shutil.copytree(PRETRAINED_FOLDER / "dynamics", folder / "dynamics")


WRITERS: dict[str, Callable[[Path], object]] = {
    "reader": write_encoder,
    "tiny": write_head,
    "dynamics": write_dynamics,
}


@pytest.mark.parametrize(("name", "graphs"), [*((name, "cpu") for name in WRITERS), ("tiny", "cuda")])
def test_ordinary_bundle_of_a_user_passes(tmp_path: Path, name: str, graphs: str) -> None:
    WRITERS[name](tmp_path)
    assert not read_bundle(tmp_path / name).is_pretrained
    prove(tmp_path / name, graphs)


@pytest.mark.parametrize("name", ["tiny", "dynamics"])
def test_bundle_that_takes_too_much_memory_is_refused(tmp_path: Path, name: str) -> None:
    """Such a bundle of 1.5 kB was once served and took 5.2 GB."""
    WRITERS[name](tmp_path)
    change_graph(tmp_path / name, take_memory)
    reason = rf"{name} needs more than 2000 MB of memory \(COMPUTE_MEMORY_MB\) to open and to run once"
    with pytest.raises(BundleError, match=reason):
        prove(tmp_path / name)


def test_bundle_that_loops_on_long_texts_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It passed a warm-up of nine words; afterwards no text was answered ever again."""
    monkeypatch.setattr(proof, "PROOF_S", 10)
    write_head(tmp_path)
    change_graph(tmp_path / "tiny", partial(loop_forever, min_tokens=2_000))
    runtime = Runtime("cpu", 1)
    prover, bundle = make_prover(runtime, SETTINGS), read_bundle(tmp_path / "tiny")
    for _ in range(2):  # the second time without another process
        with pytest.raises(BundleError, match="tiny took more than 10 s to open and to run once"):
            prover.prove(bundle)
        monkeypatch.setattr(proof, "Worker", None)


def crash(bundle: Bundle) -> None:
    """End the process, as a fault in ONNX Runtime would."""
    os._exit(7)


def test_bundle_that_ends_the_process_is_refused_and_tried_again_after_a_reload(tmp_path: Path) -> None:
    prover, bundle = Prover(crash, memory_bytes=1 << 30), write_encoder(tmp_path)
    for _ in range(2):
        with pytest.raises(BundleError, match=r"reader cannot be opened and run: .* ended with code 7"):
            prover.prove(bundle)
        prover.forget_failures()
        assert prover._failures == {}


def test_bundle_that_names_the_wrong_outputs_is_refused_with_the_reason(tmp_path: Path) -> None:
    def rename(model: onnx.ModelProto) -> None:
        del model.graph.output[0]

    write_head(tmp_path)
    change_graph(tmp_path / "tiny", rename)
    with pytest.raises(BundleError, match="tiny cannot be opened and run: tiny: its graph has"):
        prove(tmp_path / "tiny")
