"""Results of benchmarks: one file of JSON per program in results/, which report.py turns into a page.

    record = Record("clouds", "Clouds", packages=["numpy"], models=["dynamics"])
    layer = record.table("One layer of hardmax attention", unit="s", better="lower")
    layer.add("ours", {"n": 10_000, "d": 2}, [0.11, 0.10, 0.12])
    layer.add("KeOps", {"n": 10_000, "d": 2}, [], note="ran out of memory")
    record.write()

Rows of one table that share a case were measured in one run, so they can be compared.
"""

import argparse
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, TypeVar

from service import __version__
from service.runtime.bundle import PRETRAINED_DEFAULT, PRETRAINED_ENCODER

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
MODELS = ROOT / "service/pretrained"
PRETRAINED = (PRETRAINED_ENCODER, PRETRAINED_DEFAULT)  # what texts are measured with

Case = dict[str, Any]  # of strings, numbers and booleans
T = TypeVar("T")


def timed(run: Callable[[], T], clock: Callable[[], float] = time.perf_counter) -> tuple[T, float]:
    """Return the result of a run and its seconds."""
    start_s = clock()
    result = run()
    return result, clock() - start_s


def run_times(run: Callable[[], object], repeats: int, budget_s: float = math.inf) -> list[float]:
    """Return the seconds of each run, after one that warms up: of `repeats`, or of fewer within the budget.

    If the first run alone takes the whole budget, it is the only one, and its seconds are returned.
    """
    warm_s = timed(run)[1]
    samples: list[float] = []
    while len(samples) < repeats and warm_s + sum(samples) + max(samples, default=warm_s) <= budget_s:
        samples.append(timed(run)[1])
    return samples or [warm_s]


def rate(run: Callable[[], int], seconds: float) -> float:
    """Return what the runs count, per second: as many runs as begin within `seconds`."""
    count, elapsed_s = 0, 0.0
    while elapsed_s < seconds:
        counted, took_s = timed(run)
        count, elapsed_s = count + counted, elapsed_s + took_s
    return count / elapsed_s


def argument_parser(doc: str | None, *, with_data: bool = False, **defaults: Any) -> argparse.ArgumentParser:
    """Return a parser with --quick and an option for each default; `with_data` adds --data and --encoder."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, and keep nothing")
    for name, (value, described) in defaults.items():
        parser.add_argument(f"--{name}", type=type(value), default=value, help=f"{described} (%(default)s)")
    if with_data:
        parser.add_argument("--data", type=Path, required=True)
        parser.add_argument("--encoder", type=Path, required=True, help="all-MiniLM-L6-v2, as published")
    return parser


@dataclass
class Row:
    """One subject in one case. `note` explains the figure or its absence ("ran out of memory")."""

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

    title: str
    unit: str = ""
    better: Literal["lower", "higher", "neither"] = "neither"
    ours: Sequence[str] = ("ours",)
    floors: Sequence[str] = ()
    rows: list[Row] = field(default_factory=list)

    def add(self, subject: str, case: Case, samples: Sequence[float], note: str = "") -> Row:
        """Add the row of these samples; without samples, a row whose note says why there are none."""
        if not samples and not note:
            raise ValueError(f"{subject} {case}: a row without samples needs a note that says why")
        median, minimum, maximum = (
            rounded(measure(samples)) if samples else None for measure in (statistics.median, min, max)
        )
        row = Row(subject, case, median, minimum, maximum, len(samples), note)
        self.rows.append(row)
        print(f"{self.title}: {subject} {case}: {row.median} {self.unit} {note}", file=sys.stderr, flush=True)
        return row


class Record:
    """A results file: tables, and notes on how they were measured."""

    def __init__(
        self, name: str, title: str, packages: Sequence[str] = (), models: Sequence[str] = ()
    ) -> None:
        self.name = name
        self.title = title
        self.tables: list[Table] = []
        self.notes: list[str] = []
        self.versions = {
            "hardmax": __version__,
            **{package: package_version(package) for package in packages},
        }
        self.models = {model: digest(model) for model in models}
        self._start = datetime.now(UTC)

    def table(self, title: str, **options: Any) -> Table:
        """Add a table; the options are those of `Table`."""
        self.tables.append(Table(title, **options))
        return self.tables[-1]

    def note(self, sentence: str) -> None:
        """Add a sentence to print with the figures: a method, a doubt, a peer that could not be installed."""
        self.notes.append(sentence)

    def write(self, folder: Path = RESULTS, *, quick: bool = False) -> None:
        """Write the file and print its path, unless the run is a quick one."""
        document = {
            "name": self.name, "title": self.title, "command": command(),
            "date": self._start.isoformat(timespec="seconds"),
            "seconds": round((datetime.now(UTC) - self._start).total_seconds()),
            "machine": machine(), "versions": dict(sorted(self.versions.items())), "models": self.models,
            "notes": self.notes, "tables": [asdict(table) for table in self.tables],
        }  # fmt: skip
        text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1) + "\n"
        if not quick:
            folder.mkdir(exist_ok=True)
            path = folder / f"{self.name}.json"
            path.write_text(text)
            print(path)


def rounded(value: float) -> float | None:
    """Return four significant digits; None if it is not finite, as is the quantile of no samples."""
    if not math.isfinite(value):
        return None
    return float(f"{value:.4g}") if abs(value) < 1000 else float(round(value))


def machine() -> str:
    """Describe the hardware and the system, without the name of the machine."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    system = f"{platform.system()} {platform.release().split('-')[0]}"
    return f"{cpu_model()}, {cpus} CPUs, {gigabytes:.0f} GB, {system}, Python {platform.python_version()}"


def cpu_model() -> str:
    """Return the name of the CPU where the system has one, and whether it multiplies int8 at full speed."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    values = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    name = values.get("model name", platform.machine())
    if "flags" not in values:  # not x86
        return name
    return f"{name} with VNNI" if "vnni" in values["flags"] else f"{name} without VNNI"


def command() -> str:
    """Return the command as typed from the root; of paths outside of it only the name."""
    _, *arguments = sys.orig_argv
    return " ".join(["python", *(Path(a).name if a.startswith(("/", "../")) else a for a in arguments)])


def digest(model: str) -> str:
    """Return the first digits of the digest of a pretrained model's weights."""
    return str(json.loads((MODELS / model / "card.json").read_text())["model_sha256"][:12])


def package_version(package: str) -> str:
    """Return the version of a package, or that it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
