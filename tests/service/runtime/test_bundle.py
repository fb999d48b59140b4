"""Bundles: reading them, refusing broken ones by the field at fault, versions, and rollback."""

import hashlib
import json
import re
import threading
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from bundles import write_stub_bundle
from server import run_python

from service.errors import BundleError, NotFound
from service.runtime.bundle import (
    PRETRAINED_DEFAULT,
    find_bundles,
    find_served,
    newest_version,
    read_bundle,
    roll_back,
)
from service.runtime.registry import with_default_model
from service.settings import PRETRAINED_FOLDER, Settings


@pytest.mark.parametrize("format_", [2, 3], ids=["old", "current"])
def test_bundle_of_either_format_is_read(tmp_path: Path, format_: int) -> None:
    bundle = read_bundle(write_stub_bundle(tmp_path / "tiny", format=format_, alpha=1.5))
    assert (bundle.name, bundle.kind, bundle.model, bundle.vocabulary) == ("tiny", "dynamics", b"graph", None)
    assert bundle.card["alpha"] == 1.5


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"model": b"another graph"}, "model_sha256"),
        ({"format": 1}, "format"),
        ({"kind": "regression"}, "kind"),
        ({"name": "other"}, "name"),
        ({"license": None}, "license"),
        ({"description": 7}, "description"),
        ({"figures": [0.9]}, "figures"),
        ({"labels": "negative"}, "labels"),
        ({"kind": "text-classification"}, "encoder"),
        ({"kind": "text-classification", "encoder": {"name": "reader"}}, "encoder"),
        ({"kind": "text-classification", "format": 2, "encoder": {"name": "e", "sha256": "0"}}, "format"),
        ({"kind": "encoder"}, "pieces.json"),
    ],
)
def test_bundle_that_breaks_the_contract_is_refused_by_field(
    tmp_path: Path, changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(BundleError) as exc_info:
        read_bundle(write_stub_bundle(tmp_path / "tiny", **changes))
    assert exc_info.value.param == field
    assert "tiny" in exc_info.value.message


@pytest.mark.parametrize("name", ["encoder", "encoder-small", "sentiment", "sentiment-small"])
def test_pretrained_models_have_a_graph_for_gpus(name: str, caplog: pytest.LogCaptureFixture) -> None:
    bundle = read_bundle(PRETRAINED_FOLDER / name)
    assert bundle.graph_for("cuda") is bundle.float_model
    assert bundle.graph_for("cpu") is bundle.model
    assert not caplog.messages


def test_bundle_digest_changes_with_any_of_its_files(tmp_path: Path) -> None:
    bundle = read_bundle(write_stub_bundle(tmp_path / "a" / "tiny"))
    copy = read_bundle(write_stub_bundle(tmp_path / "b" / "tiny"))
    changed = read_bundle(write_stub_bundle(tmp_path / "c" / "tiny", description="something else"))
    assert bundle.digest == copy.digest
    assert bundle.digest != changed.digest


def test_find_bundles_skips_hidden_and_incomplete_folders(tmp_path: Path) -> None:
    write_stub_bundle(tmp_path / "b")
    write_stub_bundle(tmp_path / "a")
    write_stub_bundle(tmp_path / ".new")
    (tmp_path / "half").mkdir()
    assert list(find_bundles([tmp_path])) == ["a", "b"]


def test_find_bundles_prefers_a_custom_bundle_to_a_pretrained_one_of_its_name(tmp_path: Path) -> None:
    for folder, name in (("pretrained", "a"), ("pretrained", "b"), ("custom", "b"), ("custom", "c")):
        write_stub_bundle(tmp_path / folder / name, name=name)
    bundles = find_bundles([tmp_path / "pretrained", tmp_path / "custom"])
    folders = {name: path.parent.name for name, path in bundles.items()}
    assert folders == {"a": "pretrained", "b": "custom", "c": "custom"}


@pytest.mark.parametrize(
    ("names", "default_model", "pretrained", "expected"),
    [
        (["mine"], "", True, PRETRAINED_DEFAULT),
        (["mine"], "mine", True, "mine"),
        (["mine"], "", False, "mine"),
        (["mine@1", "mine@2"], "", False, "mine"),
        (["mine", "other"], "", False, PRETRAINED_DEFAULT),
        ([], "", True, PRETRAINED_DEFAULT),
    ],
)
def test_default_model_is_the_pretrained_one_unless_another_is_set_or_alone(
    tmp_path: Path, names: list[str], default_model: str, pretrained: bool, expected: str
) -> None:
    for name in names:
        encoder = {"name": "reader", "sha256": "0"}
        write_stub_bundle(tmp_path / name, name=name, kind="text-classification", encoder=encoder)
    write_stub_bundle(tmp_path / "chords", name="chords", kind="sequences")
    settings = Settings(models_dir=tmp_path, default_model=default_model, pretrained_models=pretrained)
    assert with_default_model(settings).default_model == expected


def test_bundle_is_read_in_little_memory(tmp_path: Path) -> None:
    """Two gigabytes were once allocated at once, which fails under a limit of address space."""
    write_stub_bundle(tmp_path / "tiny")
    read_bundle(tmp_path / "tiny")
    tracemalloc.start()
    try:
        read_bundle(tmp_path / "tiny")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def write_versions(folder: Path, *graphs: bytes) -> None:
    for number, graph in enumerate(graphs, 1):
        name, digest = f"mine@{number}", hashlib.sha256(graph).hexdigest()
        write_stub_bundle(folder / name, graph, name=name, model_sha256=digest)


def test_rollback_serves_the_version_before_and_deletes_nothing(tmp_path: Path) -> None:
    write_versions(tmp_path, b"one", b"two")
    assert roll_back(tmp_path, "mine") == ("mine@1", "mine@3")
    assert newest_version("mine", find_bundles([tmp_path])) == "mine@3"
    assert (tmp_path / "mine@3" / "model.onnx").read_bytes() == b"one"
    assert json.loads((tmp_path / "mine@3" / "card.json").read_text())["again"] == "mine@1"
    assert (tmp_path / "mine@2" / "model.onnx").read_bytes() == b"two"
    assert roll_back(tmp_path, "mine") == ("mine@2", "mine@4")


def test_simultaneous_rollbacks_write_complete_versions_or_fail_with_one_sentence(tmp_path: Path) -> None:
    """The rollbacks that lost the race once raised the bare error of a rename."""
    write_versions(tmp_path, b"one", b"two")
    start = threading.Barrier(8)

    def run() -> str:
        start.wait()
        try:
            return roll_back(tmp_path, "mine")[1]
        except BundleError as error:
            return error.message

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda _: run(), range(8)))
    written = [outcome for outcome in outcomes if outcome.startswith("mine@")]
    conflict = re.compile(r"another command has written mine@\d+ meanwhile: look at it, and try again")
    assert all(conflict.fullmatch(outcome) for outcome in outcomes if outcome not in written)
    names = {f"mine@{number}" for number in range(1, 3 + len(written))}
    assert sorted(written) == sorted(names - {"mine@1", "mine@2"})
    assert {path.name for path in tmp_path.iterdir()} == names
    for name in names:
        read_bundle(tmp_path / name)


