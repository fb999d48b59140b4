"""Fuzzing led by coverage: atheris keeps and wounds again what reaches new lines of our readers.

    python -m tests.fuzz.guided --runs 10000     every target, each in a process of its own

The targets and what must hold of them are those of targets.py. What it needs is installed apart on first use;
where there is no atheris for this machine it says so and ends with 0.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.environments import ROOT, fetched

LONGEST = 4096
SEEDS = 40
FEWER = {"text to explanation": 10}  # an inference each: so many times fewer runs


@dataclass(frozen=True)
class Guided:
    """What became of one target."""

    target: str
    runs: int
    accepted: int
    failure: str


def fuzz_all(runs: int) -> Iterator[Guided]:
    """Every target that reads bytes or text."""
    from tests.fuzz.targets import TARGETS

    for target in TARGETS:
        if target.name != "answer to json":  # it writes, and its input is no bytes
            yield _elsewhere(target.name, runs // FEWER.get(target.name, 1))


def _elsewhere(name: str, runs: int) -> Guided:
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "tests.fuzz.guided",
        "--target",
        name,
        "--runs",
        str(runs),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    told = [line for line in done.stdout.splitlines() if line.startswith('{"runs"')]
    counts = json.loads(told[-1]) if told else {"runs": 0, "accepted": 0}
    failure = (
        "" if done.returncode == 0 and counts["runs"] >= runs else done.stderr[-3000:] or "it ended early"
    )
    return Guided(name, counts["runs"], counts["accepted"], failure)


def fuzz(name: str, runs: int) -> None:
    """One target in this process, which ends with it."""
    if refused := fetched("fuzz", room="tests"):
        sys.exit(refused)
    import atheris

    with atheris.instrument_imports(include=["service"]):
        from tests.fuzz.targets import TARGETS
    [target] = [each for each in TARGETS if each.name == name]
    text = name == "text to explanation"
    counts = {"runs": 0, "accepted": 0}

    def check(data: bytes) -> None:
        counts["runs"] += 1
        counts["accepted"] += target.check(data.decode(errors="surrogateescape") if text else data)
        if counts["runs"] == runs:
            print(json.dumps(counts), flush=True)

    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(_seeds(target)):
            (Path(corpus) / str(number)).write_bytes(seed)
        flags = [f"-runs={runs}", "-seed=1", f"-max_len={LONGEST}", f"-artifact_prefix={corpus}/"]
        atheris.Setup([sys.argv[0], corpus, *flags], check)
        atheris.Fuzz()


def _seeds(target: object) -> list[bytes]:
    """Inputs as hypothesis draws them."""
    from tests.fuzz.runner import run
    from tests.fuzz.targets import Target

    assert isinstance(target, Target)
    drawn: list[bytes] = []

    def keep(case: bytes | str) -> bool:
        drawn.append(case.encode(errors="replace") if isinstance(case, str) else case)
        return True

    run(replace(target, check=keep, mutants=0), SEEDS, {"accepted": 0, "refused": 0}, repeatable=True)
    return drawn


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000, help="of each target")
    parser.add_argument("--target", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.target:
        fuzz(arguments.target, arguments.runs)
    if refused := fetched("fuzz", room="tests"):
        print(f"no atheris here: {refused}")
        return 0
    failed = 0
    for found in fuzz_all(arguments.runs):
        failed += bool(found.failure)
        print(
            f"{found.target:20} {found.runs:8} runs {found.accepted:8} accepted  {found.failure or 'ok'}",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
