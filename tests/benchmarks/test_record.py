"""The format of benchmark results, with the machine and the versions that were measured."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.record import MODELS, Record, Row, Table


def test_record_keeps_median_and_spread(tmp_path: Path) -> None:
    record = Record("clouds", "Clouds", ["numpy"])
    layer = record.table("One layer", unit="s", better="lower", floors=["memcpy"])
    layer.add("ours", {"n": 1000}, [3.0, 1.0, 2.0, 10.0])
    layer.add("peer", {"n": 1000}, [], note="ran out of memory")
    record.write(tmp_path)

    table = json.loads((tmp_path / "clouds.json").read_text())["tables"][0]
    assert table["rows"] == [
        asdict(Row("ours", {"n": 1000}, 2.5, 1.0, 10.0, 4)),
        asdict(Row("peer", {"n": 1000}, None, None, None, 0, "ran out of memory")),
    ]
    assert table["floors"] == ["memcpy"]


def test_quick_run_writes_no_file(tmp_path: Path) -> None:
    Record("clouds", "Clouds").write(tmp_path, quick=True)
    assert not list(tmp_path.iterdir())


def test_quantile_of_no_samples_is_none() -> None:
    """A soak test without responses ended in an OverflowError before it reported its other figures."""
    row = Table("Late", "ms", "lower").add("ours", {}, [float("inf")])
    assert (row.median, row.min, row.max, row.repeats) == (None, None, None, 1)


def test_record_has_the_machine_versions_and_models(tmp_path: Path) -> None:
    Record("texts", "Texts", ["numpy", "no-such-package"], ["encoder-small"]).write(tmp_path)
    document = json.loads((tmp_path / "texts.json").read_text())
    assert document["versions"]["no-such-package"] == "not installed"
    assert document["versions"]["numpy"][0].isdigit()
    assert document["command"].startswith("python ")
    assert " CPUs, " in document["machine"]
    card = json.loads((MODELS / "encoder-small/card.json").read_text())
    assert document["models"] == {"encoder-small": card["model_sha256"][:12]}


def test_row_without_samples_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="needs a note that says why"):
        Table("T").add("ours", {}, [])
