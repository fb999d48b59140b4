"""Exponents of costs whose exponents are known, and of one that bends."""

from __future__ import annotations

import pytest

from benchmarks.growth import fit, kinks, note_growth
from benchmarks.record import Record


def test_fit_finds_the_exponent_of_a_power() -> None:
    assert fit([(n, 3 * n**1.5) for n in (10, 30, 1000)]) == pytest.approx(1.5)


def test_kinks_are_where_a_line_bends_and_noise_is_none() -> None:
    fixed_then_linear = [(n, max(100.0, n)) for n in (1, 10, 100, 1000, 10_000)]
    assert list(kinks(fixed_then_linear)) == [(100, pytest.approx(0), pytest.approx(1))]
    noisy = [(10, 10.4), (30, 29.0), (100, 104.0), (300, 290.0)]
    assert list(kinks(noisy)) == []


def test_growth_is_told_a_line_at_a_time_and_skips_what_was_not_run() -> None:
    record = Record("scale", "Scale")
    table = record.table("time", "Time", unit="s", better="neither")
    for d, power in ((2, 1), (8, 2)):
        for n in (10, 100, 1000):
            table.add("ours", {"d": d, "n": n}, [float(n**power)])
    table.add("ours", {"d": 8, "n": 10_000}, [], note="not run")
    growth = note_growth(record, table, "n")
    told = {(row.case["d"], row.subject): row.median or row.note for row in growth.rows}
    assert told[2, "fitted over all"] == pytest.approx(1)
    assert told[8, "between the two largest"] == pytest.approx(2)
    assert told[8, "kinks"] == "none"
    assert record.tables[-1].title == "Time: exponents in n"
