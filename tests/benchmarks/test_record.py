"""The one format of benchmark results: what is written can be read, and says where it was measured."""

import json
from pathlib import Path

import pytest

from benchmarks.record import MODELS, Record, Row, Table, read_results


def test_record_keeps_median_and_spread(tmp_path: Path) -> None:
    record = Record("clouds", "Clouds", ["numpy"])
    layer = record.table("layer", "One layer", unit="s", better="lower", floors=["memcpy"])
    layer.add("ours", {"n": 1000}, [3.0, 1.0, 2.0, 10.0])
    layer.add("peer", {"n": 1000}, [], note="ran out of memory")
    record.write(tmp_path)

    read = read_results(tmp_path)["clouds"]["tables"][0]
    assert read.rows == [
        Row("ours", {"n": 1000}, 2.5, 1.0, 10.0, 4),
        Row("peer", {"n": 1000}, None, None, None, 0, "ran out of memory"),
    ]
    assert read.floors == ["memcpy"]


def test_quantile_of_nothing_is_kept_as_none() -> None:
    """A siege that answered nobody ended in an OverflowError, before it could say what else it had seen."""
    row = Table("late", "Late", "ms", "lower").add("ours", {}, [float("inf")])
    assert (row.median, row.min, row.max, row.repeats) == (None, None, None, 1)


def test_record_says_where_and_with_what_it_was_measured(tmp_path: Path) -> None:
    path = Record("texts", "Texts", ["numpy", "no-such-package"], ["encoder-small"]).write(tmp_path)
    content = json.loads(path.read_text())
    assert content["versions"]["no-such-package"] == "not installed"
    assert content["versions"]["numpy"][0].isdigit()
    assert content["command"].startswith("python ")
    assert " CPUs, " in content["machine"]
    card = json.loads((MODELS / "encoder-small/card.json").read_text())
    assert content["models"] == {"encoder-small": card["model_sha256"][:12]}


def test_record_refuses_a_row_without_samples_or_reason_and_another_format(tmp_path: Path) -> None:
    table = Record("x", "X").table("t", "T", unit="s", better="lower")
    with pytest.raises(ValueError, match="needs a note that says why"):
        table.add("ours", {}, [])
    (tmp_path / "old.json").write_text('{"format": 0, "name": "old"}')
    with pytest.raises(ValueError, match=r"old\.json: format 0"):
        read_results(tmp_path)
