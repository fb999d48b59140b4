"""Sentences and whole reviews with leaders over HTTP, ours and our peers': one worker on one core.

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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmarks.environments import CannotInstall, environment
from benchmarks.load import Clients, Load, ask, drive
from benchmarks.peers.sentiment import Classifier
from benchmarks.record import PRETRAINED, Record, arguments
from benchmarks.reviews import reviews
from benchmarks.servers import OURS, PEERS, Server, pinned, running, versions

SENTENCES, REVIEWS = "sentences", "whole reviews"
TEXTS = {SENTENCES: reviews(22, 512), REVIEWS: reviews(230, 128)}
LASTS = {SENTENCES: 1, REVIEWS: 3}  # times as long: 32 reviews together take a second
LONG = reviews(2560, 4)
TOGETHER = 32
CHECKED = 32
CALLERS = 4  # of short texts beside the long ones
MODEL_LIBRARIES = ("onnxruntime", "numpy")
IN_PROCESS = f"in process, {TOGETHER} at a time"


def in_process(model: Classifier, texts: Sequence[str], seconds: float, cpus: set[int]) -> float:
    """Texts a second without HTTP."""
    done, at = 0, 0
    with pinned(cpus):
        model.classify(texts[:TOGETHER])
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            done += len(model.classify(texts[at : at + TOGETHER]))
            at = (at + TOGETHER) % len(texts)
        return done / (time.perf_counter() - began)


def rate_of(load: Load) -> float:
    return load.statuses[200] / load.seconds


def check(server: Server, port: int, model: Classifier) -> None:
    """Stops the benchmark unless the server gives the labels and logits the model gives in this process."""
    texts = TEXTS[SENTENCES][:CHECKED]
    for text, right in zip(texts, model.classify(texts), strict=True):
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


@dataclass(frozen=True)
class Measured:
    """Samples of all rounds."""

    loads: dict[str, dict[str, list[Load]]]  # by kind of text, then by server
    alone: dict[str, list[float]]  # texts a second in this process, by kind
    quiet: list[Load] = field(default_factory=list)  # ours, short texts and nobody else
    busy: list[Load] = field(default_factory=list)  # beside long ones


def measure(subjects: Sequence[Server], rounds: int, seconds: float) -> Measured:
    cpus = sorted(os.sched_getaffinity(0))
    model = Classifier()
    found = Measured({kind: {} for kind in TEXTS}, {kind: [] for kind in TEXTS})
    with pinned({cpus[-1]}):
        for turn in range(rounds):
            for server in subjects if turn % 2 == 0 else subjects[::-1]:
                with running(server, TEXTS[SENTENCES][0], {cpus[0]}) as port:
                    check(server, port, model)
                    for kind, texts in TEXTS.items():
                        requests = [server.request(text) for text in texts]
                        lasts = LASTS[kind] * seconds
                        load = drive(port, requests, TOGETHER, lasts, warm_s=lasts / 3)
                        found.loads[kind].setdefault(server.name, []).append(load)
                    if server is OURS:
                        for kind, texts in TEXTS.items():
                            found.alone[kind].append(in_process(model, texts, seconds, {cpus[0]}))
                        short = [OURS.request(text) for text in TEXTS[SENTENCES]], CALLERS, 2 * seconds
                        found.quiet.append(drive(port, *short, warm_s=0.5))
                        with long_caller(port):
                            found.busy.append(drive(port, *short, warm_s=0.5))
    return found


def tell_rates(record: Record, found: Measured) -> None:
    rate = record.table("Texts per second", unit="1/s", better="higher", floors=(IN_PROCESS,))
    share = record.table("Throughput over HTTP, as a share of that in process", better="higher")
    for kind, alone in found.alone.items():
        rate.add(IN_PROCESS, {"texts": kind}, alone)
        for name, loads in found.loads[kind].items():
            failed = sum(load.broken + len(load.latencies_s) - load.statuses[200] for load in loads)
            note = f"{failed} requests not answered 200" if failed else ""
            rate.add(name, {"texts": kind}, list(map(rate_of, loads)), note)
        ours = zip(map(rate_of, found.loads[kind][OURS.name]), alone, strict=True)
        share.add("ours", {"texts": kind, "target": 0.85}, [over / floor for over, floor in ours])


def tell_latencies(record: Record, found: Measured) -> None:
    for quantile, title in ((0.5, "Median latency"), (0.99, "99th percentile of latency")):
        table = record.table(title, unit="ms", better="lower")
        for kind, by_server in found.loads.items():
            for name, loads in by_server.items():
                table.add(name, {"texts": kind}, [load.quantile_ms(quantile) for load in loads])
    quiet, busy = ([load.quantile_ms(0.99) for load in loads] for loads in (found.quiet, found.busy))
    late = record.table("99th percentile of short texts, alone and next to long ones", unit="ms")
    late.add("ours", {"beside": "nobody else"}, quiet)
    late.add("ours", {"beside": "reviews of 2,560 words"}, busy)
    times = record.table("Slowdown of short texts next to long ones", better="lower")
    times.add("ours", {"target": 3}, [b / q for b, q in zip(busy, quiet, strict=True)])


def main() -> None:
    options = arguments(
        __doc__, rounds=(5, "of every subject"), seconds=(4.0, "of each measurement")
    ).parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 1.0
    packages = ("fastapi", "uvicorn", *MODEL_LIBRARIES)
    record = Record("http", "The service over HTTP", packages, PRETRAINED)
    found = measure(
        [subject for subject in (OURS, *PEERS) if is_present(subject, record)],
        options.rounds,
        options.seconds,
    )
    tell_rates(record, found)
    tell_latencies(record, found)
    record.note(
        f"Sentences have 22 words, reviews 230: one a request, with leaders; keep-alive, a closed loop of "
        f"{TOGETHER} connections ({CALLERS} for the last tables); {options.seconds:g} s a sample, and "
        f"{LASTS[REVIEWS] * options.seconds:g} s of reviews. The load has the other core. All serve the "
        "pretrained graphs through the same code, so only the way of serving differs. TEI's way is its "
        "queue, written in Python."
    )
    record.write(quick=options.quick)


if __name__ == "__main__":
    main()
