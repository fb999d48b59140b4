"""Reading bundles: a whole one is read whole, a broken one is refused by the name of its field."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from service.bundle import list_bundles, read_bundle
from service.errors import BundleError

CARD = {
    "format": 1,
    "name": "tiny",
    "kind": "dynamics",
    "description": "nothing inside",
    "licence": "Apache-2.0",
    "model_sha256": hashlib.sha256(b"graph").hexdigest(),
}


def write_bundle(folder: Path, model: bytes = b"graph", **changes: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model)
    card = {name: value for name, value in {**CARD, **changes}.items() if value is not None}
    (folder / "card.json").write_text(json.dumps(card))
    return folder


def test_bundle_is_read_whole(tmp_path: Path) -> None:
    bundle = read_bundle(write_bundle(tmp_path / "tiny", alpha=1.5))
    assert (bundle.name, bundle.kind, bundle.model, bundle.tokenizer) == ("tiny", "dynamics", b"graph", None)
    assert bundle.card["alpha"] == 1.5


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"model": b"another graph"}, "model_sha256"),
        ({"format": 2}, "format"),
        ({"kind": "regression"}, "kind"),
        ({"name": "other"}, "name"),
        ({"licence": None}, "licence"),
        ({"description": 7}, "description"),
        ({"kind": "sentiment"}, "tokenizer.json"),
    ],
)
def test_bundle_that_breaks_the_contract_is_refused_by_field(
    tmp_path: Path, changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(BundleError) as refused:
        read_bundle(write_bundle(tmp_path / "tiny", **changes))
    assert refused.value.param == field
    assert "tiny" in refused.value.message


@pytest.mark.parametrize("text", [b"{", b"[]", b"\xff\xfe"])
def test_bundle_card_that_is_no_object_is_refused(tmp_path: Path, text: bytes) -> None:
    folder = write_bundle(tmp_path / "tiny")
    (folder / "card.json").write_bytes(text)
    with pytest.raises(BundleError, match=r"tiny/card\.json is not"):
        read_bundle(folder)


def test_bundle_without_a_graph_is_refused(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "tiny")
    (folder / "model.onnx").unlink()
    with pytest.raises(BundleError, match=r"tiny/model\.onnx cannot be read"):
        read_bundle(folder)


def test_bundle_version_changes_with_any_of_its_files(tmp_path: Path) -> None:
    first = read_bundle(write_bundle(tmp_path / "a" / "tiny"))
    same = read_bundle(write_bundle(tmp_path / "b" / "tiny"))
    other = read_bundle(write_bundle(tmp_path / "c" / "tiny", description="something else"))
    assert first.version == same.version
    assert first.version != other.version


def test_list_bundles_skips_what_is_hidden_or_still_being_written(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b")
    write_bundle(tmp_path / "a")
    write_bundle(tmp_path / ".new")
    (tmp_path / "half").mkdir()
    assert [folder.name for folder in list_bundles(tmp_path)] == ["a", "b"]
