"""What the service costs: CPU time a text or cloud, and memory; docs/operations.md and docs/scale.md use it.

    python -m benchmarks.sizing

CPU time is what the server process itself used (user and system, all threads, from its own /metrics), so the
figures hold on a busy machine too, and one core's requests a second is 1 divided by them.
"""

from __future__ import annotations

import io
import re
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np

from benchmarks.load import send_request
from benchmarks.record import PRETRAINED, Record, Table, argument_parser
from benchmarks.reviews import reviews
from benchmarks.servers import HARDMAX, running

GET_METRICS = b"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
# texts of (words, texts a request, explain)
REQUESTS = ((22, 1, "none"), (22, 1, "leaders"), (230, 1, "none"), (230, 1, "leaders"), (230, 1, "full"),
            (230, 64, "none"), (230, 64, "leaders"))  # fmt: skip
CLOUDS = ((100, 2), (10_000, 2), (100_000, 2), (1_000_000, 2), (1_000_000, 3), (10_000, 16), (100_000, 16))
CONNECTIONS = 16


class Server:
    """A running server, seen through its metrics."""

    def __init__(self, port: int) -> None:
        self.port = port

    def metric(self, name: str) -> float:
        (found,) = re.findall(
            rf"^{name} (\S+)$", send_request(self.port, GET_METRICS)[1].decode(), re.MULTILINE
        )
        return float(found)

    def cpu_s(self) -> float:
        return self.metric("process_cpu_seconds_total")

    def megabytes(self) -> float:
        return self.metric("process_resident_memory_bytes") / 1e6

    @contextmanager
    def peak(self) -> Iterator[list[float]]:
        """Resident megabytes while the block runs; the samples are there at its end."""
        samples, ended = [self.megabytes()], threading.Event()

        def watch() -> None:
            while not ended.wait(0.05):
                samples.append(self.megabytes())

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield samples
        finally:
            ended.set()
            watcher.join()


def main() -> None:
    options = argument_parser(
        __doc__,
        seconds=(6.0, "of load for each kind of request"),
        largest=(1_000_000, "of the clouds, points"),
    ).parse_args()
    if options.quick:
        options.seconds, options.largest = 1.5, 10_000
    record = Record(
        "sizing", "CPU and memory of the service", ["numpy", "onnxruntime", "uvicorn"], PRETRAINED
    )
    cpu = record.table("CPU time of the server", unit="s", better="lower")
    memory = record.table("Resident memory of the server", unit="MB", better="lower")
    record.note(
        "CPU time is that of one text or of one cloud. Memory is measured at the start, after the texts, and "
        "for clouds at its highest during the run; each cloud has a server of its own."
    )
    with running(HARDMAX, reviews(22, 1)[0], {0}) as (port, _):
        server = Server(port)
        memory.add("ours", {"when": "at the start"}, [server.megabytes()])
        for words, texts, explain in REQUESTS:
            case = {"words": words, "texts": texts, "explain": explain}
            cpu.add("ours", case, measure_texts(server, words, texts, explain, options.seconds))
        memory.add("ours", {"when": "after the texts"}, [server.megabytes()])
    for n, d in CLOUDS:
        if n <= options.largest:
            measure_cloud(cpu, memory, n, d)
    record.write(quick=options.quick)


def measure_texts(server: Server, words: int, texts: int, explain: str, seconds: float) -> Sequence[float]:
    """CPU seconds a text that is answered, three times; no request is left unfinished."""
    bodies = reviews(words, max(64, 2 * texts))
    requests = [{"input": bodies[i : i + texts], "explain": explain} for i in range(0, len(bodies), texts)]

    def send(request: dict[str, Any]) -> None:
        client.post("/classify", json=request).raise_for_status()

    samples = []
    url = f"http://127.0.0.1:{server.port}"
    with httpx.Client(base_url=url, timeout=60) as client, ThreadPoolExecutor(CONNECTIONS) as pool:
        for turn in range(4):  # the first one warms up
            began, before, answered = time.perf_counter(), server.cpu_s(), 0
            while answered == 0 or (turn and time.perf_counter() - began < seconds / 3):
                answered += texts * len(list(pool.map(send, requests)))
            if turn:
                samples.append((server.cpu_s() - before) / answered)
    return samples


def measure_cloud(cpu: Table, memory: Table, n: int, d: int) -> None:
    """A Gaussian cloud run to its certificate, as numpy saves it, by a server of its own."""
    stream = io.BytesIO()
    np.save(stream, np.random.default_rng(n + d).standard_normal((n, d)))
    with running(HARDMAX, reviews(22, 1)[0], {0}) as (port, _):
        server = Server(port)
        samples = []
        with server.peak() as resident:
            for _ in range(3 if n < 1_000_000 else 1):
                before = server.cpu_s()
                answer = httpx.post(
                    f"http://127.0.0.1:{port}/dynamics",
                    content=stream.getvalue(),
                    headers={"content-type": "application/x-npy"},
                    timeout=600,
                )
                samples.append(server.cpu_s() - before)
        layers = answer.raise_for_status().json()["layers"]
        cpu.add("ours", {"points": n, "d": d, "layers": layers}, samples)
        memory.add("ours", {"when": f"{n:,} points, d = {d}, the highest"}, [max(resident)])


if __name__ == "__main__":
    main()
