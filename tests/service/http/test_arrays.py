"""Numbers are read as they were sent."""

from __future__ import annotations

import json

import numpy as np
import pytest

from service.answers.arrays import read_arrays, read_rows
from service.errors import HardmaxError, InvalidInput, MalformedInput, TooLarge

LIMITS = {"max_rows": 10**6, "max_columns": 10}
POINTS = np.random.default_rng(0).normal(size=(20_000, 3)).tolist()
LONG = json.dumps(POINTS)
SPACED = LONG.replace("], [", "]  ,\n [").replace(", ", " , ")


def read(text: str) -> tuple[np.ndarray, dict[str, object]]:
    return read_rows(text.encode(), "points", **LIMITS)


@pytest.mark.parametrize(
    "text",
    [
        f'{{"points": {LONG}, "alpha": 2}}',
        f'{{"alpha": 2, "points": {LONG}}}',
        f' \n{{"A": [[1, 0], [0, 1]], "include": ["a", "points"], "alpha": 2,\t"points" : {LONG} \r\n}} ',
        f'{{"note": "\\"points\\": [[9]]", "points": {LONG}, "alpha": 2}}',
        f'{{"points": {SPACED}, "alpha": 2}}',
        f'{{"points": {json.dumps(POINTS, indent=1)}, "alpha": 2}}',
        f'{{"odd": {{"deep": [1, {{"points": 1}}]}}, "points": {json.dumps(POINTS[:9000])}, "alpha": 2}}',
    ],
)
def test_long_points_are_read_as_json_reads_them(text: str) -> None:
    points, rest = read(text)
    expected = json.loads(text)
    assert points.tolist() == expected.pop("points")
    assert rest == expected


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("]]", "]", MalformedInput),
        ("]]", "]]]", MalformedInput),
        ("[[", "[[[", HardmaxError),
        ("]]", "], [1, 2]]", InvalidInput),
        ("]]", "], [1, 2, NaN]]", InvalidInput),
        ("]]", "], [1, 2, -Infinity]]", InvalidInput),
        ("]]", '], [1, 2, "3"]]', HardmaxError),
        ("]]", "], [1, 2, null]]", HardmaxError),
        ("]]", "], []]", InvalidInput),
        ("]]", "], 7]", InvalidInput),
        ("]]", "],, [1, 2, 3]]", MalformedInput),
        ("]]", "], [1, 2, 3],]", MalformedInput),
    ],
)
def test_long_points_that_are_broken_are_refused(old: str, new: str, kind: type[HardmaxError]) -> None:
    text = LONG.replace(old, new, 1) if old == "[[" else LONG[: -len(old)] + new
    with pytest.raises(kind):
        read(f'{{"points": {text}}}')


def test_long_points_name_the_place_at_fault_by_its_index_in_the_whole() -> None:
    broken = [*POINTS, [1.0, 2.0, float("inf")]]
    with pytest.raises(InvalidInput) as refused:
        read(json.dumps({"points": broken}))
    assert refused.value.param == "points[20000][2]"
    with pytest.raises(InvalidInput) as refused:
        read(json.dumps({"points": [*POINTS, [1.0]]}))
    assert (refused.value.param, refused.value.message) == (
        "points[20000]", "points[20000] has 1 numbers, expected 3",
    )  # fmt: skip


def test_points_over_the_limit_are_refused_by_their_number() -> None:
    with pytest.raises(TooLarge, match="more than 5000"):
        read_rows(f'{{"points": {LONG}}}'.encode(), "points", max_rows=5000, max_columns=3)
    with pytest.raises(TooLarge, match="more than 10 columns"):
        read('{"points": [[' + "1," * 200_000 + "1]]}")


@pytest.mark.parametrize("last", [LONG, json.dumps(POINTS[:2])])
def test_of_points_given_twice_the_last_count_as_in_json(last: str) -> None:
    points, _ = read(f'{{"points": {LONG}, "points": {last}}}')
    assert points.tolist() == json.loads(last)


SEQUENCES = [POINTS[:7], POINTS[7:9000], POINTS[9000:9001], *([[point] for point in POINTS[9001:12000]])]


def read_sequences(text: str, most: int = 3003, **limits: int) -> list[np.ndarray]:
    body = f'{{"model": "m", "sequences": {text}}}'.encode()
    sequences, document = read_arrays(body, "sequences", most=most, **(LIMITS | limits))
    assert document == {"model": "m"}
    return sequences


@pytest.mark.parametrize("few", [True, False])
def test_sequences_are_read_as_json_reads_them(few: bool) -> None:
    sequences = [sequence[:3] for sequence in SEQUENCES[:5]] if few else SEQUENCES
    text = json.dumps(sequences)
    for written in (text, text.replace("]], [[", "] ]\n ,[ [")):
        assert [array.tolist() for array in read_sequences(written)] == sequences


@pytest.mark.parametrize(
    ("end", "kind", "param"),
    [
        (", [[1, 2, 3], [1, 2]]]", InvalidInput, "sequences[3002][1]"),
        (", [[1, 2, 3], [1, 2, NaN]]]", InvalidInput, "sequences[3002][1][2]"),
        (", []]", InvalidInput, "sequences[3002]"),
        (", 7]", InvalidInput, "sequences[3002]"),
        (", [[[1]]]]", InvalidInput, "sequences[3002][0][0]"),
        (", [[1, 2, 3]]]]", MalformedInput, None),
        (", [[1, 2, 3]]", MalformedInput, None),
        ("", MalformedInput, None),
    ],
)
def test_long_sequences_that_are_broken_are_refused(
    end: str, kind: type[HardmaxError], param: str | None
) -> None:
    with pytest.raises(kind) as refused:
        read_sequences(json.dumps(SEQUENCES)[:-1] + end)
    assert refused.value.param == param


def test_long_sequences_are_refused_over_their_limits() -> None:
    text = json.dumps(SEQUENCES)
    with pytest.raises(TooLarge, match="more than 3001 sequences"):
        read_sequences(text, most=3001)
    with pytest.raises(TooLarge, match=r"sequences\[1\] has more than 8992 rows"):
        read_sequences(text, max_rows=8992)
