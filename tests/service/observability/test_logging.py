"""Logging: a thread writes complete lines, soon, so that a log that nobody reads blocks no request."""

import fcntl
import json
import logging
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from raw_http import connect, post_request
from server import eventually, serving

from service.observability.logging import BoundedQueueHandler, TextFormatter, log_request, queue_handler

GRACE_S = 2


@pytest.fixture
def pipe() -> tuple[int, int]:
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    return read, write


def logger_to(handler: BoundedQueueHandler, name: str) -> logging.Logger:
    logger = logging.getLogger(f"tests.{name}")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
    return logger


def test_lines_that_nobody_reads_are_dropped_and_counted(pipe: tuple[int, int]) -> None:
    read, write = pipe
    logger = logger_to(queue_handler("json", write, max_records=100), "dropping")
    for number in range(5_000):
        logger.info("%099d", number)
    text, numbers, n_lost = "", [], 0
    while len(numbers) + n_lost < 5_000:
        text += os.read(read, 65536).decode()
        logger.info("a line after which the lost ones are reported")
        messages = [json.loads(line)["message"] for line in text[: text.rfind("\n") + 1].splitlines()]
        numbers = [int(message) for message in messages if message.isdigit()]
        n_lost = sum(int(message.split()[0]) for message in messages if "were lost" in message)
    assert numbers == sorted(numbers)
    assert n_lost > 4_000


def test_lines_of_several_processes_do_not_mix(pipe: tuple[int, int]) -> None:
    read, write = pipe
    handlers = [queue_handler("text", write) for _ in range(3)]
    loggers = [logger_to(handler, letter) for letter, handler in zip("abc", handlers, strict=True)]
    for _ in range(300):
        for letter, logger in zip("abc", loggers, strict=True):
            logger.info(letter * 300)
    text = b""
    while text.count(b"\n") < 900:
        text += os.read(read, 65536)
    assert {(len(line), line[-300:-299], len(set(line[-300:]))) for line in text.splitlines()} == {
        (333, letter, 1) for letter in (b"a", b"b", b"c")
    }


def test_log_survives_a_disk_that_is_full(tmp_path: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    handler = queue_handler("text", full)
    logger = logger_to(handler, "full")
    for _ in range(10):
        logger.info("lost")
    handler.flush()
    log = tmp_path / "log"
    with log.open("w") as file:
        os.dup2(file.fileno(), full)

    logger.info("written")
    eventually(lambda: "written" in log.read_text())
    assert log.read_text().splitlines()[0].endswith("written")
    os.close(full)


def test_request_is_a_line_unless_the_level_leaves_it_out(capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("service")
    handler = logger.handlers = [queue_handler("json")]
    for level in ("WARNING", "INFO"):
        logger.setLevel(level)
        log_request(
            f"at-{level}",
            "POST",
            "/classify",
            429,
            0.0012345,
            debug=False,
            error="overloaded",
            key="shop",
            model="tiny@2",
            texts=3,
        )
    handler[0].flush()
    logger.handlers = []
    logger.setLevel(logging.NOTSET)
    line = json.loads(capfd.readouterr().err)
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "access",
        "method": "POST",
        "route": "/classify",
        "status": 429,
        "duration_s": 0.001234,
        "request_id": "at-INFO",
        "error": "overloaded",
        "key": "shop",
        "model": "tiny@2",
        "texts": 3,
    }


LOGGING: dict[str, Any] = {"default_model": "tiny", "log_level": "debug", "shutdown_grace_s": GRACE_S}


def test_log_that_nobody_reads_blocks_no_request_and_no_stop(models: Path) -> None:
    """Nobody reads stderr while malformed requests and thousands of valid ones arrive."""
    with serving(models, stderr=subprocess.PIPE, **LOGGING) as server:
        for _ in range(50):
            with connect(server.port) as stranger:
                stranger.sendall(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
                assert b"400" in stranger.recv(4096)
        with connect(server.port) as caller:
            for _ in range(10):  # 64 kB of pipe are full after some 700 lines
                caller.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n" * 100)
                answers = b""
                while answers.count(b"HTTP/1.1 200 OK") < 100 or not answers.endswith(b"}"):
                    answers += caller.recv(65536)
            caller.sendall(post_request(b'{"input": "superb"}'))
            assert caller.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert server.stop(timeout_s=GRACE_S + 5) == 0


@pytest.mark.alone
def test_access_lines_are_not_lost_by_a_kill(models: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as file, serving(models, stderr=file.fileno(), **LOGGING) as server:
        with connect(server.port) as caller:
            caller.sendall(post_request(b'{"input": "superb"}'))
            assert caller.recv(65536).startswith(b"HTTP/1.1 200")
        time.sleep(0.3)
        server.stop(signal.SIGKILL)
    assert "POST /classify 200" in log.read_text()


def test_newline_in_a_name_forges_no_line() -> None:
    name = "models\n2026-11-25T00:00:00.000Z info    forged\x1b[2J"
    record = logging.LogRecord("service", logging.WARNING, __file__, 0, "folder %s is refused", (name,), None)
    line = TextFormatter().format(record)
    assert "\n" not in line
    assert "\x1b" not in line
    assert "models\\n2026" in line
