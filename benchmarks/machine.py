"""What a machine needs to run the service: start, CPU time and memory, and the work around inference.

    python -m benchmarks.machine [--quick]

* start: from the start of the process to the first answer, and the memory then.
* sizing: CPU time of a text or cloud (user and system, all threads), so the figures hold on a busy machine
  too; one core's requests a second is 1 divided by them.
* processing: sentences per second that one core tokenizes and explains, without inference: the work around a
  GPU.

CPU time and memory are sums over the server and the processes that it starts, which compute clouds. Memory is
the resident sets: pages that processes share count several times.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from http.client import HTTPConnection
from typing import Any

import httpx
import psutil

from benchmarks.load import cloud_request, drive
from benchmarks.models import served
from benchmarks.record import PRETRAINED, Record, Table, argument_parser, timed
from benchmarks.reviews import reviews
from benchmarks.servers import HARDMAX, running
from hardmax.models.texts import Explain
from service.memory import freeze_gc
from service.runtime.session import Arrays, Session

PROBE = reviews(22, 1)[0]
# texts of (words, texts a request, explain)
REQUESTS = ((22, 1, "none"), (22, 1, "leaders"), (230, 1, "none"), (230, 1, "leaders"), (230, 1, "full"),
            (230, 64, "none"), (230, 64, "leaders"))  # fmt: skip
CLOUDS = ((100, 2), (10_000, 2), (100_000, 2), (1_000_000, 2), (1_000_000, 3), (10_000, 16), (100_000, 16))
CONNECTIONS = 16
IDLE_S = 0.5  # in which an idle server uses hardly any CPU time
BATCH = 64
MODES: tuple[Explain, ...] = ("none", "leaders", "full")


# ---- start


def measure_start(record: Record, repeats: int) -> None:
    times = record.table("From process start to the first answer", unit="s", better="lower")
    memory = record.table("Resident memory, all pretrained models loaded", unit="MB", better="lower")
    for workers in (1, 2):
        ready, fresh, used = zip(*(start(workers) for _ in range(repeats)), strict=True)
        times.add("ours", {"workers": workers}, ready)
        memory.add("ours", {"workers": workers, "when": "ready"}, fresh)
        memory.add("ours", {"workers": workers, "when": "after two seconds of load"}, used)


def start(workers: int) -> tuple[float, float, float]:
    """Return the seconds to the first answer, the megabytes then, and those after some thousand requests."""
    start_s = time.perf_counter()
    cpus = set(psutil.Process().cpu_affinity())
    with running(HARDMAX, PROBE, cpus, "--workers", str(workers)) as (port, pid):
        ready_s, server = time.perf_counter() - start_s, Process(pid)
        fresh_mb = server.megabytes()
        drive(port, [HARDMAX.request(text) for text in reviews(22, 64)], CONNECTIONS, 2.0)
        return ready_s, fresh_mb, server.megabytes()


# ---- sizing


class Process:
    """A running server and the processes that it starts."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def _sum(self, figure: Callable[[psutil.Process], float]) -> float:
        total = 0.0
        parent = psutil.Process(self._pid)
        for process in (parent, *parent.children(recursive=True)):
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


def measure_sizes(record: Record, seconds: float, largest: int) -> None:
    cpu = record.table("CPU time of the server", unit="s", better="lower")
    memory = record.table("Resident memory of the server", unit="MB", better="lower")
    record.note(
        "CPU time is that of one text or of one cloud. Memory is measured at the start, after the texts, and "
        "for clouds at its highest during the run; each cloud has a server of its own. Both are of the "
        "server and the processes that it starts, which compute clouds."
    )
    with running(HARDMAX, PROBE, {0}) as (port, pid):
        server = Process(pid)
        server.idle_cpu_s()
        memory.add("ours", {"when": "at the start"}, [server.megabytes()])
        for words, texts, explain in REQUESTS:
            case = {"words": words, "texts": texts, "explain": explain}
            cpu.add("ours", case, measure_texts(server, port, words, texts, explain, seconds))
        memory.add("ours", {"when": "after the texts"}, [server.megabytes()])
    for n, d in CLOUDS:
        if n <= largest:
            measure_cloud(cpu, memory, n, d)


