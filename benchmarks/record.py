"""What every benchmark writes: results/NAME.json, the figures beside the machine, versions, command and date.

    record = Record("clouds", "Clouds", packages=["numpy"], models=["dynamics"])
    layer = record.table("layer", "One layer of hardmax attention", unit="s", better="lower")
    layer.add("ours", {"n": 10_000, "d": 2}, [0.11, 0.10, 0.12])
    layer.add("KeOps", {"n": 10_000, "d": 2}, [0.90, 0.88, 0.95])
    record.write()

A row is one subject in one case: its median, smallest and largest sample, and how many there were. Rows of
one table that share a case were measured in one run and may be divided by each other; the report does so, and
finds by itself where we lose.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from service import __version__
from service.runtime.bundle import PRETRAINED_DEFAULT, PRETRAINED_ENCODER

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
QUICK = Path(tempfile.gettempdir()) / "hardmax-quick"  # results of runs that only try the programs
MODELS = ROOT / "service/pretrained"
PRETRAINED = (PRETRAINED_ENCODER, PRETRAINED_DEFAULT)  # what texts are measured with
FORMAT = 3

Case = dict[str, Any]  # of words, numbers and truths


def arguments(doc: str | None, *, learns: bool = False, **defaults: Any) -> argparse.ArgumentParser:
    """A command line with --quick: sizes so small that it only shows whether the program runs. What `learns`
    is told where the data sets and the published encoder are.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"tiny sizes; writes to {QUICK.name} in /tmp")
    for name, (value, told) in defaults.items():
        parser.add_argument(f"--{name}", type=type(value), default=value, help=f"{told} (%(default)s)")
    if learns:
        parser.add_argument("--data", type=Path, required=True)
        parser.add_argument("--encoder", type=Path, required=True, help="all-MiniLM-L6-v2, as published")
    return parser


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
    rows: list[Row] = field(default_factory=list)

    def add(self, subject: str, case: Case, samples: Sequence[float], note: str = "") -> Row:
        """The row of these samples; without samples, a row that says by its note why there are none."""
        if not samples and not note:
            raise ValueError(f"{subject} {case}: a row without samples needs a note that says why")
        found = (statistics.median(samples), min(samples), max(samples)) if samples else (None, None, None)
        median, least, most = map(_short, found)
        row = Row(subject, case, median, least, most, len(samples), note)
        self.rows.append(row)
        where = ", ".join(f"{name} {value}" for name, value in case.items())
        print(
            f"{self.title}: {subject} ({where}): {row.median} {self.unit} {note}", file=sys.stderr, flush=True
        )
        return row


class Record:
    """One results file in the making."""

    def __init__(
        self, name: str, title: str, packages: Sequence[str] = (), models: Sequence[str] = ()
    ) -> None:
        self.name = name
        self.title = title
        self.tables: list[Table] = []
        self.notes: list[str] = []
        self.versions = {"hardmax": __version__, **{package: _version(package) for package in packages}}
        self.models = {model: digest(MODELS / model / "card.json") for model in models}
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

    def keep(self, *, quick: bool) -> None:
        """Write it where it belongs, and say where."""
        print(self.write(QUICK if quick else RESULTS))

    def write(self, folder: Path = RESULTS) -> Path:
        folder.mkdir(exist_ok=True)
        path = folder / f"{self.name}.json"
        about = {
            "format": FORMAT, "name": self.name, "title": self.title, "command": command(),
            "date": self._began.isoformat(timespec="seconds"),
            "seconds": round((datetime.now(UTC) - self._began).total_seconds()),
            "machine": machine(), "versions": dict(sorted(self.versions.items())), "models": self.models,
            "notes": self.notes,
        }  # fmt: skip
        document = {**about, "tables": [asdict(table) for table in self.tables]}
        path.write_text(json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1) + "\n")
        return path


def machine() -> str:
    """What a reader must know of the machine to weigh the figures, and nothing that names it."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    system = f"{platform.system()} {platform.release().split('-')[0]}"
    return f"{_cpu_model()}, {cpus} CPUs, {gigabytes:.0f} GB, {system}, Python {platform.python_version()}"


def command() -> str:
    """The command as a reader would type it from the root; a file from elsewhere goes by its name alone."""
    _, *arguments = sys.orig_argv
    elsewhere = ("/", "../")
    return " ".join(["python", *(Path(a).name if a.startswith(elsewhere) else a for a in arguments)])


def read_results(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Every results file by name, its rows as `Row`; one of another format is an error, not a guess."""
    records = {}
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text())
        if content.get("format") != FORMAT:
            raise ValueError(f"{path.name}: format {content.get('format')!r}, this report reads {FORMAT}")
        for table in content["tables"]:
            table["rows"] = [Row(**row) for row in table["rows"]]
        content["tables"] = [Table(**table) for table in content["tables"]]
        records[content["name"]] = content
    return records


def _short(value: float | None) -> float | None:
    """Four digits that count; None for what is not finite, such as the quantile of nothing."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.4g}") if abs(value) < 1000 else float(round(value))


def digest(card: Path) -> str:
    """Which weights: the beginning of their digest, as the card has it."""
    return str(json.loads(card.read_text())["model_sha256"][:12])


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
