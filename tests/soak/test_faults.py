"""What breaks in real life, done on purpose: what must then hold, and results/faults.json, what was seen."""

import asyncio
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest
from edge import edge
from server import SERVE, Server, environ, eventually, serving
from wire import announce, whole

from benchmarks.load import ask
from benchmarks.record import Case, Record
from benchmarks.servers import free_port
from tests.soak.crowd import Crowd, Tally
from tests.soak.mix import Mix, prepare

pytestmark = [pytest.mark.soak, pytest.mark.timeout(180)]

BODY = b'{"input": "a superb film"}'
REQUEST = whole(BODY)
CHUNKED = announce(0).replace(b"content-length: 0", b"transfer-encoding: chunked")
# What a slow caller sends in one second after the other: bytes of a head, or chunks of one byte.
DRIPS = {
    "a byte": [REQUEST[i : i + 1] for i in range(10)],
    "a chunk": [CHUNKED, *(b"1\r\n%c\r\n" % byte for byte in BODY[:9])],
}
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
FAULTS = 8
CALLERS = 16


class Chronicle:
    """A row a fault: what the crowd around it saw, how soon all was whole again, and what happened."""

    def __init__(self) -> None:
        self._record = Record("faults", "Fault injection", ["uvicorn", "onnxruntime"])
        self._record.note(
            "Each amid a steady crowd of callers whose every answer is checked. Lost are requests "
            "whose connection broke."
        )
        self._table = self._record.table("Faults and responses")
        self._told: set[str] = set()

    def tell(self, fault: str, happened: str, tally: Tally, whole_after_s: float | None = None) -> None:
        case: Case = {"fault": fault}
        figures: dict[str, float] = {
            "asked": tally.asked,
            "right": len(tally.accepted_s),
            "wrong": len(tally.wrong),
            "lost": len(tally.broken),
            "longest answer, s": max(tally.accepted_s, default=0.0),
        }
        if whole_after_s is not None:
            figures["whole again after, s"] = whole_after_s
        for subject, value in figures.items():
            self._table.add(subject, case, [round(float(value), 2)])
        self._table.add("what happened", case, [], happened)
        self._told.add(fault)

    def write(self) -> None:
        """Only a whole chronicle replaces the one that is kept."""
        if len(self._told) == FAULTS:
            self._record.write()


@pytest.fixture(scope="module")
def mix(small: Path) -> Mix:
    return prepare(small)


@pytest.fixture(scope="module")
def chronicle() -> Iterator[Chronicle]:
    chronicle = Chronicle()
    yield chronicle
    chronicle.write()


def crowd_during(
    port: int, mix: Mix, fault: Callable[[], None], *, seconds: float = 10, rate: float = 100, lost: int = 0
) -> Tally:
    """A steady crowd that a fault befalls: no answer is wrong, and no more than `lost` connections break."""
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(asyncio.run, Crowd(port, mix, CALLERS, rate).ask_for(seconds))
        time.sleep(seconds / 4)
        fault()
        tally = asking.result()
    assert tally.wrong == []
    assert len(tally.broken) <= lost, tally.broken
    assert len(tally.accepted_s) > 50
    return tally


