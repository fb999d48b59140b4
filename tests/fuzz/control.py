"""Answers of /control compared with rational arithmetic: `python -m tests.fuzz.control --cases 20000`.

Flat clouds with unequal scales, whole numbers with ties, twins, general clouds. Half of the requests are read
off a known form, so that a form exists; the others are drawn at random. A form must do what was asked, its
margin must be that of the form as printed, and a refusal must be proved by its certificate. `missed` counts
clouds of whole numbers for which a form is known and none was found: there must be none.
"""

import argparse
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from benchmarks.record import Record
from model_export.attention.reference import exactly, scores
from tests.support.control_checks import assert_feasible, assert_refuted, find

KEPT = 20_000
SCALES = np.array([1.0, 1.0, 3.0, 24.0, 100.0, 2.0**20])
ENDS = ("feasible", "infeasible", "undecided", "missed", "contradicted")


@dataclass(frozen=True)
class Case:
    """A cloud and the leaders wanted for some of its points. `known`: some form does it."""

    kind: str
    points: Any
    assignment: dict[int, int]
    known: bool


def draw(rng: np.random.Generator) -> Case:
    kind = str(rng.choice(list(KINDS)))
    points, scale = KINDS[kind](rng, int(rng.integers(2, 9)), int(rng.integers(2, 5)))
    points = points[points.any(axis=1)] + 0.0
    if not len(points):
        points = np.ones((1, len(scale)))
    known = bool(rng.random() < 0.5)
    assignment = _read_off(rng, points, scale) if known else {}
    if not assignment:
        known, assignment = False, _at_random(rng, len(points))
    return Case(kind, points, assignment, known)


def _flat(rng: np.random.Generator, n: int, d: int) -> tuple[Any, Any]:
    """Fewer directions than coordinates, and coordinates of unequal scales."""
    basis = rng.integers(-2, 3, (int(rng.integers(1, d)), d))
    scale = rng.choice(SCALES, d)
    return rng.integers(-3, 4, (n, len(basis))) @ basis * scale, scale


def _ties(rng: np.random.Generator, n: int, d: int) -> tuple[Any, Any]:
    return rng.integers(-2, 3, (n, d)).astype(float), np.ones(d)


def _twins(rng: np.random.Generator, n: int, d: int) -> tuple[Any, Any]:
    points = rng.integers(-3, 4, (n, d)).astype(float)
    return points[rng.integers(0, n, n + 3)], np.ones(d)


def _general(rng: np.random.Generator, n: int, d: int) -> tuple[Any, Any]:
    scale = 10.0 ** rng.uniform(-6, 6, d)
    return rng.standard_normal((n, d)) * scale, scale


KINDS = {"flat": _flat, "ties": _ties, "twins": _twins, "general": _general}


def _read_off(rng: np.random.Generator, points: Any, scale: Any) -> dict[int, int]:
    """What a form makes of the cloud at layer 0: tokens whose set is one point (or its twins) that leads."""
    B = exactly(rng.integers(-2, 3, (len(scale), len(scale))).astype(float)) / exactly(scale)
    A = B.T @ B + np.diag(1 / exactly(scale) ** 2)
    z = exactly(points)
    top = scores(z, z, A)
    top = top == top.max(axis=1, keepdims=True)
    twin = (z[:, None] == z).all(axis=2)
    first = {i: int(row.argmax()) for i, row in enumerate(top) if (row == twin[row.argmax()]).all()}
    return {i: leader for i, leader in first.items() if first.get(leader) == leader}


def _at_random(rng: np.random.Generator, n: int) -> dict[int, int]:
    leaders = rng.integers(0, n, int(rng.integers(1, 4)))
    followers = rng.integers(0, n, int(rng.integers(0, 6)))
    return {int(i): int(rng.choice(leaders)) for i in followers} | {int(i): int(i) for i in leaders}


def check(case: Case) -> str:
    """How the request ended; an AssertionError where rational arithmetic says otherwise."""
    found = find(case.points, case.assignment)
    wanted = case.assignment | {leader: leader for leader in case.assignment.values()}
    if found.feasible:
        assert_feasible(case.points, wanted, found)
        return "feasible"
    if found.feasible is False:
        assert not case.known
        assert_refuted(case.points, found)
        return "infeasible"
    return "missed" if case.known and case.kind != "general" else "undecided"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=KEPT)
    cases = parser.parse_args().cases
    record = Record("fuzz-control", "Leader constraints compared with exact fractions", ["numpy"])
    counts = Counter[tuple[str, str]]()
    for number in range(cases):
        case = draw(np.random.default_rng([0, number]))
        try:
            end = check(case)
        except Exception as failure:
            end = "contradicted"
            print(f"case {number} ({case.kind}): {type(failure).__name__} {failure}", flush=True)
        if end == "missed":
            print(f"case {number} ({case.kind}): no form found for {case.assignment}", flush=True)
        counts[case.kind, end] += 1
    table = record.table("Requests by kind and outcome", unit="requests")
    for kind, end in product(KINDS, ENDS):
        table.add(end, {"kind": kind}, [counts[kind, end]])
    found = {end: sum(counts[kind, end] for kind in KINDS) for end in ENDS}
    print(f"{cases} cases: {found}")
    if cases >= KEPT:
        record.write()
    return int(found["contradicted"] + found["missed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
