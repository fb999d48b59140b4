"""`python -m tests.fuzz --cases 100000`: everything that reads what strangers send, asked the nearly right.

So many cases are shared among the targets of targets.py, and some hundreds go to each operation of the
running service (document.py). A failure is printed, the run goes on with the others and ends with 1. A run of
100,000 cases or more is kept in results/fuzz.json.
"""

import argparse
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.record import Record
from tests.fuzz.document import ask_operations
from tests.fuzz.targets import TARGETS
from tests.support.server import serving
from tests.support.small import link_small

KEPT = 100_000


Part = tuple[str, int, int, str]  # what was asked, how often, how often it was accepted, and what failed


def ask_readers(cases: int) -> Iterator[Part]:
    for target in TARGETS:
        counts, failure = Counter[str](), ""
        try:
            target.run(cases, counts)
        except Exception:
            traceback.print_exc()
            failure = "FAILED"
        yield target.name, counts.total(), counts["accepted"], failure


def ask_service(cases: int) -> Iterator[Part]:
    failures: list[str] = []
    limits = {"max_points": 2000, "max_layers": 200, "log_level": "error"}
    with tempfile.TemporaryDirectory() as folder, serving(link_small(Path(folder)), **limits) as server:
        for label, statuses in ask_operations(server.url, cases, failures, repeatable=False):
            yield label, statuses.total(), statuses[200], "; ".join(failures)
            failures.clear()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=KEPT)
    cases = parser.parse_args().cases
    record = Record("fuzz", "Fuzzing", ["hypothesis", "schemathesis", "numpy"])
    asked = failed = 0
    for title, parts in (
        ("Parsers and serializers (hypothesis)", ask_readers(-(-cases // len(TARGETS)))),
        ("The running service, from its OpenAPI document (schemathesis)",
         ask_service(max(25, cases // 400))),
    ):  # fmt: skip
        table = record.table(title)
        for part, count, accepted, failure in parts:
            for subject, figure in {"cases": count, "accepted": accepted, "failures": bool(failure)}.items():
                table.add(subject, {"input": part}, [int(figure)])
            asked += count
            failed += bool(failure)
            if failure:
                print(f"{part}: {failure}", flush=True)
    total = record.table("Total")
    total.add("cases", {}, [asked])
    total.add("with a failure", {}, [failed])
    print(f"{asked:,} cases; {failed} of the parts above have a failure")
    if cases >= KEPT:
        record.write()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
