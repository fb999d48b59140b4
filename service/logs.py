"""Log lines, for people (text) or for machines (json, an object a line). No text of a user is among them."""

from __future__ import annotations

import json
import logging
import sys
import time
from contextlib import suppress
from typing import Any, Literal, TextIO

KEPT_LINES = 100_000


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _timestamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id := getattr(record, "request_id", None):
            line["request_id"] = request_id
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = f"{_timestamp(record.created)} {record.levelname.lower():7} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure(style: Literal["text", "json"], level: str) -> None:
    """Send this process's logs, and those of the libraries it uses, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("service").setLevel(level.upper())


class AccessLog:
    """A line for every request, kept until `flush`: writing is a system call and requests are many."""

    def __init__(self, stream: TextIO | None, style: Literal["text", "json"]) -> None:
        self._stream = stream
        self._style = style
        self._lines: list[tuple[float, str, str, str, int, float]] = []

    def write(self, request_id: str, method: str, route: str, status: int, seconds: float) -> None:
        if self._stream is not None and len(self._lines) < KEPT_LINES:
            self._lines.append((time.time(), request_id, method, route, status, seconds))

    def pending(self) -> bool:
        return bool(self._lines)

    def flush(self) -> None:
        """Write what was kept. May block on the stream: not for the event loop."""
        lines, self._lines = self._lines, []
        if lines and self._stream is not None:
            form = _access_json if self._style == "json" else _access_text
            with suppress(OSError):  # a full disk: these lines are lost, requests are not
                self._stream.write("".join([form(*line) for line in lines]))
                self._stream.flush()


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
