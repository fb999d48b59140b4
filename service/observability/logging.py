"""Log lines, for people (text) or for machines (json, an object a line). No text of a user is among them.

Nothing that logs ever waits for whoever reads the log. Lines go to a queue of bounded length, and a thread
writes them to standard error; what the queue has no room for is dropped and counted.
"""

import json
import logging
import os
import threading
import time
from contextlib import suppress
from logging.handlers import QueueHandler
from queue import Full, Queue
from typing import Any, Literal

STDERR = 2
KEPT = 4_000  # lines that wait to be written
LAST_LINES_S = 1.0  # how long the reader of the log has at the end to take the last lines
LONGEST = 16_000  # characters of a message or a traceback

Style = Literal["text", "json"]
access = logging.getLogger("service.requests")


def configure(style: Style, level: str) -> None:
    """Send this process's logs, and those of the libraries it uses, to standard error."""
    logging.basicConfig(handlers=[Handler(style)], level=logging.WARNING, force=True)
    logging.getLogger("service").setLevel(level.upper())


def log_request(
    request_id: str,
    method: str,
    route: str,
    status: int,
    seconds: float,
    *,
    error: str | None = None,
    debug: bool = False,
) -> None:
    """`error`: the type that the answer gave it."""
    fields = {
        "logger": "access",
        "method": method,
        "route": route,
        "status": status,
        "duration_s": round(seconds, 6),
        "request_id": request_id,
    }
    line = "%s %s %d %.1f ms %s"
    if error is not None:
        fields["error"] = error
        line = f"{line} {error}"
    access.log(
        logging.DEBUG if debug else logging.INFO,
        line,
        method,
        route,
        status,
        seconds * 1e3,
        request_id,
        extra={"fields": fields},
    )


class Handler(QueueHandler):
    """Makes lines of records, which a thread of its own writes to a descriptor."""

    queue: Queue[logging.LogRecord | None]

    def __init__(self, style: Style, descriptor: int = STDERR, kept: int = KEPT) -> None:
        super().__init__(Queue(kept))
        self.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
        self._descriptor = descriptor
        self._lost = 0
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            if self._lost:
                self.queue.put_nowait(self.prepare(_lost(self._lost)))
                self._lost = 0
            self.queue.put_nowait(record)
        except Full:
            self._lost += 1

    def _write(self) -> None:
        """A line at a time: those of several workers never mix where a pipe takes them whole."""
        while (record := self.queue.get()) is not None:
            try:
                os.write(self._descriptor, f"{record.msg}\n".encode(errors="replace"))
            except OSError:  # a full disk: this line is lost, requests are not
                self._lost += 1

    def close(self) -> None:
        """Write what is left, for a moment."""
        with suppress(Full):  # then nobody reads the log
            self.queue.put_nowait(None)
            self._thread.join(LAST_LINES_S)
        super().close()


def _lost(count: int) -> logging.LogRecord:
    told = "%d log lines were lost: nobody took them in time"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, told, (count,), None)


class TextFormatter(logging.Formatter):
    converter = time.gmtime  # type: ignore[assignment]
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        line = f"{self.formatTime(record)} {record.levelname.lower():7} {_short(record.getMessage())}"
        return f"{line}\n{_short(self.formatException(record.exc_info))}" if record.exc_info else line


class JsonFormatter(TextFormatter):
    def format(self, record: logging.LogRecord) -> str:
        said = {"logger": record.name, "message": _short(record.getMessage())}
        fields: dict[str, Any] = getattr(record, "fields", said)
        line = {"time": self.formatTime(record), "level": record.levelname.lower(), **fields}
        if record.exc_info:
            line["traceback"] = _short(self.formatException(record.exc_info))
        return json.dumps(line)


def _short(text: str) -> str:
    """Its beginning and its end where it is very long: a queue of lines has a bound in bytes too."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
