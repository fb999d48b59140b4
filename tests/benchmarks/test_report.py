"""The report says what the results say, and where we lose above all."""

from __future__ import annotations

from pathlib import Path

from benchmarks.record import Record
from benchmarks.report import write


def report(tmp_path: Path, record: Record) -> str:
    results, docs = tmp_path / "results", tmp_path / "docs"
    docs.mkdir()
    record.write(results)
    return write(results, docs).read_text()


def test_report_lists_every_case_we_lose_and_by_how_much(tmp_path: Path) -> None:
    record = Record("texts", "Texts")
    speed = record.table("speed", "Documents a second", unit="1/s", better="higher", floors=["memcpy"])
    for words, ours, peer in ((10, 100.0, 200.0), (100, 100.0, 50.0), (1000, 100.0, 104.0)):
        speed.add("ours", {"words": words}, [ours])
        speed.add("peer", {"words": words}, [peer])
        speed.add("memcpy", {"words": words}, [9e9])
    lost = report(tmp_path, record).split("## Where we lose")[1].split("## Texts")[0]
    assert "| words 10 | 100 | peer: 200 | 2.00 x |" in lost
    assert "words 100 " not in lost
    assert "words 1,000" not in lost, "within the noise"
    assert "memcpy" not in lost, "a floor is no peer"


def test_report_knows_that_less_time_is_better(tmp_path: Path) -> None:
    record = Record("clouds", "Clouds")
    times = record.table("layer", "One layer", unit="s", better="lower")
    times.add("ours", {"d": 2}, [0.1, 0.2, 0.4])
    times.add("peer", {"d": 2}, [0.8])
    times.add("other", {"d": 2}, [], note="out of memory")
    text = report(tmp_path, record)
    assert "In no case of the tables below" in text
    assert "`make bench`: `" in text.split("## Clouds")[1]
    assert "| d 2 | 0.2 (0.1 to 0.4) | 0.8 | out of memory | 4.00 x |" in text


def test_report_draws_what_varies_and_repeats_itself_to_the_byte(tmp_path: Path) -> None:
    record = Record("scale", "Scale")
    table = record.table("time", "Time a layer", unit="s", better="neither")
    for n in (10, 100, 1000):
        table.add("ours", {"n": n}, [n / 1000, n / 900])
    text = report(tmp_path, record)
    image = tmp_path / "docs" / "images" / "scale-time.svg"
    assert "![Time a layer](images/scale-time.svg)" in text
    before = image.read_bytes()
    write(tmp_path / "results", tmp_path / "docs")
    assert image.read_bytes() == before
    assert before.startswith(b"<?xml")
