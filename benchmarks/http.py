"""Texts of 22 words with leaders over HTTP, ours and our peers': one worker on one core.

    python -m benchmarks.http [--quick] [--rounds 5] [--seconds 4]

Subjects take turns in every round; one of them is the same graph in this process, 32 texts at a time, on the
server's core. Before any figure counts, each server's answers are compared with the model's own. Then short
texts are asked while one caller sends reviews of 2,560 words back to back.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.environments import CannotInstall, environment
from benchmarks.load import Clients, Load, ask, drive
from benchmarks.peers.sentiment import Classifier
from benchmarks.record import Record, arguments
from benchmarks.reviews import reviews
from benchmarks.servers import OURS, PEERS, Server, pinned, running, versions

TEXTS = reviews(22, 512)
LONG = reviews(2560, 4)
TOGETHER = 32
CHECKED = 32
CALLERS = 4  # of short texts beside the long ones
MODEL_LIBRARIES = ("onnxruntime", "numpy")
IN_PROCESS = "in process, 32 at a time"


def in_process(model: Classifier, seconds: float, cpus: set[int]) -> float:
    """Texts a second without HTTP."""
    done, at = 0, 0
    with pinned(cpus):
        model.classify(TEXTS[:TOGETHER])
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            done += len(model.classify(TEXTS[at : at + TOGETHER]))
            at = (at + TOGETHER) % len(TEXTS)
        return done / (time.perf_counter() - began)


def check(server: Server, port: int, model: Classifier) -> None:
    """Stops the benchmark unless the server gives the labels and logits the model gives in this process."""
    for text, right in zip(TEXTS[:CHECKED], model.classify(TEXTS[:CHECKED]), strict=True):
        status, answer = ask(port, server.request(text))
        item = server.item(json.loads(answer)) if status == 200 else {}
        if [item.get(name) for name in ("label", "logit")] != [right["label"], right["logit"]] or not item[
            "leaders"
        ]:
            raise RuntimeError(f"{server.name} answers {status} {answer!r} instead of {right}")


@contextmanager
def long_caller(port: int) -> Iterator[None]:
    """One caller that sends long reviews back to back, from another thread."""
    ended = threading.Event()

    def call() -> None:
        clients = Clients(port, [OURS.request(text) for text in LONG], 1)
        while not ended.is_set():
            clients.run(0.2)
        clients.close()

    caller = threading.Thread(target=call)
    caller.start()
    try:
        yield
    finally:
        ended.set()
        caller.join()


def is_present(subject: Server, record: Record) -> bool:
    """Whether the subject's environment is there or can be made; if not, the report will say why."""
    try:
        found = versions(environment(subject.requirements), MODEL_LIBRARIES)
    except CannotInstall as refused:
        record.note(f"{subject.name} was left out: {refused}")
        return False
    if any(record.versions[library] != version for library, version in found.items()):
        raise RuntimeError(f"{subject.name} has other model libraries than ours: {found}")
    if subject.requirements:
        record.versions |= versions(environment(subject.requirements), (subject.requirements,))
    return True


def main() -> None:
    asked = arguments(
        __doc__, rounds=(5, "of every subject"), seconds=(4.0, "of each measurement")
    ).parse_args()
    if asked.quick:
        asked.rounds, asked.seconds = 1, 1.0
    packages = ("fastapi", "uvicorn", *MODEL_LIBRARIES)
    record = Record("http", "The service over HTTP", packages, ["reader", "sentiment"])
    subjects = [subject for subject in (OURS, *PEERS) if is_present(subject, record)]
    cpus = sorted(os.sched_getaffinity(0))
    model = Classifier()
    loads: dict[str, list[Load]] = {}
    alone: list[float] = []
    quiet: list[Load] = []
    busy: list[Load] = []
    with pinned({cpus[-1]}):
        for turn in range(asked.rounds):
            for server in subjects if turn % 2 == 0 else subjects[::-1]:
                with running(server, TEXTS[0], {cpus[0]}) as port:
                    check(server, port, model)
                    requests = [server.request(text) for text in TEXTS]
                    load = drive(port, requests, TOGETHER, asked.seconds, warm_s=asked.seconds / 3)
                    loads.setdefault(server.name, []).append(load)
                    if server is OURS:
                        alone.append(in_process(model, asked.seconds, {cpus[0]}))
                        quiet.append(drive(port, requests, CALLERS, 2 * asked.seconds, warm_s=0.5))
                        with long_caller(port):
                            busy.append(drive(port, requests, CALLERS, 2 * asked.seconds, warm_s=0.5))
    rate = record.table("throughput", "Texts a second", unit="1/s", better="higher", floors=(IN_PROCESS,))
    rate.add(IN_PROCESS, {"connections": TOGETHER}, alone)
    ours = [load.statuses[200] / load.seconds for load in loads[OURS.name]]
    for name, found in loads.items():
        failed = sum(load.broken + len(load.latencies_s) - load.statuses[200] for load in found)
        note = f"{failed} requests not answered 200" if failed else ""
        rate.add(name, {"connections": TOGETHER}, [load.statuses[200] / load.seconds for load in found], note)
    share = record.table(
        "share", "Ours over HTTP, as a share of the same in process", unit="", better="higher"
    )
    share.add("ours", {"target": 0.85}, [a / b for a, b in zip(ours, alone, strict=True)])
    for quantile, title in ((0.5, "Median latency"), (0.99, "99th percentile of latency")):
        table = record.table(f"p{quantile * 100:.0f}", title, unit="ms", better="lower")
        for name, found in loads.items():
            table.add(name, {"connections": TOGETHER}, [load.quantile_ms(quantile) for load in found])
    late = record.table("beside", "99th percentile of short texts, ours", unit="ms", better="neither")
    late.add("ours", {"beside": "nobody else"}, [load.quantile_ms(0.99) for load in quiet])
    late.add("ours", {"beside": "reviews of 2,560 words"}, [load.quantile_ms(0.99) for load in busy])
    times = record.table("times", "How many times later that is", unit="", better="lower")
    pairs = zip(busy, quiet, strict=True)
    times.add("ours", {"target": 3}, [b.quantile_ms(0.99) / q.quantile_ms(0.99) for b, q in pairs])
    record.note(
        f"Texts of 22 words, one a request, with leaders; keep-alive, a closed loop of {TOGETHER} "
        f"connections ({CALLERS} for the last tables); {asked.seconds:g} s a sample. The load has the other "
        "core. All serve the bundled graphs through "
        "the same code, so only the way of serving differs. TEI's way is its queue, written in Python."
    )
    record.keep(quick=asked.quick)


if __name__ == "__main__":
    main()