def measure_texts(
    server: Process, port: int, words: int, texts: int, explain: str, seconds: float
) -> Sequence[float]:
    """Return three samples of the CPU seconds for each text; no request is left unfinished."""
    bodies = reviews(words, max(64, 2 * texts))
    requests = [{"input": bodies[i : i + texts], "explain": explain} for i in range(0, len(bodies), texts)]
    samples = []
    with (
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
        ThreadPoolExecutor(CONNECTIONS) as pool,
    ):

        def send(request: dict[str, Any]) -> None:
            client.post("/classify", json=request).raise_for_status()

        for turn in range(4):  # the first one warms up
            elapsed_s, before, n_texts = 0.0, server.cpu_s(), 0
            while n_texts == 0 or (turn and elapsed_s < seconds / 3):
                elapsed_s += timed(lambda: list(pool.map(send, requests)))[1]
                n_texts += len(bodies)
            if turn:
                samples.append((server.cpu_s() - before) / n_texts)
    return samples


def measure_cloud(cpu: Table, memory: Table, n: int, d: int) -> None:
    """Add the cost of a Gaussian cloud, sent as an npy file and run to its certificate by a new server."""
    request = cloud_request(n, d)
    with (
        running(HARDMAX, PROBE, {0}) as (port, pid),
        closing(HTTPConnection("127.0.0.1", port, timeout=600)) as connection,
    ):
        server, samples = Process(pid), []
        with server.peak() as resident:
            for _ in range(3 if n < 1_000_000 else 1):
                before = server.idle_cpu_s()
                _, answer = request.send(connection)
                samples.append(server.idle_cpu_s() - before)
        layers = json.loads(answer)["layers"]
        cpu.add("ours", {"points": n, "d": d, "layers": layers}, samples)
        memory.add("ours", {"when": f"{n:,} points, d = {d}, the highest"}, [max(resident)])


# ---- processing


class Recording:
    """Outputs of sessions, recorded once and returned again in the same order.

    ONNX Runtime's runs would use the processor's caches, which those on a GPU do not.
    """

    def __init__(self, *sessions: Session) -> None:
        self._arrays: list[Any] = []
        self._position = 0
        for session in sessions:
            session.run = partial(self._return, session.run)  # type: ignore[method-assign]

    def rewind(self, *, erase: bool = False) -> None:
        """Start again with the first output; record anew if `erase`."""
        self._position = 0
        if erase:
            self._arrays.clear()

    def _return(self, run: Any, feeds: Arrays, outputs: Sequence[str]) -> Any:
        if self._position == len(self._arrays):
            self._arrays.append(run(feeds, outputs))
        self._position += 1
        return self._arrays[self._position - 1]


def measure_processing(record: Record, sentences: int, repeats: int) -> None:
    """Add a row for tokenizing, and one for each kind of explanation, in CPU time of this thread."""
    table = record.table("Sentences that one core tokenizes and explains", unit="1/s", better="higher")
    record.note("Tokenized and explained are sentences of 16 to 28 words, 64 in a run, without inference.")
    model = served()
    recording = Recording(model.encoder._session, model.head.session)
    texts = [text for words in range(16, 29) for text in reviews(words, -(-sentences // 13))][:sentences]

    def add(step: str, run: Callable[[], object]) -> None:
        seconds = [timed(run, time.thread_time)[1] for _ in range(repeats + 1)]
        table.add("ours", {"step": step}, [len(texts) / s for s in seconds[1:]])  # the first fills caches

    def explain(mode: Explain) -> None:
        recording.rewind()
        for begin in range(0, len(texts), BATCH):
            model.classify(texts[begin : begin + BATCH], mode)

    freeze_gc()  # garbage is collected as rarely as in the service
    add("tokenize", lambda: [*map(model.encoder.tokenize, texts)])
    for mode in MODES:
        recording.rewind(erase=True)
        add(f"all but inference, explain {mode}", partial(explain, mode))


def main() -> None:
    quick = argument_parser(__doc__).parse_args().quick
    repeats, seconds, largest, sentences = (1, 1.5, 10_000, BATCH) if quick else (5, 6.0, 1_000_000, 1_024)
    packages = ("numpy", "onnxruntime", "fastapi", "uvicorn")
    record = Record("machine", "CPU and memory of the service", packages, PRETRAINED)
    measure_start(record, repeats)
    measure_sizes(record, seconds, largest)
    measure_processing(record, sentences, repeats)
    record.write(quick=quick)


if __name__ == "__main__":
    main()
