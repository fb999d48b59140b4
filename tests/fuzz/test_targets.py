"""A short, repeatable run of the fuzz targets; `make fuzz` runs them for longer."""

import subprocess
import sys
from collections import Counter

import pytest
from paths import ROOT

from tests.fuzz.targets import TARGETS, Target

DRAWS = 30


@pytest.mark.filterwarnings("ignore:Reading `.npy`")  # numpy on headers that it takes for Python 2's
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_parser_accepts_or_refuses_and_never_crashes(target: Target) -> None:
    counts: Counter[str] = Counter()
    cases = DRAWS * (1 + target.mutants)
    target.run(cases, counts, repeatable=True)
    assert counts.total() >= cases
    assert counts["accepted"] > 0, "nothing was accepted: the inputs are too wild to test anything"


@pytest.mark.parametrize("program", ["tests.fuzz", "tests.fuzz.clouds"])
def test_fuzz_programs_start_from_the_root(program: str) -> None:
    result = subprocess.run([sys.executable, "-m", program, "--help"], cwd=ROOT, capture_output=True)
    assert (result.returncode, result.stderr) == (0, b"")
