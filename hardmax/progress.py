"""Show the progress of long work on one line of a terminal; print nothing elsewhere."""

import sys
import time
from collections.abc import Callable
from typing import Self, TextIO

QUIET_S = 1.0  # shorter work shows nothing
REFRESH_S = 0.1


class Progress:
    """A progress line: call it with a message, or `count` finished items. The line is cleared at the end."""

    def __init__(self, stream: TextIO | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._live = self._stream.isatty()
        self._started = self._clock()
        self._next = self._started + QUIET_S
        self._dirty = False

    def __call__(self, message: str) -> None:
        self._show(f"{message}, {duration(self._clock() - self._started)}")

    def count(self, done: int, total: int, unit: str) -> None:
        """Show how many items are done, the rate and the time left."""
        seconds = self._clock() - self._started
        if done and seconds:
            left = duration((total - done) * seconds / done)
            self._show(f"{done:,} of {total:,} {unit}, {done / seconds:,.0f} per second, {left} left")

    def _show(self, line: str) -> None:
        now = self._clock()
        if self._live and now >= self._next:
            self._stream.write(f"\r\x1b[K{line}")
            self._stream.flush()
            self._next, self._dirty = now + REFRESH_S, True

    def clear(self) -> None:
        """Clear the line."""
        if self._dirty:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._dirty = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.clear()


def duration(seconds: float) -> str:
    """Return a duration for people: 8 s, 2 min 5 s, 1 h 3 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
