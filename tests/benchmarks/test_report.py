"""The report says what the results say, and where we lose above all."""

from datetime import timedelta
from pathlib import Path

from paths import ROOT

from benchmarks.record import Record, command, read_results
from benchmarks.report import BLOCK, digests, page, with_figures


def report(tmp_path: Path, *records: Record, reader: str = "other") -> str:
    for record in records:
        record.write(tmp_path)
    return page(read_results(tmp_path), {"reader": reader})


def test_report_lists_every_case_we_lose_and_by_how_much(tmp_path: Path) -> None:
    record = Record("texts", "Texts")
    speed = record.table("speed", "Documents a second", unit="1/s", better="higher", floors=["memcpy"])
    for words, ours, peer in ((10, 100.0, 200.0), (100, 100.0, 50.0), (1000, 100.0, 104.0)):
        speed.add("ours", {"words": words}, [ours])
        speed.add("peer", {"words": words}, [peer])
        speed.add("memcpy", {"words": words}, [9e9])
    speed.add("best", {"words": 10}, [300.0])
    lost = report(tmp_path, record).split("\n## ")[1]
    assert lost.index("| words 10 | 100 | peer: 200 | 2.00 x |") < lost.index("best: 300 | 3.00 x |")
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
    assert "In no case that is compared" in text
    assert "`make bench`, or `" in text.split("## Clouds")[1]
    assert "| d 2 | 0.2 (0.1 to 0.4) | 0.8 | out of memory | 4.00 x |" in text


def test_chapter_that_no_make_target_measures_names_its_command_alone(tmp_path: Path) -> None:
    record = Record("gpu-cuda", "On a card")
    record.table("texts", "Passages read", unit="passages/s", better="higher").add("ours", {}, [1.0])
    assert report(tmp_path, record).split("## On a card")[1].startswith(f"\n\n`{command()}` (")


def test_accuracy_is_lost_by_points(tmp_path: Path) -> None:
    record = Record("texts", "Texts")
    right = record.table("accuracy", "Accuracy", unit="%", better="higher")
    for data, peer in (("films", 92.5), ("shops", 90.9)):
        right.add("ours", {"data": data}, [90.0])
        right.add("peer", {"data": data}, [peer])
    lost = report(tmp_path, record).split("\n## ")[1]
    assert "| films | 90 | peer: 92.5 | 2.5 points |" in lost
    assert "shops" not in lost, "below a point"


def test_other_versions_and_weights_are_told_apart_and_compared_with_nothing(tmp_path: Path) -> None:
    old, new = Record("clouds", "Clouds"), Record("texts", "Texts")
    for record in (old, new):
        times = record.table("t", "Time", unit="s", better="lower")
        times.add("ours", {"d": 2}, [2.0])
        times.add("peer", {"d": 2}, [1.0])
    new._began += timedelta(seconds=2)
    old.models, new.models = {"reader": "one"}, {"reader": "other"}
    text = report(tmp_path, old, new)
    lost, texts, clouds = text.split("\n## ")[1:]
    assert "Texts: time" in lost
    assert "Clouds: time" not in lost
    assert "Left out, as they were measured apart: Clouds." in lost
    assert "Measured apart" in clouds
    assert "Measured apart" not in texts
    assert "Left out, as they were measured apart: Texts; Clouds." in report(tmp_path, reader="third")


def test_readme_tells_figures_of_other_weights_apart_and_keeps_titles(tmp_path: Path) -> None:
    record = Record("texts", "Texts")
    speed = record.table("speed", "Texts a second", unit="1/s", better="higher")
    for subject in ("ours", "one", "two", "three", "four"):
        speed.add(subject, {"texts": "short"}, [3.0])
    record.models = {"reader": "one"}
    record.write(tmp_path)
    marks = "<!-- figures: make bench -->\n<!-- end of figures -->"
    for served, told in (("one", False), ("other", True)):
        text = with_figures(marks, read_results(tmp_path), {"reader": served})
        assert "| on one core | short (1/s) |\n|---|---|\n| ours | 3 |" in text
        assert ("Measured apart from the rest" in text) == told


def test_report_lists_missed_targets(tmp_path: Path) -> None:
    record = Record("http", "HTTP")
    for name, better, median in (("share", "higher", 0.8), ("late", "lower", 0.8), ("slow", "lower", 1.0)):
        table = record.table(name, name.title(), unit="", better=better)  # type: ignore[arg-type]
        table.add("ours", {"target": 0.9}, [median])
    lost = report(tmp_path, record).split("\n## ")[1]
    assert "| missed target | target | ours |\n|---|---|---|\n| HTTP: share | 0.9 | 0.8 |" in lost
    assert "| HTTP: slow | 0.9 | 1 |" in lost
    assert "late" not in lost


def test_page_and_readme_say_what_the_results_say() -> None:
    records = read_results()
    assert (ROOT / "docs/benchmarks.md").read_text() == page(records, digests())
    readme = (ROOT / "README.md").read_text()
    assert with_figures(readme, records, digests()) == readme
    assert len(BLOCK.findall(readme)) == 1
