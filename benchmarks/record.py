"""What every benchmark writes: results/NAME.json, the figures beside the machine, versions, command and date.

    record = Record("clouds", "Clouds", packages=["numpy", "onnxruntime"])
    layer = record.table("layer", "One layer of hardmax attention", unit="s", better="lower")
    layer.add("ours", {"n": 10_000, "d": 2}, [0.11, 0.10, 0.12])
    layer.add("KeOps", {"n": 10_000, "d": 2}, [0.90, 0.88, 0.95])
    record.write()

A row is one subject in one case: its median, smallest and largest sample. Rows of one table that share a case
were measured in one run and may be divided by each other; the report does so, and finds by itself where we
lose.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

RESULTS = Path(__file__).parents[1] / "results"
FORMAT = 1

Case = dict[str, str | int | float | bool]


@dataclass(frozen=True)
class Row:
    """One subject in one case. `note` explains what the figure alone would not say ("ran out of memory")."""

    subject: str
    case: Case
    median: float | None
    min: float | None
    max: float | None
    repeats: int
    note: str = ""


@dataclass
class Table:
    """Rows in one unit. `ours` names our subjects, `floors` those that do less work and are no peers."""

    name: str
    title: str
    unit: str
    better: Literal["lower", "higher", "neither"]
    ours: Sequence[str] = ("ours",)
    floors: Sequence[str] = ()
    notes: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def add(self, subject: str, case: Case, samples: Sequence[float], note: str = "") -> Row:
        """The row of these samples; without samples, a row that says by its note why there are none."""
        if not samples and not note:
            raise ValueError(f"{subject} {case}: a row without samples needs a note that says why")
        middle, low, high = (
            (statistics.median(samples), min(samples), max(samples)) if samples else (None, None, None)
        )
        row = Row(subject, case, middle, low, high, len(samples), note)
        self.rows.append(row)
        return row


class Record:
    """One results file in the making."""

    def __init__(self, name: str, title: str, packages: Sequence[str] = ()) -> None:
        self.name = name
        self.title = title
        self.tables: list[Table] = []
        self.notes: list[str] = []
        self.versions = {package: _version(package) for package in ("hardmax", *packages)}
        self._began = datetime.now(UTC)

    def table(
        self,
        name: str,
        title: str,
        *,
        unit: str,
        better: Literal["lower", "higher", "neither"],
        ours: Sequence[str] = ("ours",),
        floors: Sequence[str] = (),
    ) -> Table:
        table = Table(name, title, unit, better, ours, floors)
        self.tables.append(table)
        return table

    def note(self, sentence: str) -> None:
        """A sentence to print with these figures: a method, a doubt, a missed target and its reason."""
        self.notes.append(sentence)

    def write(self, folder: Path = RESULTS) -> Path:
        folder.mkdir(exist_ok=True)
        path = folder / f"{self.name}.json"
        content = {
            "format": FORMAT,
            "name": self.name,
            "title": self.title,
            "command": command(),
            "date": self._began.isoformat(timespec="seconds"),
            "seconds": round((datetime.now(UTC) - self._began).total_seconds(), 1),
            "machine": machine(),
            "versions": dict(sorted(self.versions.items())),
            "notes": self.notes,
            "tables": [asdict(table) for table in self.tables],
        }
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
        return path


def machine() -> dict[str, str | int | float]:
    """What a reader must know of the machine to weigh the figures, and nothing that names it."""
    return {
        "cpu": _cpu_model(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
    }


def peak_mb() -> float:
    """The most memory this process ever held.

    subtle: not ru_maxrss, which a child takes over from the process that started it.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024 / 1e6


def command() -> str:
    """The command as a reader would type it from the root; a file from elsewhere goes by its name alone."""
    _, *arguments = sys.orig_argv
    elsewhere = ("/", "../")
    return " ".join(["python", *(Path(a).name if a.startswith(elsewhere) else a for a in arguments)])


def read_results(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Every results file by name; one of another format is an error, not a guess."""
    records = {}
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text())
        if content.get("format") != FORMAT:
            raise ValueError(f"{path.name}: format {content.get('format')!r}, this report reads {FORMAT}")
        records[content["name"]] = content
    return records


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
