"""Sentences and whole reviews with leaders over HTTP, compared with peers: one worker on one core.

    python -m benchmarks.http [--quick] [--rounds 5] [--seconds 4]

Subjects take turns in every round; one of them is the same graph in this process, 32 texts at a time, on the
server's core. Before it is measured, each server's answers are compared with those of the model. The last
tables are of short texts while one client sends reviews of 2,560 words, or clouds of 100,000 points, back to
back.
"""

import io
import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from benchmarks.environments import CannotInstall, environment
from benchmarks.load import Clients, Load, drive, post, send_request
from benchmarks.peers.sentiment import Classifier
from benchmarks.record import PRETRAINED, Record, argument_parser
from benchmarks.reviews import reviews
from benchmarks.servers import HARDMAX, PEERS, Server, pinned, running, versions

SENTENCES, REVIEWS = "sentences", "whole reviews"
TEXTS = {SENTENCES: reviews(22, 512), REVIEWS: reviews(230, 128)}
DURATION = {SENTENCES: 1, REVIEWS: 3}  # as a multiple of --seconds: 32 reviews take a second
LONG_REVIEWS = reviews(2560, 4)
LONG_TEXTS, CLOUDS = "reviews of 2,560 words", "clouds of 100,000 points"
TARGET_SLOWDOWN = {LONG_TEXTS: 3, CLOUDS: 2}
CONCURRENCY = 32  # connections, or texts per batch in process
CHECKED_TEXTS = 32
SHORT_CONNECTIONS = 4  # next to one with long texts
MODEL_LIBRARIES = ("onnxruntime", "numpy")
IN_PROCESS = f"in process, {CONCURRENCY} at a time"


def measure_in_process(model: Classifier, texts: Sequence[str], seconds: float, cpus: set[int]) -> float:
    """Return the texts per second without HTTP."""
    n_texts, begin = 0, 0
    with pinned(cpus):
        model.classify(texts[:CONCURRENCY])
        start_s = time.perf_counter()
        while time.perf_counter() - start_s < seconds:
            n_texts += len(model.classify(texts[begin : begin + CONCURRENCY]))
            begin = (begin + CONCURRENCY) % len(texts)
        return n_texts / (time.perf_counter() - start_s)


def rate_of(load: Load) -> float:
    return load.statuses[200] / load.seconds


def check_answers(server: Server, port: int, model: Classifier) -> None:
    """Raise an error unless the server returns leaders and the labels and logits of the model."""
    texts = TEXTS[SENTENCES][:CHECKED_TEXTS]
    for text, expected in zip(texts, model.classify(texts), strict=True):
        status, body = send_request(port, server.request(text))
        item = server.item(json.loads(body)) if status == 200 else {}
        agrees = all(item.get(name) == expected[name] for name in ("label", "logit"))
        if not agrees or not item["leaders"]:
            raise RuntimeError(f"{server.name} answers {status} {body!r} instead of {expected}")


@contextmanager
def background(port: int, requests: Sequence[bytes]) -> Iterator[None]:
    """Send requests back to back on one connection, from another thread, until the end of the block."""
    ended = threading.Event()

    def run() -> None:
        clients = Clients(port, requests, 1)
        while not ended.is_set():
            clients.run(0.2)
        clients.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def cloud_request() -> bytes:
    """Return a request for the limits of a Gaussian cloud of 100,000 points in the plane."""
    stream = io.BytesIO()
    np.save(stream, np.random.default_rng(0).standard_normal((100_000, 2)))
    return post("/dynamics", stream.getvalue(), "application/x-npy")


def is_present(subject: Server, record: Record) -> bool:
    """Return whether the subject's environment is or can be installed; if not, note the reason."""
    try:
        installed = versions(environment(subject.requirements), MODEL_LIBRARIES)
    except CannotInstall as error:
        record.note(f"{subject.name} was left out: {error}")
        return False
    if any(record.versions[library] != version for library, version in installed.items()):
        raise RuntimeError(f"{subject.name} has other model libraries than ours: {installed}")
    if subject.requirements:
        record.versions |= versions(environment(subject.requirements), (subject.requirements,))
    return True


@dataclass(frozen=True)
class Samples:
    """Samples of all rounds; the last two are of short texts sent to our server."""

    loads: dict[str, dict[str, list[Load]]]  # by kind of text, then by server
    in_process: dict[str, list[float]]  # texts per second, by kind
    short_alone: list[Load] = field(default_factory=list)
    short_next_to: dict[str, list[Load]] = field(default_factory=dict)  # by what else is sent


