"""`python -m tests.fuzz --cases 100000`: so many cases shared among all targets, counted.

A failure is printed by hypothesis with the smallest input that shows it; the run goes on with the others
and ends with 1.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.fuzz.runner import run
from tests.fuzz.targets import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000)
    arguments = parser.parse_args()
    share = -(-arguments.cases // len(TARGETS))
    total = failures = 0
    for target in TARGETS:
        began = time.perf_counter()
        counts = {"accepted": 0, "refused": 0}
        try:
            run(target, share, counts)
            verdict = "ok"
        except Exception:
            traceback.print_exc()
            verdict, failures = "FAILED", failures + 1
        cases = sum(counts.values())
        total += cases
        seconds = time.perf_counter() - began
        print(
            f"{target.name:20} {cases:8} cases {counts['accepted']:8} accepted {seconds:7.1f} s  {verdict}",
            flush=True,
        )
    print(f"{'all':20} {total:8} cases, {failures} targets failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
