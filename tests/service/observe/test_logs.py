"""Log lines are written soon, in whole, and never by whoever logs: a log nobody reads holds up nobody."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from bundles import write_head
from server import SERVE, environ, eventually
from wire import connect, whole

from service.observe.logs import AccessLog, Writer

GRACE_S = 2


@pytest.fixture
def pipe() -> tuple[int, int]:
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    return read, write


def test_writer_whose_lines_nobody_reads_drops_and_counts_them(pipe: tuple[int, int]) -> None:
    read, write = pipe
    writer = Writer("text", 100, write)
    for number in range(5_000):
        writer.put("{:099d}\n".format, number)
        time.sleep(0.0001)
    text, numbers, lost = "", [], 0
    while len(numbers) + lost < 5_000:
        text += os.read(read, 65536).decode()
        whole_lines = text[: text.rfind("\n") + 1].splitlines()
        numbers = [int(line) for line in whole_lines if line.isdigit()]
        lost = sum(int(line.split()[2]) for line in whole_lines if "lost" in line)
    assert numbers == sorted(numbers)
    assert lost > 4_000


def test_writer_keeps_the_lines_of_several_processes_whole(pipe: tuple[int, int]) -> None:
    read, write = pipe
    writers = [Writer("text", 10_000, write) for _ in range(3)]
    for _ in range(300):
        for letter, writer in zip("abc", writers, strict=True):
            writer.put(str, letter * 300 + "\n")
    closing = [threading.Thread(target=writer.close) for writer in writers]
    for thread in closing:
        thread.start()
    text = b""
    while text.count(b"\n") < 900:
        text += os.read(read, 65536)
    assert {(line[:1], len(line), len(set(line))) for line in text.splitlines()} == {
        (letter, 300, 1) for letter in (b"a", b"b", b"c")
    }


def test_writer_survives_a_descriptor_that_takes_nothing() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    writer = Writer("text", 100, full)
    writer.put(str, "gone\n")
    writer.close()
    os.close(full)


def test_access_line_is_written_within_a_moment(capfd: pytest.CaptureFixture[str]) -> None:
    log = AccessLog("json")
    log.write("an-id", "GET", "/health", 200, 0.0012345)
    written = ""

    def is_written() -> bool:
        nonlocal written
        written += capfd.readouterr().err
        return bool(written)

    eventually(is_written)
    line = json.loads(written)
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "access",
        "method": "GET",
        "route": "/health",
        "status": 200,
        "duration_s": 0.001234,
        "request_id": "an-id",
    }
    AccessLog("json", quiet=True).write("an-id", "GET", "/health", 200, 0.0)
    time.sleep(0.1)
    assert capfd.readouterr().err == ""


def start(models: Path, stderr: int | None) -> tuple[subprocess.Popen[str], int]:
    """A server whose log goes where the caller says, and its port."""
    settings = environ(
        models_dir=models, default_model="tiny", port=0, log_level="debug", shutdown_grace_s=GRACE_S
    )
    process = subprocess.Popen(
        [sys.executable, *SERVE], env=settings, stdout=subprocess.PIPE, stderr=stderr, text=True
    )
    assert process.stdout is not None
    greeting = process.stdout.readline()
    return process, int(greeting.split("127.0.0.1:")[1].split()[0])


def test_log_that_nobody_reads_holds_up_no_request_and_no_stop(tmp_path: Path) -> None:
    """The reader of stderr stops; malformed requests and thousands of right ones follow."""
    write_head(tmp_path)
    process, port = start(tmp_path, subprocess.PIPE)
    try:
        for _ in range(50):
            with connect(port) as stranger:
                stranger.sendall(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
                assert b"400" in stranger.recv(4096)
        with connect(port) as caller:
            for _ in range(20):  # 64 kB of pipe are full after some 700 lines
                caller.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n" * 100)
                answers = b""
                while answers.count(b"HTTP/1.1 200 OK") < 100 or not answers.endswith(b"}"):
                    answers += caller.recv(65536)
            caller.sendall(whole(b'{"input": "superb"}'))
            assert caller.recv(65536).startswith(b"HTTP/1.1 200 ")
        process.send_signal(signal.SIGTERM)
        assert process.wait(GRACE_S + 5) == 0
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.mark.alone
def test_access_lines_are_not_lost_by_a_kill(tmp_path: Path) -> None:
    write_head(tmp_path)
    log = tmp_path / "log"
    with log.open("w") as file:
        process, port = start(tmp_path, file.fileno())
        with connect(port) as caller:
            caller.sendall(whole(b'{"input": "superb"}'))
            assert caller.recv(65536).startswith(b"HTTP/1.1 200")
        time.sleep(0.3)
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    assert "POST /classify 200" in log.read_text()
