"""Sentences and whole reviews with leaders over HTTP, compared with TEI's way: one worker on one core.

    python -m benchmarks.load [--quick] [--rounds 5] [--seconds 4]

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
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from itertools import cycle

import numpy as np

from benchmarks.models import served
from benchmarks.record import PRETRAINED, Record, argument_parser, rate, timed
from benchmarks.reviews import reviews
from benchmarks.servers import HARDMAX, NPY, TEI, Request, Server, pinned, running
from model_export.measure.served import ServedModel

SENTENCES, REVIEWS = "sentences", "whole reviews"
TEXTS = {SENTENCES: reviews(22, 512), REVIEWS: reviews(230, 128)}
DURATION = {SENTENCES: 1, REVIEWS: 3}  # as a multiple of --seconds: 32 reviews take a second
ALONE, LONG_TEXTS, CLOUDS = "nothing", "reviews of 2,560 words", "clouds of 100,000 points"
TARGET_SLOWDOWN = {LONG_TEXTS: 3, CLOUDS: 2}
TARGET_SHARE = 0.85  # of the throughput in process
CONCURRENCY = 32  # connections, or texts per batch in process
CHECKED_TEXTS = 32
SHORT_CONNECTIONS = 4  # next to one with long texts
IN_PROCESS = f"in process, {CONCURRENCY} at a time"

Rates = dict[str, list[float]]  # texts per second in process, by kind


@dataclass
class Load:
    """The responses that clients received within some seconds."""

    seconds: float
    latencies_s: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    broken: int = 0

    def quantile_ms(self, share: float) -> float:
        """Return the quantile `share` of the latencies; infinity without responses."""
        ranked = sorted(self.latencies_s)
        return ranked[min(len(ranked) - 1, int(share * len(ranked)))] * 1e3 if ranked else float("inf")


Loads = dict[tuple[str, str], list[Load]]  # by kind of text and server


@contextmanager
def clients(port: int, requests: Sequence[Request], connections: int, load: Load) -> Iterator[None]:
    """Send requests back to back on each connection until the end of the block (a closed loop).

    A thread for each connection: a request costs it some tenths of a millisecond, and a text costs the server
    many. Responses that are still on their way at the end of the block are not counted.
    """
    ended, shared = threading.Event(), cycle(requests)

    def run() -> None:
        with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            while not ended.is_set():
                request = next(shared)
                try:
                    (status, _), seconds = timed(lambda: request.send(connection))  # noqa: B023
                except (OSError, HTTPException):
                    load.broken += 1
                    connection.close()  # the next request opens it again
                    continue
                if not ended.is_set():
                    load.latencies_s.append(seconds)
                    load.statuses[status] += 1

    threads = [threading.Thread(target=run) for _ in range(connections)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def drive(
    port: int, requests: Sequence[Request], connections: int, seconds: float, warm_s: float = 0.0
) -> Load:
    """Run clients for `seconds` after a warm-up, and return the load after it."""
    load = Load(seconds)
    with clients(port, requests, connections, load):
        time.sleep(warm_s)
        load.latencies_s, load.statuses, load.broken = [], Counter(), 0
        time.sleep(seconds)
    return load


def check_answers(server: Server, port: int, model: ServedModel) -> None:
    """Raise an error unless the server returns leaders and the labels and logits of the model."""
    texts = TEXTS[SENTENCES][:CHECKED_TEXTS]
    with closing(HTTPConnection("127.0.0.1", port)) as connection:
        for text, expected in zip(texts, model.classify(texts), strict=True):
            status, body = server.request(text).send(connection)
            item = server.item(json.loads(body)) if status == 200 else {}
            agrees = all(item.get(name) == expected[name] for name in ("label", "logit"))
            if not agrees or not item["leaders"]:
                raise RuntimeError(f"{server.name} answers {status} {body!r} instead of {expected}")


def measure_in_process(model: ServedModel, texts: Sequence[str], seconds: float, cpus: set[int]) -> float:
    """Return the texts per second without HTTP."""
    batches = cycle([texts[i : i + CONCURRENCY] for i in range(0, len(texts), CONCURRENCY)])
    with pinned(cpus):
        model.classify(texts[:CONCURRENCY])
        return rate(lambda: len(model.classify(next(batches))), seconds)


def cloud_request(n: int, d: int) -> Request:
    """Return a request for the limits of a Gaussian cloud."""
    stream = io.BytesIO()
    np.save(stream, np.random.default_rng(n + d).standard_normal((n, d)))
    return Request("/dynamics", stream.getvalue(), NPY)


def measure_servers(rounds: int, seconds: float) -> tuple[Loads, Rates, dict[str, list[Load]]]:
    """Return the loads of each server, the rates in process, and the loads of short texts next to others."""
    cpus, model = sorted(os.sched_getaffinity(0)), served()
    loads: Loads = defaultdict(list)
    in_process: Rates = defaultdict(list)
    short: dict[str, list[Load]] = defaultdict(list)
    with pinned({cpus[-1]}):
        for turn in range(rounds):
            for server in (HARDMAX, TEI) if turn % 2 == 0 else (TEI, HARDMAX):
                with running(server, TEXTS[SENTENCES][0], {cpus[0]}) as (port, _):
                    check_answers(server, port, model)
                    for kind, texts in TEXTS.items():
                        requests = [server.request(text) for text in texts]
                        duration_s = DURATION[kind] * seconds
                        load = drive(port, requests, CONCURRENCY, duration_s, warm_s=duration_s / 3)
                        loads[kind, server.name].append(load)
                    if server is HARDMAX:
                        for kind, texts in TEXTS.items():
                            in_process[kind].append(measure_in_process(model, texts, seconds, {cpus[0]}))
                        for name, load in measure_short_texts(port, 2 * seconds):
                            short[name].append(load)
    return loads, in_process, short


def measure_short_texts(port: int, seconds: float) -> Iterator[tuple[str, Load]]:
    """Yield the load of short texts alone, and next to each kind of other requests."""
    short = (port, [HARDMAX.request(text) for text in TEXTS[SENTENCES]], SHORT_CONNECTIONS, seconds, 0.5)
    yield ALONE, drive(*short)
    others = {LONG_TEXTS: [*map(HARDMAX.request, reviews(2560, 4))], CLOUDS: [cloud_request(100_000, 2)]}
    for name, requests in others.items():
        with clients(port, requests, 1, Load(seconds)):
            yield name, drive(*short)


def add_tables(record: Record, loads: Loads, in_process: Rates, short: dict[str, list[Load]]) -> None:
    throughput = record.table("Texts per second", unit="1/s", better="higher", floors=(IN_PROCESS,))
    share = record.table("Throughput over HTTP, as a share of that in process", better="higher")
    quantiles = {
        0.5: record.table("Median latency", unit="ms", better="lower"),
        0.99: record.table("99th percentile of latency", unit="ms", better="lower"),
    }
    for kind, rates in in_process.items():
        throughput.add(IN_PROCESS, {"texts": kind}, rates)
    for (kind, name), samples in loads.items():
        failed = sum(load.broken + len(load.latencies_s) - load.statuses[200] for load in samples)
        rates = [load.statuses[200] / load.seconds for load in samples]
        note = f"{failed} requests not answered 200" if failed else ""
        throughput.add(name, {"texts": kind}, rates, note)
        for quantile, table in quantiles.items():
            table.add(name, {"texts": kind}, [load.quantile_ms(quantile) for load in samples])
        if name == HARDMAX.name:
            shares = [http / floor for http, floor in zip(rates, in_process[kind], strict=True)]
            share.add("ours", {"texts": kind, "target": TARGET_SHARE}, shares)
    latency = record.table("99th percentile of short texts, alone and next to other requests", unit="ms")
    slowdown = record.table("Slowdown of short texts next to other requests", better="lower")
    late_ms = {name: [load.quantile_ms(0.99) for load in samples] for name, samples in short.items()}
    for name, times_ms in late_ms.items():
        latency.add("ours", {"next to": name}, times_ms)
        if name in TARGET_SLOWDOWN:
            case = {"next to": name, "target": TARGET_SLOWDOWN[name]}
            slowdown.add("ours", case, [a / b for a, b in zip(times_ms, late_ms[ALONE], strict=True)])


def main() -> None:
    options = argument_parser(
        __doc__, rounds=(5, "of every subject"), seconds=(4.0, "of each measurement")
    ).parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 1.0
    packages = ("fastapi", "uvicorn", "onnxruntime", "numpy")
    record = Record("load", "The service over HTTP", packages, PRETRAINED)
    add_tables(record, *measure_servers(options.rounds, options.seconds))
    record.note(
        f"Sentences have 22 words, reviews 230: one a request, with leaders; keep-alive, a closed loop of "
        f"{CONCURRENCY} connections ({SHORT_CONNECTIONS} for the last tables); {options.seconds:g} s a "
        f"sample, and {DURATION[REVIEWS] * options.seconds:g} s of reviews. The load has the other core. "
        "Both serve the pretrained graphs through the same code, so only the way of serving differs. TEI's "
        "way is its queue, written in Python."
    )
    record.write(quick=options.quick)


if __name__ == "__main__":
    main()
