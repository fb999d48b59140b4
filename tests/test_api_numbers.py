"""Numbers read in pieces are the numbers that were sent."""

from __future__ import annotations

import gc
import json
import sys
import threading
import time

import numpy as np
import pytest

from service.api.numbers import ROWS, WHOLE, read_document, read_rows, write_document, write_rows
from service.errors import HardmaxError, InvalidInput, MalformedInput, TooLarge

LIMITS = {"max_rows": 10**6, "max_columns": 10}
POINTS = np.random.default_rng(0).normal(size=(20_000, 3)).tolist()
LONG = json.dumps(POINTS)
SPACED = LONG.replace("], [", "]  ,\n [").replace(", ", " , ")


def read(text: str) -> tuple[np.ndarray, dict[str, object]]:
    document = read_document(text.encode(), "points")
    return read_rows(document.pop("points"), "points", **LIMITS), document


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
    assert len(text) > WHOLE
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


def test_long_points_are_refused_at_the_limit_and_not_read_to_their_end() -> None:
    document = read_document(f'{{"points": {LONG}}}'.encode(), "points")
    with pytest.raises(TooLarge, match="more than 5000"):
        read_rows(document["points"], "points", max_rows=5000, max_columns=3)


def test_large_documents_without_a_plain_array_are_refused_unparsed() -> None:
    with pytest.raises(InvalidInput):
        read_document(b'{"points": {"x": "' + b"a" * 5_000_000 + b'"}}', "points")


@pytest.mark.parametrize("rows", [0, 1, ROWS, ROWS + 1, 3 * ROWS])
def test_rows_are_written_as_json_writes_them(rows: int) -> None:
    array = np.random.default_rng(1).normal(size=(rows, 2))
    assert json.loads(b"".join(write_rows(array))) == array.tolist()


def test_documents_with_arrays_in_them_are_written_whole() -> None:
    long = np.arange(3 * ROWS)
    document = {
        "a": {"b": long, "c": [np.ones((2, 2)), np.zeros((1, 2))]},
        "d": [{"e": 1}] * (ROWS + 5),
        "f": None,
    }
    found = json.loads(b"".join(write_document(document)))
    assert found == {
        "a": {"b": long.tolist(), "c": [[[1, 1], [1, 1]], [[0, 0]]]}, "d": [{"e": 1}] * (ROWS + 5), "f": None,
    }  # fmt: skip


def test_reading_two_hundred_thousand_points_leaves_the_interpreter_to_others() -> None:
    """Counted in the reader's CPU time between two turns of another thread, however busy the machine is."""
    body = json.dumps({"points": np.random.default_rng(2).normal(size=(200_000, 2)).tolist()}).encode()
    turns: list[float] = []
    done = threading.Event()
    clock = {"reader": 0}

    def other() -> None:
        while not done.is_set():
            turns.append(time.clock_gettime(clock["reader"]))
            time.sleep(0.0005)

    clock["reader"] = time.pthread_getcpuclockid(threading.get_ident())
    thread = threading.Thread(target=other)
    gc.collect()
    gc.freeze()  # as a started server does: what other tests left here is not the reader's to collect
    try:
        thread.start()
        points = read_rows(read_document(body, "points")["points"], "points", **LIMITS)
        b"".join(write_rows(points))
    finally:
        done.set()
        thread.join()
        gc.unfreeze()
    assert len(points) == 200_000
    # A busy machine may keep the other thread waiting now and then; a reader that holds the lock, always.
    assert len(turns) > 8
    assert np.median(np.diff(turns)) < 0.05
    assert sys.getswitchinterval() <= 0.005
