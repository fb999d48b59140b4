"""Requests a second, ours and our peers': the same model, the same texts of 22 words, one run.

    python -m benchmarks.http                    everything, about half an hour
    python -m benchmarks.http --seconds 2 --rounds 1 --connections 32 --only ours,floor

The load generator has one CPU, a server of one worker the other; a server of two workers shares both with
it. Subjects take turns in every round. Before any figure counts, each subject's answers are compared with the
model's own in this process.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import defaultdict
from dataclasses import dataclass

from benchmarks.environments import CannotInstall, environment
from benchmarks.load import Load, ask, drive
from benchmarks.peers.sentiment import Classifier
from benchmarks.record import Record, Table
from benchmarks.reviews import reviews
from benchmarks.servers import FLOOR, ORDINARY, OURS, PEERS, Server, pinned, running, versions

WORDS = 22
TEXTS = reviews(WORDS, 512)
KINDS = ("leaders", "none")
CHECKED = 32
MODEL_LIBRARIES = ("onnxruntime", "numpy")
MEASURES = (
    ("throughput", "requests a second", "1/s"),
    ("p50", "median latency", "ms"),
    ("p99", "99th percentile of latency", "ms"),
)


@dataclass(frozen=True)
class Plan:
    """What is run: every subject, workers, kind of answer and number of connections, `rounds` times."""

    subjects: tuple[Server, ...]
    workers: tuple[int, ...]
    connections: tuple[int, ...]
    seconds: float
    rounds: int


Key = tuple[str, str, int, int]  # subject, kind of answer, workers, connections


def measure(plan: Plan) -> dict[Key, list[Load]]:
    """All loads of the plan."""
    loads: dict[Key, list[Load]] = defaultdict(list)
    cpus = sorted(os.sched_getaffinity(0))
    with pinned({cpus[-1]}):
        for turn in range(plan.rounds):
            for workers in plan.workers:
                for server in plan.subjects if turn % 2 == 0 else reversed(plan.subjects):
                    mine = {cpus[0]} if workers == 1 else set(cpus)
                    with running(server, workers, TEXTS[0], mine) as port:
                        _visit(server, port, workers, plan, loads)
    return loads


def _visit(server: Server, port: int, workers: int, plan: Plan, loads: dict[Key, list[Load]]) -> None:
    """Everything that is asked of one running server."""
    if server is not FLOOR:
        check(server, port)
    for explain in KINDS:
        requests = [server.request(text, explain) for text in TEXTS]
        for connections in plan.connections:
            load = drive(port, requests, connections, plan.seconds, warm_s=plan.seconds / 3)
            loads[server.name, explain, workers, connections].append(load)
            print(
                f"{server.name:20} {explain:7} workers {workers} {_line(connections, load)}", file=sys.stderr
            )


def _line(connections: int, load: Load) -> str:
    p50, p99 = load.quantile_ms(0.5), load.quantile_ms(0.99)
    counts = f"{dict(load.statuses)}, {load.broken} broken"
    return (
        f"connections {connections:3} {load.per_second:7.0f}/s p50 {p50:7.2f} ms p99 {p99:7.2f} ms {counts}"
    )


def check(server: Server, port: int) -> None:
    """Stops the benchmark unless the server gives the labels and logits the model gives in this process."""
    wanted = Classifier().classify(TEXTS[:CHECKED], "leaders")
    for text, right in zip(TEXTS[:CHECKED], wanted, strict=True):
        for explain in KINDS:
            status, answer = ask(port, server.request(text, explain))
            item = server.item(json.loads(answer)) if status == 200 else {}
            same = item and item["label"] == right["label"] and abs(item["logit"] - right["logit"]) < 1e-4
            if not same or ("leaders" in item) != (explain == "leaders"):
                raise RuntimeError(f"{server.name} answers {status} {answer!r} instead of {right}")


def describe(result: Record, plan: Plan, loads: dict[Key, list[Load]]) -> None:
    """Puts the loads into tables, one a measure and kind of answer, and says what was compared."""
    for peer in plan.subjects:
        if peer.requirements:
            package = peer.requirements
            found = versions(environment(peer.requirements), (package, *MODEL_LIBRARIES))
            result.versions[package] = found.pop(package)
            if any(result.versions[library] != version for library, version in found.items()):
                raise RuntimeError(f"{peer.name} has other model libraries than ours: {found}")
    for explain in KINDS:
        for name, title, unit in MEASURES:
            table = result.table(
                f"{explain}-{name}",
                f'"explain": "{explain}", {title}',
                unit=unit,
                better="higher" if name == "throughput" else "lower",
                floors=("floor",),
            )
            _fill(table, name, explain, loads)
    result.note(
        f"Texts of {WORDS} words, {len(TEXTS)} different ones, one a request, keep-alive, closed loop; "
        f"{plan.seconds:g} s a measurement after a warm-up, {plan.rounds} rounds, subjects in turn."
    )
    result.note(
        "One worker: the server on one CPU, the load on the other. Two workers: both share both CPUs. "
        "FastAPI, our batcher: an ordinary endpoint that answers bytes. FastAPI's hook: bytes in and "
        "out by an APIRoute subclass. Both have our model and batches, no keys, limits, deadlines, "
        "metrics or log. The other FastAPI rows run one inference a request. "
        "The floor is a raw ASGI app on uvicorn: it reads the body and sends bytes of our answer's size."
    )


def _fill(table: Table, measure: str, explain: str, loads: dict[Key, list[Load]]) -> None:
    for (subject, kind, workers, connections), runs in loads.items():
        if kind != explain:
            continue
        failed = sum(
            run.broken + sum(n for status, n in run.statuses.items() if status != 200) for run in runs
        )
        answered = [run for run in runs if run.latencies_s]  # a round without any answer has no latency
        samples = {
            "throughput": [run.statuses[200] / run.seconds for run in runs],
            "p50": [run.quantile_ms(0.5) for run in answered],
            "p99": [run.quantile_ms(0.99) for run in answered],
        }[measure]
        silent = "" if len(answered) == len(runs) else f"{len(runs) - len(answered)} rounds without an answer"
        note = f"{failed} requests not answered 200" if failed else silent
        table.add(subject, {"workers": workers, "connections": connections}, samples, note)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--connections", type=_numbers, default=(1, 32, 256))
    parser.add_argument("--workers", type=_numbers, default=(1, 2))
    parser.add_argument("--only", default="", help="names of subjects, separated by commas")
    arguments = parser.parse_args()
    everyone = (OURS, ORDINARY, *PEERS, FLOOR)
    named = [name.strip().lower() for name in arguments.only.split(",") if name.strip()]
    subjects = tuple(s for s in everyone if not named or any(s.name.lower().startswith(n) for n in named))
    result = Record("http", "The service over HTTP", ("fastapi", "uvicorn", "pydantic", *MODEL_LIBRARIES))
    present = tuple(subject for subject in subjects if is_present(subject, result))
    plan = Plan(present, arguments.workers, arguments.connections, arguments.seconds, arguments.rounds)
    describe(result, plan, measure(plan))
    print(result.write())


def is_present(subject: Server, result: Record) -> bool:
    """Whether the subject's environment is there or can be made; if not, the report will say why."""
    try:
        environment(subject.requirements)
    except CannotInstall as refused:
        result.note(f"{subject.name} was left out: {refused}")
        return False
    return True


def _numbers(listed: str) -> tuple[int, ...]:
    return tuple(int(number) for number in listed.split(","))


if __name__ == "__main__":
    main()
