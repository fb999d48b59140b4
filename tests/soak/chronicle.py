"""What happened at each fault, written down: results/faults.json, once all of them were tried.

Knows the names of the faults and nothing of how they are done.
"""

from __future__ import annotations

from benchmarks.record import Case, Record
from tests.soak.crowd import Tally

KILLED = "kill -9 of one of two workers"
ALL_KILLED = "kill -9 of both workers at once"
STOPPED = "SIGSTOP of one of two workers for 3 s"
STOPPED_FOR_GOOD = "SIGSTOP of a worker, then SIGTERM to the service"
FULL_LOG = "the disk behind the log is full"
CORRUPT_START = "a cut model file at start"
CORRUPT_RELOAD = "two cut model files at reload"
CLOCK = "the clock jumps a day ahead, two back, and home"
DRIBBLE = "200 callers that send a byte a second"
FAULTS = (
    KILLED,
    ALL_KILLED,
    STOPPED,
    STOPPED_FOR_GOOD,
    FULL_LOG,
    CORRUPT_START,
    CORRUPT_RELOAD,
    CLOCK,
    DRIBBLE,
)


class Chronicle:
    """A row a fault: what the crowd around it saw, how soon all was whole again, and what happened."""

    def __init__(self) -> None:
        self._record = Record("faults", "Faults on purpose", ["uvicorn", "onnxruntime"])
        self._record.note(
            "Each amid a steady crowd of callers whose every answer is checked. Lost are requests "
            "whose connection broke."
        )
        self._table = self._record.table("faults", "What happened", unit="", better="neither")
        self._told: set[str] = set()

    def tell(
        self, fault: str, happened: str, tally: Tally | None = None, whole_after_s: float | None = None
    ) -> None:
        case: Case = {"fault": fault}
        if tally:
            figures = {
                "asked": tally.asked,
                "right": len(tally.accepted_s),
                "wrong": len(tally.wrong),
                "lost": len(tally.broken),
                "longest answer, s": max(tally.accepted_s, default=0.0),
            }
            for subject, value in figures.items():
                self._table.add(subject, case, [round(float(value), 2)])
        if whole_after_s is not None:
            self._table.add("whole again after, s", case, [round(whole_after_s, 2)])
        self._table.add("what happened", case, [], happened)
        self._told.add(fault)

    def write(self) -> None:
        """Only a whole chronicle replaces the one that is kept."""
        if self._told == set(FAULTS):
            self._record.write()
