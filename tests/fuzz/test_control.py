"""Some hundred of the fuzzed requests of /control, always the same."""

import numpy as np
import pytest

from tests.fuzz.control import KINDS, check, draw


@pytest.mark.parametrize("kind", KINDS)
def test_control_agrees_with_rational_arithmetic(kind: str) -> None:
    ends = []
    for number in range(160):
        case = draw(np.random.default_rng([1, number]))
        if case.kind == kind:
            ends.append(check(case))
    assert {"feasible", "infeasible"} <= set(ends)
    assert "missed" not in ends
