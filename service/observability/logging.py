"""Log lines, for people (text) or for machines (json, an object per line), without texts of users.

Logging never waits for the program that reads the log. Records go to a queue of bounded length, whose
listener writes them to standard error; records that do not fit are dropped and counted.
"""

import json
import logging
import os
import time
from contextlib import suppress
from logging.handlers import QueueHandler, QueueListener
from queue import Full, Queue
from typing import Any, Literal

from hardmax.formatting import printable

STDERR = 2
MAX_RECORDS = 4_000  # waiting to be written
MAX_MESSAGE_CHARS = 16_000  # of a message or a traceback
LAST_LINES_S = 1.0  # at exit, to write the last lines

Style = Literal["text", "json"]
access = logging.getLogger("service.requests")


def configure(style: Style, level: str) -> None:
    """Send this process's logs, and those of the libraries it uses, to standard error."""
    handler = queue_handler(style)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("service").setLevel(level.upper())


def queue_handler(
    style: Style, descriptor: int = STDERR, max_records: int = MAX_RECORDS
) -> "BoundedQueueHandler":
    """Return a handler whose listener writes to a descriptor."""
    writer = DescriptorHandler(descriptor)
    writer.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    handler = BoundedQueueHandler(Queue(max_records))
    QueueListener(handler.queue, writer).start()
    return handler


def log_request(
    request_id: str, method: str, route: str, status: int, seconds: float, *, debug: bool, **details: object
) -> None:
    """Log a request.

    Details are `error` (the type of the answer), `key` (the name of the API key), `model` (the models that
    answer) and `texts` (the number of texts).
    """
    fields = {
        "logger": "access",
        "method": method,
        "route": route,
        "status": status,
        "duration_s": round(seconds, 6),
        "request_id": request_id,
        **details,
    }
    more = [f" {value}" if name == "error" else f" {name}={value}" for name, value in details.items()]
    arguments = method, route, status, seconds * 1e3, request_id, "".join(more)
    level = logging.DEBUG if debug else logging.INFO
    access.log(level, "%s %s %d %.1f ms %s%s", *arguments, extra={"fields": fields})


class BoundedQueueHandler(QueueHandler):
    """Drop records that do not fit into the queue, and log their number once there is room."""

    queue: Queue[Any]

    def __init__(self, queue: Queue[Any]) -> None:
        super().__init__(queue)
        self._dropped = 0

    def enqueue(self, record: logging.LogRecord) -> None:
        """Put a record into the queue, or count it as lost."""
        try:
            if self._dropped:
                lost = f"{self._dropped} log lines were lost: they were not read in time"
                self.queue.put_nowait(logging.makeLogRecord({"levelname": "WARNING", "msg": lost}))
                self._dropped = 0
            self.queue.put_nowait(record)
        except Full:
            self._dropped += 1

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Return the record unchanged: the listener formats it, in this process."""
        return record

    def flush(self) -> None:
        """Wait up to LAST_LINES_S for the last lines: `QueueListener.stop` would wait for ever."""
        deadline = time.monotonic() + LAST_LINES_S
        while self.queue.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.005)


class DescriptorHandler(logging.Handler):
    """Write each line at once, so that lines of several workers never mix.

    It has no lock, and no buffer with one, as a StreamHandler has: only the listener writes, and at its end
    the process must not wait for a log that nobody reads.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor

    def createLock(self) -> None:
        """Create no lock."""
        self.lock = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record. On a full disk the line is lost, and requests are not."""
        with suppress(OSError):
            os.write(self._descriptor, f"{self.format(record)}\n".encode(errors="replace"))


class TextFormatter(logging.Formatter):
    """Formats records as lines of text."""

    converter = time.gmtime  # type: ignore[assignment]
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        message = printable(_shorten(record.getMessage())).replace("\n", "\\n")  # a name cannot forge a line
        line = f"{self.formatTime(record)} {record.levelname.lower():7} {message}"
        return f"{line}\n{_shorten(self.formatException(record.exc_info))}" if record.exc_info else line


class JsonFormatter(TextFormatter):
    """Formats records as lines of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        default = {"logger": record.name, "message": _shorten(record.getMessage())}
        fields: dict[str, Any] = getattr(record, "fields", default)
        line = {"time": self.formatTime(record), "level": record.levelname.lower(), **fields}
        if record.exc_info:
            line["traceback"] = _shorten(self.formatException(record.exc_info))
        return json.dumps(line)


def _shorten(text: str) -> str:
    """Return the text, or its beginning and end if it is long, which bounds the bytes of the queue."""
    if len(text) <= MAX_MESSAGE_CHARS:
        return text
    return f"{text[: MAX_MESSAGE_CHARS // 2]} ... {text[-MAX_MESSAGE_CHARS // 2 :]}"
