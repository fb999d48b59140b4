"""`python -m tests.fuzz --cases 100000`: send nearly valid input to everything that reads untrusted input.

The cases are divided among the targets of targets.py, and some hundreds go to each operation of the running
service (openapi.py). A failure is printed and the run continues; its exit code is then 1. A run of 100,000
cases or more is recorded in results/fuzz.json.
"""

import argparse
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.record import Record
from tests.fuzz.openapi import fuzz_operations
from tests.fuzz.targets import TARGETS
from tests.support.server import serving
from tests.support.small_models import link_small_models

RECORDED_CASES = 100_000
Result = tuple[str, int, int, str]  # the target, its number of cases, of accepted ones, and the failure


def fuzz_parsers(cases: int) -> Iterator[Result]:
    for target in TARGETS:
        counts, failure = Counter[str](), ""
        try:
            target.run(cases, counts)
        except Exception:
            traceback.print_exc()
            failure = "FAILED"
        yield target.name, counts.total(), counts["accepted"], failure


def fuzz_service(cases: int) -> Iterator[Result]:
    failures: list[str] = []
    limits = {"max_points": 2000, "max_layers": 200, "log_level": "error"}
    with tempfile.TemporaryDirectory() as tmp, serving(link_small_models(Path(tmp)), **limits) as server:
        for label, statuses in fuzz_operations(server.url, cases, failures, repeatable=False):
            yield label, statuses.total(), statuses[200], "; ".join(failures)
            failures.clear()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=RECORDED_CASES)
    cases = parser.parse_args().cases
    record = Record("fuzz", "Fuzzing", ["hypothesis", "schemathesis", "numpy"])
    n_cases = n_failed = 0
    for title, results in (
        ("Parsers and serializers (hypothesis)", fuzz_parsers(-(-cases // len(TARGETS)))),
        ("The running service, from its OpenAPI document (schemathesis)",
         fuzz_service(max(25, cases // 400))),
    ):  # fmt: skip
        table = record.table(title)
        for name, count, accepted, failure in results:
            for subject, figure in {"cases": count, "accepted": accepted, "failures": bool(failure)}.items():
                table.add(subject, {"input": name}, [int(figure)])
            n_cases += count
            n_failed += bool(failure)
            if failure:
                print(f"{name}: {failure}", flush=True)
    total = record.table("Total")
    total.add("cases", {}, [n_cases])
    total.add("with a failure", {}, [n_failed])
    print(f"{n_cases:,} cases; {n_failed} of the parts above have a failure")
    if cases >= RECORDED_CASES:
        record.write()
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
