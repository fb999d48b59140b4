"""Clouds before they run: what is refused by name, merging of equal points, and scaling."""

import time
from typing import Any

import numpy as np
import pytest
from clouds import Floats, leader_since, load_dynamics, run

from service.cloud.dynamics import Dynamics, Limits, Parameters
from service.cloud.points import merge, prepare
from service.errors import InvalidInput, TooLarge

SHORT = np.array([[1e-300, 0], [1e200, 0]])
SQUARE = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])


def square_with(row: int, column: int, value: float) -> Floats:
    points = SQUARE.copy()
    points[row, column] = value
    return points


@pytest.mark.parametrize(
    ("points", "form", "param", "message"),
    [
        (np.zeros((0, 2)), None, "points", "points is empty"),
        (np.zeros((3, 0)), None, "points", "points is empty"),
        (np.ones(3), None, "points", "points has 1 axes, expected 2"),
        (square_with(2, 1, np.nan), None, "points[2][1]", "points[2][1] is not a finite number"),
        (square_with(3, 0, -np.inf), None, "points[3][0]", "points[3][0] is not a finite number"),
        (square_with(1, 1, 0.0), None, "points[1]", "points[1] is zero"),
        (SHORT, None, "points[0]", "points[0] has entries too small relative to those of others"),
        (SQUARE, np.eye(3), "A", "A is 3 x 3, expected 2 x 2"),
        (SQUARE, np.ones((2, 3)), "A", "A is 2 x 3, expected 2 x 2"),
        (SQUARE, np.ones(4), "A", "A is 4, expected 2 x 2"),
        (SQUARE, np.ones((1, 2)), "A", "A is 1 x 2, expected 2 x 2"),
        (SQUARE, [[1.0, np.nan], [0.0, 1.0]], "A", "A has entries that are not finite numbers"),
        (SQUARE, [[1.0, 0.5], [0.4, 1.0]], "A", "A is not symmetric: A[0][1] differs from A[1][0]"),
        (SQUARE, [[1.0, 2.0], [2.0, 1.0]], "A", "A is not positive definite"),
        (SQUARE, [[1.0, 1.0], [1.0, 1.0]], "A", "A is not positive definite"),
        (SQUARE, [[0.0, 0.0], [0.0, 0.0]], "A", "A is not positive definite: it is zero"),
        (SQUARE, [[-1.0, 0.0], [0.0, -1.0]], "A", "A is not positive definite"),
        # The small entries were once lost, which made an exact tie where there is none.
        (SQUARE, [[1e300, 1e-30], [1e-30, 1e300]], "A", "A has entries too small relative to others"),
    ],
)
def test_cloud_refuses_points_and_forms_by_place(points: Floats, form: Any, param: str, message: str) -> None:
    with pytest.raises(InvalidInput) as exc_info:
        load_dynamics().run(points, Parameters(A=None if form is None else np.asarray(form)))
    assert exc_info.value.param == param
    assert exc_info.value.message.startswith(message)


@pytest.mark.parametrize(
    ("shape", "parameters", "limits", "message"),
    [
        ((5, 2), Parameters(), Limits(max_points=4), "points has more than 4 rows"),
        ((5, 4), Parameters(), Limits(max_dimension=3), "points has more than 3 columns"),
        ((5, 4), Parameters(max_layers=11), Limits(max_layers=10), "max_layers is 11, the limit is 10"),
        ((1000, 4), Parameters(), Limits(max_bytes=2**20), "1000 points in 4 dimensions need"),
        ((1000, 200), Parameters(stop="never", include=frozenset({"trajectory"}), max_layers=5000), Limits(),
         "a trajectory of 5001 layers of 1000 points needs more than"),
    ],
)  # fmt: skip
def test_dynamics_over_a_limit_is_refused_before_it_starts(
    shape: tuple[int, int], parameters: Parameters, limits: Limits, message: str
) -> None:
    limited = Dynamics(load_dynamics().graph, limits)
    with pytest.raises(TooLarge) as exc_info:
        limited.run(np.ones(shape), parameters)
    assert exc_info.value.message.startswith(message)


