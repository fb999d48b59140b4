"""Progress: nothing for a second or without a terminal; then a count, the speed and the time left."""

import io
import sys
from types import SimpleNamespace

import pytest

from hardmax.progress import Progress, duration


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_shows_the_time_left_after_a_second() -> None:
    terminal, clock = Terminal(), [0.0]
    with Progress(terminal, clock=lambda: clock[0]) as progress:
        clock[0] += 0.9
        progress.count(900, 200_000, "texts")
        assert terminal.getvalue() == ""
        clock[0] += 0.1
        progress.count(1_000, 200_000, "texts")
        assert terminal.getvalue() == "\r1,000 of 200,000 texts, 1,000 per second, 3 min 19 s left"
        progress.count(1_001, 200_000, "texts")  # within a tenth of a second: not again
        assert terminal.getvalue().count("texts") == 1
    line = "1,000 of 200,000 texts, 1,000 per second, 3 min 19 s left"
    assert terminal.getvalue() == f"\r{line}\r{' ' * len(line)}\r"


@pytest.mark.parametrize(("stream", "enabled"), [(io.StringIO(), None), (Terminal(), False)])
def test_progress_is_silent_without_a_terminal_or_if_switched_off(
    stream: io.StringIO, enabled: bool | None
) -> None:
    clock = [0.0]
    with Progress(stream, enabled=enabled, clock=lambda: clock[0]) as progress:
        clock[0] += 60
        progress.count(1, 2, "texts")
        progress("layer 3, 5 leaders")
    assert stream.getvalue() == ""


def test_progress_that_is_requested_prints_lines_to_a_pipe() -> None:
    pipe, clock = io.StringIO(), [0.0]
    with Progress(pipe, enabled=True, clock=lambda: clock[0]) as progress:
        for n in (1, 2, 3, 10):
            clock[0] = float(n)
            progress.count(n, 20, "texts")
    lines = ["1 of 20 texts, 1 per second, 19 s left", "10 of 20 texts, 1 per second, 10 s left"]
    assert pipe.getvalue().splitlines() == lines


def test_progress_is_shown_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel's standard error is no terminal."""
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    cell, clock = io.StringIO(), [0.0]
    with Progress(cell, clock=lambda: clock[0]) as progress:
        clock[0] = 2.0
        progress.count(1, 2, "texts")
    assert cell.getvalue().startswith("\r1 of 2 texts")


def test_progress_of_a_process_without_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with Progress(enabled=True) as progress:
        progress("layer 3")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (125, "2 min 5 s"), (3790, "1 h 3 min")]
)
def test_duration_has_at_most_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text
