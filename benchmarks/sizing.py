"""CPU time of a text or cloud, and memory of the service, for docs/operate.

    python -m benchmarks.sizing

The figures are sums over the server and the processes that it starts, which compute clouds. CPU time is what
these processes use (user and system, all threads), so the figures hold on a busy machine too, and one core's
requests a second is 1 divided by them. That of a large cloud includes the start of the process that replaces
its own. Memory is the resident sets: pages that processes share count several times.
"""

import io
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import numpy as np
import psutil

from benchmarks.record import PRETRAINED, Record, Table, argument_parser
from benchmarks.reviews import reviews
from benchmarks.servers import HARDMAX, process_tree, running

# texts of (words, texts a request, explain)
REQUESTS = ((22, 1, "none"), (22, 1, "leaders"), (230, 1, "none"), (230, 1, "leaders"), (230, 1, "full"),
            (230, 64, "none"), (230, 64, "leaders"))  # fmt: skip
CLOUDS = ((100, 2), (10_000, 2), (100_000, 2), (1_000_000, 2), (1_000_000, 3), (10_000, 16), (100_000, 16))
CONNECTIONS = 16
IDLE_S = 0.5  # in which an idle server uses hardly any CPU time


class Server:
    """A running server and the processes that it starts."""

    def __init__(self, port: int, pid: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._pid = pid

    def _sum(self, figure: Callable[[psutil.Process], float]) -> float:
        total = 0.0
        for process in process_tree(self._pid):
            with suppress(psutil.NoSuchProcess):  # it has just ended
                total += figure(process)
        return total

    def cpu_s(self) -> float:
        """Return the CPU time of all processes, with those that have ended."""
        return self._sum(lambda process: sum(process.cpu_times()[:4]))

    def idle_cpu_s(self) -> float:
        """Return the CPU time once no process works; one may be starting for the next cloud."""
        before, after = -1.0, self.cpu_s()
        while after - before > 0.1 * IDLE_S:
            time.sleep(IDLE_S)
            before, after = after, self.cpu_s()
        return after

    def megabytes(self) -> float:
        return self._sum(lambda process: process.memory_info().rss) / 1e6

    @contextmanager
    def peak(self) -> Iterator[list[float]]:
        """Sample the resident megabytes while the block runs."""
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
        "for clouds at its highest during the run; each cloud has a server of its own. Both are of the "
        "server and the processes that it starts, which compute clouds."
    )
    with running(HARDMAX, reviews(22, 1)[0], {0}) as (port, pid):
        server = Server(port, pid)
        server.idle_cpu_s()
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
    """Return three samples of the CPU seconds for each text; no request is left unfinished."""
    bodies = reviews(words, max(64, 2 * texts))
    requests = [{"input": bodies[i : i + texts], "explain": explain} for i in range(0, len(bodies), texts)]

    def send(request: dict[str, Any]) -> None:
        client.post("/classify", json=request).raise_for_status()

    samples = []
    with httpx.Client(base_url=server.url, timeout=60) as client, ThreadPoolExecutor(CONNECTIONS) as pool:
        for turn in range(4):  # the first one warms up
            start_s, before, n_texts = time.perf_counter(), server.cpu_s(), 0
            while n_texts == 0 or (turn and time.perf_counter() - start_s < seconds / 3):
                n_texts += texts * len(list(pool.map(send, requests)))
            if turn:
                samples.append((server.cpu_s() - before) / n_texts)
    return samples


def measure_cloud(cpu: Table, memory: Table, n: int, d: int) -> None:
    """Add the cost of a Gaussian cloud, sent as an npy file and run to its certificate by a new server."""
    stream = io.BytesIO()
    np.save(stream, np.random.default_rng(n + d).standard_normal((n, d)))
    headers = {"content-type": "application/x-npy"}
    with running(HARDMAX, reviews(22, 1)[0], {0}) as (port, pid):
        server = Server(port, pid)
        samples = []
        with server.peak() as resident:
            for _ in range(3 if n < 1_000_000 else 1):
                before = server.idle_cpu_s()
                answer = httpx.post(
                    f"{server.url}/dynamics", content=stream.getvalue(), headers=headers, timeout=600
                )
                samples.append(server.idle_cpu_s() - before)
        layers = answer.raise_for_status().json()["layers"]
        cpu.add("ours", {"points": n, "d": d, "layers": layers}, samples)
        memory.add("ours", {"when": f"{n:,} points, d = {d}, the highest"}, [max(resident)])


if __name__ == "__main__":
    main()
