"""Runs a target on as many inputs as asked for, and counts them."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.fuzz.targets import Target

ROUND = 250  # draws: hypothesis keeps a tree of them, and each round grows another


def run(target: Target, cases: int, counts: dict[str, int], *, repeatable: bool = False) -> None:
    """At least `cases` inputs unless there are no more; raises what the first failing one raised."""
    before = -1
    while cases > sum(counts.values()) > before:
        before = sum(counts.values())
        draws = -(-(cases - before) // (1 + target.mutants))
        _round(target, min(ROUND, draws), counts, repeatable)


def _round(target: Target, draws: int, counts: dict[str, int], repeatable: bool) -> None:
    @settings(
        max_examples=draws,
        deadline=None,
        database=None,
        derandomize=repeatable,
        suppress_health_check=list(HealthCheck),
    )
    @given(target.inputs, st.integers(0, 2**32 - 1))
    def judge(drawn: Any, seed: int) -> None:
        for case in target.cases(drawn, seed):
            note(f"input: {case!r}")
            counts["accepted" if target.check(case) else "refused"] += 1

    judge()
