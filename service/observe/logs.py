"""Log lines, for people (text) or for machines (json, an object a line). No text of a user is among them.

Nothing that logs ever waits for whoever reads the log. Lines go to a queue of bounded length, and a thread
writes them to standard error; what the queue has no room for is dropped and counted.
"""

from __future__ import annotations

import json
import logging
import os
import select
import threading
import time
from collections.abc import Callable
from typing import Any, Literal

STDERR = 2
GATHER_S = 0.05  # lines that come this close together are written at once; a kill -9 loses no more than these
LAST_LINES_S = 1.0  # what the reader of the log has at the end to take the last lines
KEPT_RECORDS = 1_000
KEPT_REQUESTS = 20_000
LONGEST = 16_000  # characters of a message or a traceback

Form = Callable[..., str]
Style = Literal["text", "json"]


class Writer:
    """Writes lines to a descriptor from a thread of its own, which starts with the first line."""

    def __init__(self, style: Style, kept: int, descriptor: int = STDERR) -> None:
        self._formatter = formatter_of(style)
        self._kept = kept
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._lines: list[tuple[Form, tuple[Any, ...]]] = []
        self._lost = 0
        self._some = threading.Event()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def put(self, form: Form, *fields: Any) -> None:
        """The line `form(*fields)`, made later by the thread. Never waits."""
        with self._lock:
            if len(self._lines) >= self._kept:
                self._lost += 1
                return
            self._lines.append((form, fields))
            if self._thread is None:
                self._over.clear()
                self._thread = threading.Thread(target=self._run, name="log", daemon=True)
                self._thread.start()
        if not self._some.is_set():
            self._some.set()

    def close(self) -> None:
        """Write what is left, for a moment; a line that comes later starts another thread."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._over.set()
            self._some.set()
            thread.join(LAST_LINES_S)

    def _run(self) -> None:
        while not self._over.is_set():
            self._some.wait()
            self._over.wait(GATHER_S)
            self._some.clear()
            self._write_all()

    def _write_all(self) -> None:
        with self._lock:
            lines, self._lines = self._lines, []
            lost, self._lost = self._lost, 0
        made = [form(*fields) for form, fields in lines]
        if lost:
            made.append(self._tell_lost(lost))
        try:
            for block in _blocks(made):
                os.write(self._descriptor, block)
        except OSError:  # a full disk: these lines are lost, requests are not
            with self._lock:
                self._lost += lost + len(lines)

    def _tell_lost(self, count: int) -> str:
        text = "%d log lines were lost: nobody took them in time"
        record = logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, (count,), None)
        return self._formatter.format(record) + "\n"


def _blocks(lines: list[str]) -> list[bytes]:
    """The lines together, in blocks that a pipe takes whole: those of several workers never mix."""
    blocks: list[bytes] = []
    for line in lines:
        raw = line.encode(errors="replace")
        if blocks and len(blocks[-1]) + len(raw) <= select.PIPE_BUF:
            blocks[-1] += raw
        else:
            blocks.append(raw)
    return blocks


class Handler(logging.Handler):
    """Hands the records of `logging` to a `Writer`."""

    def __init__(self, style: Style) -> None:
        super().__init__()
        self.setFormatter(formatter_of(style))
        self._writer = Writer(style, KEPT_RECORDS)

    def emit(self, record: logging.LogRecord) -> None:
        self._writer.put(str, self.format(record) + "\n")

    def close(self) -> None:
        self._writer.close()
        super().close()


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _timestamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _short(record.getMessage()),
        }
        if record.exc_info:
            line["traceback"] = _short(self.formatException(record.exc_info))
        return json.dumps(line)


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = f"{_timestamp(record.created)} {record.levelname.lower():7} {_short(record.getMessage())}"
        return f"{line}\n{_short(self.formatException(record.exc_info))}" if record.exc_info else line


def formatter_of(style: Style) -> logging.Formatter:
    return JsonFormatter() if style == "json" else TextFormatter()


def _short(text: str) -> str:
    """Its beginning and its end where it is very long: a queue of lines has a bound in bytes too."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"


def configure(style: Style, level: str) -> None:
    """Send this process's logs, and those of the libraries it uses, to standard error."""
    logging.basicConfig(handlers=[Handler(style)], level=logging.WARNING, force=True)
    logging.getLogger("service").setLevel(level.upper())


class AccessLog:
    """A line for every request, unless it is quiet."""

    def __init__(self, style: Style, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._form = _access_json if style == "json" else _access_text
        self._writer = Writer(style, KEPT_REQUESTS)

    def write(self, request_id: str, method: str, route: str, status: int, seconds: float) -> None:
        if not self._quiet:
            self._writer.put(self._form, time.time(), request_id, method, route, status, seconds)

    def close(self) -> None:
        self._writer.close()


def _access_text(when: float, request_id: str, method: str, route: str, status: int, seconds: float) -> str:
    return f"{_timestamp(when)} info    {method} {route} {status} {seconds * 1e3:.1f} ms {request_id}\n"


def _access_json(when: float, request_id: str, method: str, route: str, status: int, seconds: float) -> str:
    line = {
        "time": _timestamp(when),
        "level": "info",
        "logger": "access",
        "method": method,
        "route": route,
        "status": status,
        "duration_s": round(seconds, 6),
        "request_id": request_id,
    }
    return json.dumps(line) + "\n"


def _timestamp(when: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(when))
    return f"{whole}.{int(when % 1 * 1000):03d}Z"
