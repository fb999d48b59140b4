"""A fixed sample of the fuzzed requests of /control."""

import numpy as np
import pytest

from tests.fuzz.control import KINDS, check, draw


@pytest.mark.parametrize("kind", KINDS)
def test_control_agrees_with_rational_arithmetic(kind: str) -> None:
    outcomes = []
    for number in range(160):
        case = draw(np.random.default_rng([1, number]))
        if case.kind == kind:
            outcomes.append(check(case))
    assert {"feasible", "infeasible"} <= set(outcomes)
    assert "missed" not in outcomes