def measure(subjects: Sequence[Server], rounds: int, seconds: float) -> Samples:
    cpus = sorted(os.sched_getaffinity(0))
    model = Classifier()
    long_texts, clouds = [HARDMAX.request(text) for text in LONG_REVIEWS], [cloud_request()]
    samples = Samples({kind: {} for kind in TEXTS}, {kind: [] for kind in TEXTS})
    with pinned({cpus[-1]}):
        for turn in range(rounds):
            for server in subjects if turn % 2 == 0 else subjects[::-1]:
                with running(server, TEXTS[SENTENCES][0], {cpus[0]}) as (port, _):
                    check_answers(server, port, model)
                    for kind, texts in TEXTS.items():
                        requests = [server.request(text) for text in texts]
                        duration_s = DURATION[kind] * seconds
                        load = drive(port, requests, CONCURRENCY, duration_s, warm_s=duration_s / 3)
                        samples.loads[kind].setdefault(server.name, []).append(load)
                    if server is HARDMAX:
                        for kind, texts in TEXTS.items():
                            rate = measure_in_process(model, texts, seconds, {cpus[0]})
                            samples.in_process[kind].append(rate)
                        requests = [server.request(text) for text in TEXTS[SENTENCES]]
                        short = (port, requests, SHORT_CONNECTIONS, 2 * seconds, 0.5)
                        samples.short_alone.append(drive(*short))
                        for name, others in {LONG_TEXTS: long_texts, CLOUDS: clouds}.items():
                            with background(port, others):
                                samples.short_next_to.setdefault(name, []).append(drive(*short))
    return samples


def add_rates(record: Record, samples: Samples) -> None:
    rate = record.table("Texts per second", unit="1/s", better="higher", floors=(IN_PROCESS,))
    share = record.table("Throughput over HTTP, as a share of that in process", better="higher")
    for kind, in_process in samples.in_process.items():
        rate.add(IN_PROCESS, {"texts": kind}, in_process)
        for name, loads in samples.loads[kind].items():
            failed = sum(load.broken + len(load.latencies_s) - load.statuses[200] for load in loads)
            note = f"{failed} requests not answered 200" if failed else ""
            rate.add(name, {"texts": kind}, list(map(rate_of, loads)), note)
        rates = map(rate_of, samples.loads[kind][HARDMAX.name])
        shares = [http / floor for http, floor in zip(rates, in_process, strict=True)]
        share.add("ours", {"texts": kind, "target": 0.85}, shares)


def add_latencies(record: Record, samples: Samples) -> None:
    for quantile, title in ((0.5, "Median latency"), (0.99, "99th percentile of latency")):
        table = record.table(title, unit="ms", better="lower")
        for kind, by_server in samples.loads.items():
            for name, loads in by_server.items():
                table.add(name, {"texts": kind}, [load.quantile_ms(quantile) for load in loads])
    alone_ms = [load.quantile_ms(0.99) for load in samples.short_alone]
    table = record.table("99th percentile of short texts, alone and next to other requests", unit="ms")
    table.add("ours", {"next to": "nothing"}, alone_ms)
    slowdown = record.table("Slowdown of short texts next to other requests", better="lower")
    for name, loads in samples.short_next_to.items():
        busy_ms = [load.quantile_ms(0.99) for load in loads]
        table.add("ours", {"next to": name}, busy_ms)
        case = {"next to": name, "target": TARGET_SLOWDOWN[name]}
        slowdown.add("ours", case, [busy / alone for busy, alone in zip(busy_ms, alone_ms, strict=True)])


def main() -> None:
    options = argument_parser(
        __doc__, rounds=(5, "of every subject"), seconds=(4.0, "of each measurement")
    ).parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 1.0
    packages = ("fastapi", "uvicorn", *MODEL_LIBRARIES)
    record = Record("http", "The service over HTTP", packages, PRETRAINED)
    subjects = [subject for subject in (HARDMAX, *PEERS) if is_present(subject, record)]
    samples = measure(subjects, options.rounds, options.seconds)
    add_rates(record, samples)
    add_latencies(record, samples)
    record.note(
        f"Sentences have 22 words, reviews 230: one a request, with leaders; keep-alive, a closed loop of "
        f"{CONCURRENCY} connections ({SHORT_CONNECTIONS} for the last tables); {options.seconds:g} s a "
        f"sample, and {DURATION[REVIEWS] * options.seconds:g} s of reviews. The load has the other core. All "
        "serve the pretrained graphs through the same code, so only the way of serving differs. TEI's way is "
        "its queue, written in Python."
    )
    record.write(quick=options.quick)


if __name__ == "__main__":
    main()
