"""Arrays in JSON and npy bodies: they are read exactly, or refused by the place at fault."""

import json

import numpy as np
import pytest
from raw_http import npy

from service.errors import InvalidInput
from service.wire.arrays import as_array, read_arrays, read_npy, read_rows

LIMITS = {"max_rows": 10**6, "max_columns": 10}
POINTS = np.random.default_rng(0).normal(size=(20_000, 3)).tolist()
LONG = json.dumps(POINTS)


def read(text: str) -> tuple[np.ndarray, dict[str, object]]:
    return read_rows(text.encode(), "points", **LIMITS)


@pytest.mark.parametrize(
    ("row", "param"),
    [
        ("[1]", "points[20000]"),
        ("[1, 2, NaN]", "points[20000][2]"),
        ('[1, 2, "3"]', "points[20000][2]"),
        ("[1, 2, null]", "points[20000][2]"),
        ("[]", "points[20000]"),
        ("7", "points[20000]"),
    ],
)
def test_error_in_long_points_names_its_index(row: str, param: str) -> None:
    with pytest.raises(InvalidInput) as exc_info:
        read(f'{{"points": {LONG[:-1]}, {row}]}}')
    assert exc_info.value.param == param


SEQUENCES = [POINTS[:7], POINTS[7:9000], POINTS[9000:9001], *([[point] for point in POINTS[9001:12000]])]


def read_sequences(text: str, max_sequences: int = 3003, **limits: int) -> list[np.ndarray]:
    body = f'{{"model": "m", "sequences": {text}}}'.encode()
    sequences, document = read_arrays(body, "sequences", max_arrays=max_sequences, **(LIMITS | limits))
    assert document == {"model": "m"}
    return sequences


def test_sequences_are_read_as_json_reads_them() -> None:
    assert [array.tolist() for array in read_sequences(json.dumps(SEQUENCES))] == SEQUENCES


@pytest.mark.parametrize(
    ("sequence", "param"),
    [
        ("[[1, 2, 3], [1, 2]]", "sequences[3002][1]"),
        ("[[1, 2, 3], [1, 2, NaN]]", "sequences[3002][1][2]"),
        ("[]", "sequences[3002]"),
        ("7", "sequences[3002]"),
        ("[[[1]]]", "sequences[3002][0][0]"),
    ],
)
def test_error_in_long_sequences_names_its_index(sequence: str, param: str) -> None:
    with pytest.raises(InvalidInput) as exc_info:
        read_sequences(f"{json.dumps(SEQUENCES)[:-1]}, {sequence}]")
    assert exc_info.value.param == param


@pytest.mark.parametrize(
    ("rows", "param"),
    [
        ([[2**53, 1]], None),
        ([[2**53 + 1, 1]], "points[0][0]"),
        ([[1, 0.5], [2**60, -(2**60) - 1]], "points[1][1]"),
        ([[2**60, 1e300]], None),
    ],
)
def test_integers_of_json_are_exact_or_refused(rows: list[list[float]], param: str | None) -> None:
    if param is None:
        assert as_array(rows, "points", max_rows=9, max_columns=9).tolist() == rows
        return
    with pytest.raises(InvalidInput) as exc_info:
        as_array(rows, "points", max_rows=9, max_columns=9)
    assert exc_info.value.param == param


@pytest.mark.parametrize(
    ("array", "param"),
    [
        (np.array([[2**53 + 2, 1]]), None),
        (np.array([[1, 2**53 + 1]]), "points[0][1]"),
        (np.array([[2**63 - 1, 1]]), "points[0][0]"),
        (np.array([[-(2**63), 1]]), None),
        (np.array([[2**63]], np.uint64), None),
        (np.array([[2**64 - 1]], np.uint64), "points[0][0]"),
        (np.array([[0.1]], np.float32), None),
        (np.array([[1.5]], np.longdouble), None),
        (np.array([[np.longdouble(1) / 3]]), "points[0][0]"),
    ],
)
def test_arrays_are_exact_or_refused(array: np.ndarray, param: str | None) -> None:
    if param is None:
        assert (read_npy(npy(array), "points", max_rows=9, max_columns=9) == array).all()
        return
    with pytest.raises(InvalidInput) as exc_info:
        read_npy(npy(array), "points", max_rows=9, max_columns=9)
    assert exc_info.value.param == param
