"""`python -m tests.fuzz --cases 100000`: everything that reads what strangers send, asked the nearly right.

So many cases are shared among the targets of targets.py, and some hundreds go to each operation of the
running service (document.py). A failure is printed, the run goes on with the others and ends with 1. A run of
100,000 cases or more is kept in results/fuzz.json.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter

from benchmarks.record import Record, Table
from tests.fuzz.document import ask_operations
from tests.fuzz.targets import TARGETS
from tests.support.server import serving

KEPT = 100_000


class Count:
    """Cases and failures of all parts, as they are printed and recorded."""

    def __init__(self) -> None:
        self.cases = 0
        self.failed = 0

    def add(self, table: Table, name: str, cases: int, accepted: int, failure: str, began: float) -> None:
        self.cases += cases
        self.failed += bool(failure)
        for subject, figure in {"cases": cases, "accepted": accepted, "failures": bool(failure)}.items():
            table.add(subject, {"input": name}, [int(figure)])
        seconds, outcome = time.perf_counter() - began, failure or "ok"
        print(f"{name:48} {cases:8} cases {accepted:8} accepted {seconds:7.1f} s  {outcome}", flush=True)


def fuzz_readers(table: Table, count: Count, share: int) -> None:
    for target in TARGETS:
        began, counts, failure = time.perf_counter(), Counter[str](), ""
        try:
            target.run(share, counts)
        except Exception:
            traceback.print_exc()
            failure = "FAILED"
        count.add(table, target.name, counts.total(), counts["accepted"], failure, began)


def fuzz_service(table: Table, count: Count, cases: int) -> None:
    failures: list[str] = []
    with serving(max_points=2000, max_layers=200, log_level="error") as server:
        began = time.perf_counter()
        for label, statuses in ask_operations(server.url, cases, failures, repeatable=False):
            count.add(table, label, statuses.total(), statuses[200], "; ".join(failures), began)
            failures.clear()
            began = time.perf_counter()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=KEPT)
    cases = parser.parse_args().cases
    record = Record("fuzz", "Fuzzing", ["hypothesis", "schemathesis", "numpy"])
    count = Count()
    readers = record.table("readers", "Readers and writers, by hypothesis", unit="", better="neither")
    title = "The running service, from its own document (schemathesis)"
    service = record.table("service", title, unit="", better="neither")
    fuzz_readers(readers, count, -(-cases // len(TARGETS)))
    fuzz_service(service, count, max(25, cases // 400))
    total = record.table("total", "All", unit="", better="neither")
    total.add("cases", {}, [count.cases])
    total.add("with a failure", {}, [count.failed])
    print(f"{count.cases:,} cases; {count.failed} of the parts above have a failure")
    if cases >= KEPT:
        print(record.write())
    return 1 if count.failed else 0


if __name__ == "__main__":
    sys.exit(main())