def is_whole(server: Server) -> bool:
    """Whether both workers are loaded, warm and taking requests, as /metrics tells of all of them."""
    try:
        status, page = ask(server.port, b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
    except OSError:
        return False
    return status == 200 and b"hardmax_ready 2.0" in page


@pytest.mark.parametrize(
    ("victims", "fault", "happened"),
    [
        (1, "kill -9 of one of two workers",
         "the supervisor started another, the other worker went on; callers saw a reset at once"),
        (2, "kill -9 of both workers at once",
         "what was on the way was lost; who came meanwhile waited at the socket for the new workers"),
    ],
    ids=["one", "both"],
)  # fmt: skip
def test_killed_workers_cost_only_what_was_on_the_way(
    victims: int, fault: str, happened: str, small: Path, mix: Mix, chronicle: Chronicle
) -> None:
    whole_after_s = 0.0
    with serving(small, workers=2, log_level="error") as server:

        def kill() -> None:
            nonlocal whole_after_s
            dying = server.workers[:victims]
            for each in dying:
                each.kill()
            began = time.monotonic()
            eventually(lambda: len(server.workers) == 2 and not any(each.is_running() for each in dying))
            eventually(lambda: is_whole(server))
            whole_after_s = time.monotonic() - began

        eventually(lambda: is_whole(server))
        tally = crowd_during(server.port, mix, kill, lost=CALLERS)  # what each caller had on the way
        assert server.stop() == 0
    chronicle.tell(fault, happened, tally, whole_after_s)


def test_stopped_worker_loses_nothing_and_goes_on_when_continued(
    small: Path, mix: Mix, chronicle: Chronicle
) -> None:
    with serving(small, workers=2, log_level="error") as server:
        eventually(lambda: is_whole(server))
        victim = server.workers[0]

        def fault() -> None:
            victim.suspend()
            time.sleep(3)
            victim.resume()

        tally = crowd_during(server.port, mix, fault)
        assert server.stop() == 0
    happened = "its connections waited, the other worker went on; continued, it answered"
    chronicle.tell("SIGSTOP of one of two workers for 3 s", happened, tally)


def test_full_disk_for_logs_stops_no_request(small: Path, mix: Mix, chronicle: Chronicle) -> None:
    port = free_port()
    with open("/dev/full", "wb") as full:
        process = subprocess.Popen([sys.executable, *SERVE, "--port", str(port), "--log-level", "debug"],
                                   env=environ(), stdout=full, stderr=full)  # fmt: skip
    try:
        eventually(lambda: process.poll() is not None or _answers(port))
        assert process.poll() is None, f"it ended with {process.returncode}"
        tally = crowd_during(port, mix, lambda: None)
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(30)
    assert code in (0, 120), "120 is Python's own: it could not flush its log at the end"
    happened = f"every request answered, log lines lost; ended with {code}"
    chronicle.tell("the disk behind the log is full", happened, tally)


def _answers(port: int) -> bool:
    try:
        return ask(port, REQUEST)[0] == 200
    except OSError:
        return False


def test_corrupt_bundle_at_reload_leaves_the_old_model_serving(
    tmp_path: Path, small: Path, mix: Mix, chronicle: Chronicle
) -> None:
    models = Path(shutil.copytree(small, tmp_path / "models"))
    with serving(models, log_level="warning") as server:

        def fault() -> None:
            for name in ("sentiment-small", "dynamics"):  # each loses its end
                graph = models / name / "model.onnx"
                graph.write_bytes(graph.read_bytes()[:-100])
            server.process.send_signal(signal.SIGHUP)

        tally = crowd_during(server.port, mix, fault)
        eventually(lambda: "not the file its card describes" in server.output)
        info = json.loads(ask(server.port, b"GET /info HTTP/1.1\r\nhost: localhost\r\n\r\n")[1])
        refused = info["load_errors"]
        assert {each["name"] for each in refused} >= {"sentiment-small", "dynamics"}
        assert server.stop() == 0
    happened = "the old models went on serving; /info and the log say what was refused and why"
    chronicle.tell("two cut model files at reload", happened, tally)


@pytest.mark.skipif(not FAKETIME.exists(), reason="needs libfaketime (apt-get install faketime)")
def test_clock_that_jumps_changes_no_answer_and_no_deadline(
    small: Path, mix: Mix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chronicle: Chronicle
) -> None:
    offset = tmp_path / "offset"
    offset.write_text("+0\n")
    monkeypatch.setenv("LD_PRELOAD", str(FAKETIME))
    monkeypatch.setenv("FAKETIME_TIMESTAMP_FILE", str(offset))
    for name in ("NO_CACHE", "DONT_FAKE_MONOTONIC"):
        monkeypatch.setenv(f"FAKETIME_{name}", "1")
    with serving(small, log_level="error") as server, edge(tmp_path, server.port) as (_, port):
        monkeypatch.delenv("LD_PRELOAD")

        def fault() -> None:
            for jump, hours in (("+1d", 24), ("-2d", -48), ("+0", 0)):
                offset.write_text(f"{jump}\n")
                # a busy server looks at the date of its answers now and then
                eventually(lambda hours=hours: abs(_hours_off(server) - hours) < 0.1)  # type: ignore[misc]

        tally = crowd_during(port, mix, fault, seconds=12)
        assert server.stop() == 0
    happened = (
        "nothing, of edge or service: deadlines and pauses run on the monotonic clock; only dates in "
        "answers and log jumped (libfaketime opens a file at every look at the clock, which slows all)"
    )
    chronicle.tell("the clock jumps a day ahead, two back, and home", happened, tally)


def _hours_off(server: Server) -> float:
    """How far its clock is from ours, by the date in its answers."""
    with server.client() as client:
        date = parsedate_to_datetime(client.get("/health").headers["date"])
    return (date.timestamp() - time.time()) / 3600


@pytest.mark.parametrize("drip", DRIPS)
def test_callers_of_one_byte_a_second_hold_up_nobody(
    small: Path, mix: Mix, chronicle: Chronicle, tmp_path: Path, drip: str
) -> None:
    """The edge waits for them, on addresses of their own; the service sees whole requests."""
    with ExitStack() as stack:
        server = stack.enter_context(serving(small, max_concurrent_requests=64, log_level="error"))
        _, port = stack.enter_context(edge(tmp_path, server.port))

        def dribble() -> None:
            own = ("127.0.0.2", 0)
            slow = [
                stack.enter_context(socket.create_connection(("127.0.0.1", port), 5, own)) for _ in range(100)
            ]
            for piece in DRIPS[drip]:
                for each in slow:
                    with suppress(OSError):  # the edge takes four bodies of unknown length from one address
                        each.send(piece)
                time.sleep(1)

        tally = crowd_during(port, mix, dribble, rate=50)
        assert tally.refused == 0, "a caller who has not finished asking takes no place"
        assert server.stop() == 0
    happened = "others were answered as if they were not there: only a whole request reaches the service"
    chronicle.tell(f"100 callers that send {drip} a second", happened, tally)
