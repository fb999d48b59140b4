"""Looks figures up in results and says them as documents do: two digits, commas, a unit that fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Results:
    """Medians of results/*.json, by record, table, subject and case."""

    def __init__(self, records: Mapping[str, dict[str, Any]]) -> None:
        self._records = records

    def of(self, record: str, table: str, subject: str = "ours", **case: Any) -> float:
        for row in self.rows(record, table, **case):
            if row["subject"] == subject and row["median"] is not None:
                return float(row["median"])
        raise LookupError(f"results/{record}.json: no figure of {subject} in {table} at {case}")

    def best_peer(self, record: str, table: str, **case: Any) -> float:
        """The smallest median that is not ours."""
        theirs = (row for row in self.rows(record, table, **case) if row["subject"] != "ours")
        return min(float(row["median"]) for row in theirs if row["median"] is not None)

    def rows(self, record: str, table: str, **case: Any) -> list[dict[str, Any]]:
        """Rows whose case has these values, whatever else it has."""
        if record not in self._records:
            raise LookupError(f"results/{record}.json is not there: run python -m benchmarks.{record}")
        tables = self._records[record]["tables"]
        rows: list[dict[str, Any]] = next(each["rows"] for each in tables if each["name"] == table)
        return [row for row in rows if case.items() <= row["case"].items()]


def digits(value: float, count: int = 2) -> str:
    """So many digits that count: 2964 is 3,000, 0.0337 is 0.034, 9.81 is 9.8."""
    rounded = float(f"{value:.{count - 1}e}")
    exponent = int(f"{rounded:e}".partition("e")[2])
    return f"{rounded:,.{max(0, count - 1 - exponent)}f}"


def seconds(value: float, count: int = 2) -> str:
    """Milliseconds below a tenth of a second ("0.34 ms"), seconds above."""
    return f"{digits(value * 1e3, count)} ms" if value < 0.0995 else f"{digits(value, count)} s"


def people(value: float) -> str:
    """As one says large numbers: 96,000, 150 million, 2.5 billion."""
    for size, name in ((1e9, " billion"), (1e6, " million")):
        if value >= 0.995 * size:
            return digits(value / size) + name
    return digits(value)
