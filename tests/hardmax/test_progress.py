"""Progress: silent for a second and off terminals; then what is done, at what pace, and the time left."""

import io

import pytest

from hardmax.progress import Progress, duration


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_tells_the_time_left_once_work_takes_over_a_second() -> None:
    terminal, clock = Terminal(), [0.0]
    with Progress(terminal, clock=lambda: clock[0]) as shown:
        clock[0] += 0.9
        shown.count(900, 200_000, "texts")
        assert terminal.getvalue() == ""
        clock[0] += 0.1
        shown.count(1_000, 200_000, "texts")
        assert terminal.getvalue() == "\r\x1b[K1,000 of 200,000 texts, 1,000 per second, 3 min 19 s left"
        shown.count(1_001, 200_000, "texts")  # within a tenth of a second: not again
        assert terminal.getvalue().count("texts") == 1
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_progress_off_a_terminal_is_silent() -> None:
    pipe, clock = io.StringIO(), [0.0]
    with Progress(pipe, clock=lambda: clock[0]) as shown:
        clock[0] += 60
        shown.count(1, 2, "texts")
        shown("layer 3, 5 leaders")
    assert pipe.getvalue() == ""


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.4, "0 s"), (59, "59 s"), (125, "2 min 5 s"), (3790, "1 h 3 min")]
)
def test_duration_is_said_as_people_do(seconds: float, said: str) -> None:
    assert duration(seconds) == said