def test_rollback_that_cannot_write_fails_with_one_sentence_and_leaves_no_files(tmp_path: Path) -> None:
    """The error of shutil.copytree is a list of tuples. A limit on file sizes stands for a full disk."""
    write_versions(tmp_path, b"one" * 10_000, b"two")
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000));"
        "from service.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    process = run_python(code, "models", "rollback", "mine", "--models-dir", str(tmp_path))
    assert (process.returncode, process.stdout) == (2, "")
    assert re.fullmatch(r"hardmax: (\S+: )?File too large\n", process.stderr)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine@1", "mine@2"]


def test_single_version_cannot_be_rolled_back(tmp_path: Path) -> None:
    write_versions(tmp_path, b"one")
    with pytest.raises(NotFound, match=r"there is mine@1"):
        roll_back(tmp_path, "mine")


def test_bundle_that_is_added_during_a_search_does_not_fail_it(tmp_path: Path) -> None:
    """The second listing of a search had a bundle that the first one had not: KeyError."""

    class Folder:
        listings = 0

        def iterdir(self) -> Iterator[Path]:
            self.listings += 1
            if self.listings == 2:
                write_stub_bundle(tmp_path / "late")
            return tmp_path.iterdir()

    write_stub_bundle(tmp_path / "early")
    folder: Any = Folder()
    assert list(find_served([folder])) == ["early"]