@pytest.mark.parametrize(
    ("x", "form"), [*((x, None) for x in (1e-10, 1e-100, 5e-324)), (1.0, np.diag([1.0, 1e-13]))]
)
def test_dynamics_takes_lengths_and_forms_of_any_size_that_double_precision_holds(
    x: float, form: Floats | None
) -> None:
    result = run(square_with(0, 0, x), A=form)
    assert result.status == "certified"
    assert result.limits.tolist()[1:] == SQUARE.tolist()[1:]
    assert leader_since(result).tolist() == [0, 0, 0, 0]


def test_merge_joins_equal_rows_in_order_and_no_others() -> None:
    rng = np.random.default_rng(0)
    points = rng.integers(-4, 5, (500, 2)).astype(np.float64)
    first, inverse = merge(points)
    np.testing.assert_array_equal(points[first][inverse], points)
    assert len(first) == len(np.unique(points, axis=0))
    assert (np.diff(first) > 0).all()
    assert [int(np.flatnonzero((points == points[i]).all(axis=1))[0]) for i in first] == first.tolist()


def hostile_clouds(n: int) -> dict[str, Floats]:
    """Return points that share a hash with the multipliers of seed 0, and pairs that differ in three bits."""
    rng = np.random.default_rng(1)
    multipliers = np.random.default_rng(0).integers(0, 2**63, 2, np.uint64) * np.uint64(2) + np.uint64(1)
    reciprocal = np.uint64(pow(int(multipliers[1]), -1, 2**64))
    x = rng.normal(size=8 * n).view(np.uint64)
    hash_of_x = (x ^ (x >> np.uint64(29))) * multipliers[0]
    hash_of_y = np.uint64(12345) - (hash_of_x ^ (hash_of_x >> np.uint64(32)))
    y = (hash_of_y ^ (hash_of_y >> np.uint64(32))) * reciprocal
    y ^= y >> np.uint64(29)
    y ^= y >> np.uint64(58)
    colliding = np.stack([x, y], axis=1).view(float)
    colliding = colliding[np.isfinite(colliding).all(axis=1)][:n]
    points = rng.normal(size=(n // 2, 2))
    neighbours = (points.view(np.uint64) ^ np.uint64(1 << 63 | 1 << 34 | 1 << 5)).view(float)
    return {"colliding": colliding, "similar": np.concatenate([points, neighbours])}


def cpu_s(points: Floats) -> float:
    start_s = time.thread_time()
    assert len(merge(points)[0]) == len(points)
    return time.thread_time() - start_s


@pytest.mark.alone
@pytest.mark.parametrize("name", ["colliding", "similar"])
def test_merge_of_hostile_points_is_as_fast_as_of_random_ones(name: str) -> None:
    hostile, random = hostile_clouds(100_000)[name], np.random.default_rng(2).normal(size=(100_000, 2))
    assert len(hostile) == 100_000
    ratio = min(cpu_s(hostile) for _ in range(3)) / min(cpu_s(random) for _ in range(3))
    assert ratio < 5, "it fell back to the slow sort"


def test_merge_separates_neighbouring_floats_and_joins_the_two_zeros() -> None:
    points = np.array([[1.0, 2.0], [np.nextafter(1.0, 2.0), 2.0], [1.0, 2.0]])
    assert merge(points)[1].tolist() == [0, 1, 0]
    zeros = np.array([[0.0, 1.0], [-0.0, 1.0]])
    assert prepare(zeros, None).counts.tolist() == [2]


def test_cloud_scales_by_a_power_of_two_and_restores_to_the_bit() -> None:
    points = np.random.default_rng(1).standard_normal((50, 3)) * 1e-310
    cloud = prepare(points, None)
    assert 0.5 <= np.abs(cloud.points).max() < 1
    np.testing.assert_array_equal(cloud.restore(cloud.points)[cloud.inverse], points)
