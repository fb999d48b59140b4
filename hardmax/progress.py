"""Show the progress of long work in terminals and notebooks."""

import io
import sys
import time
from collections.abc import Callable
from typing import Self, TextIO

QUIET_S = 1.0  # shorter work shows nothing
REFRESH_S = 0.1
LINE_EVERY_S = 5.0  # if a line cannot be rewritten


class Progress:
    """A progress line: call it with a message, or `count` finished items. The line is cleared at the end.

    Args:
        stream: Where to write; standard error by default.
        enabled: Whether to show progress; by default in terminals and notebooks. Elsewhere True prints a
            line every few seconds.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        enabled: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream or sys.stderr or io.StringIO()  # a process may have no standard error
        self._clock = clock
        self._rewrites = self._stream.isatty() or in_notebook()
        self._enabled = self._rewrites if enabled is None else enabled
        self._start_s = self._clock()
        self._next_s = self._start_s + QUIET_S
        self._line_length = 0

    def __call__(self, message: str) -> None:
        self._show(f"{message}, {duration(self._clock() - self._start_s)}")

    def count(self, done: int, total: int, unit: str) -> None:
        """Show how many items are done, the rate and the time left."""
        seconds = self._clock() - self._start_s
        if done and seconds:
            remaining = duration((total - done) * seconds / done)
            self._show(f"{done:,} of {total:,} {unit}, {done / seconds:,.0f} per second, {remaining} left")

    def _show(self, line: str) -> None:
        now = self._clock()
        if not self._enabled or now < self._next_s:
            return
        self._next_s = now + (REFRESH_S if self._rewrites else LINE_EVERY_S)
        self._stream.write(f"\r{line:<{self._line_length}}" if self._rewrites else f"{line}\n")
        self._stream.flush()
        self._line_length = len(line) if self._rewrites else 0

    def clear(self) -> None:
        """Clear the line."""
        if self._line_length:
            self._stream.write(f"\r{'':<{self._line_length}}\r")
            self._stream.flush()
            self._line_length = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.clear()


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")


def duration(seconds: float) -> str:
    """Return a duration for people: 8 s, 2 min 5 s, 1 h 3 min."""
    minutes, seconds = divmod(round(seconds), 60)
    if not minutes:
        return f"{seconds} s"
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    return f"{minutes // 60} h {minutes % 60} min"
