"""The report renders the results, and lists first where a peer is better."""

from pathlib import Path

from paths import ROOT

from benchmarks.record import Record
from benchmarks.report import read_results, render_page


def render(tmp_path: Path, *records: Record) -> str:
    for record in records:
        record.write(tmp_path)
    return render_page(read_results(tmp_path))


def test_report_lists_every_case_in_which_a_peer_is_better(tmp_path: Path) -> None:
    record = Record("texts", "Texts")
    speed = record.table("Documents", unit="1/s", better="higher", floors=["memcpy"])
    for words, ours, peer in ((10, 100.0, 200.0), (100, 100.0, 50.0), (1000, 100.0, 104.0)):
        speed.add("ours", {"words": words}, [ours])
        speed.add("peer", {"words": words}, [peer])
        speed.add("other", {"words": words}, [1.1 * peer])
        speed.add("memcpy", {"words": words}, [9e9])
    losses = render(tmp_path, record).split("\n## ")[1]
    assert "| Texts: Documents (1/s) | words 10 | 100 | peer: 200; other: 220 |" in losses
    assert "words 100 " not in losses
    assert "| words 1,000 | 100 | other: 114 |" in losses, "the peer is within the noise"
    assert "memcpy" not in losses, "a floor is no peer"


def test_less_time_is_better(tmp_path: Path) -> None:
    record = Record("clouds", "Clouds")
    times = record.table("One layer", unit="s", better="lower")
    times.add("ours", {"d": 2}, [0.1, 0.2, 0.4])
    times.add("peer", {"d": 2}, [0.8])
    times.add("other", {"d": 2}, [], note="out of memory")
    text = render(tmp_path, record)
    assert "No peer was better." in text
    assert "| d 2 | 0.2 (0.1 to 0.4) | 0.8 | out of memory |" in text


def test_report_compares_accuracy_by_points(tmp_path: Path) -> None:
    record = Record("texts", "Texts")
    accuracy = record.table("Accuracy", unit="%", better="higher")
    for data, peer in (("films", 92.5), ("shops", 90.9)):
        accuracy.add("ours", {"data": data}, [90.0])
        accuracy.add("peer", {"data": data}, [peer])
    losses = render(tmp_path, record).split("\n## ")[1]
    assert "| films | 90 | peer: 92.5 |" in losses
    assert "shops" not in losses, "less than a point"


def test_report_lists_missed_targets(tmp_path: Path) -> None:
    record = Record("http", "HTTP")
    for name, better, median in (("Share", "higher", 0.8), ("Late", "lower", 0.8), ("Slow", "lower", 1.0)):
        table = record.table(name, better=better)
        table.add("ours", {"target": 0.9}, [median])
    losses = render(tmp_path, record).split("\n## ")[1]
    assert "| HTTP: Share | missed target | 0.8 | target 0.9 |" in losses
    assert "| HTTP: Slow | missed target | 1 | target 0.9 |" in losses
    assert "Late" not in losses


def test_committed_page_agrees_with_the_committed_results() -> None:
    assert (ROOT / "docs/reference/benchmarks.md").read_text() == render_page(read_results())
