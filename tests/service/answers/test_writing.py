"""Documents are written in blocks, which together are what the json module would write."""

import gc
import json
import time
from collections.abc import Iterable, Iterator
from itertools import repeat

import numpy as np
import pytest

from service.answers.writing import (
    JSON_BLOCK_BYTES,
    NUMBERS_PER_CALL,
    RECORDS_PER_BLOCK,
    Records,
    join_blocks,
    write_document,
)
from service.errors import TooLarge


@pytest.mark.parametrize(
    "rows", [0, 1, NUMBERS_PER_CALL // 2, NUMBERS_PER_CALL // 2 + 1, 3 * NUMBERS_PER_CALL]
)
def test_rows_are_written_as_json_writes_them(rows: int) -> None:
    array = np.random.default_rng(1).normal(size=(rows, 2))
    assert json.loads(b"".join(write_document({"rows": array}))) == {"rows": array.tolist()}


def test_long_lists_are_written_in_blocks_and_released() -> None:
    data = [{"index": i, "words": [{"text": "a" * 2000}]} for i in range(1000)]
    expected = json.dumps({"id": "me", "data": data})
    blocks = list(write_document({"id": "me", "data": data}))
    assert json.loads(b"".join(blocks)) == json.loads(expected)
    assert max(map(len, blocks)) < 2 * JSON_BLOCK_BYTES
    assert data == [None] * 1000


def test_documents_with_arrays_are_written_as_json_writes_them() -> None:
    array = np.arange(3 * NUMBERS_PER_CALL)
    count = RECORDS_PER_BLOCK + 5
    records = Records(
        id=np.arange(count),
        kind=np.where(np.arange(count) % 2, "a", "b"),
        point=np.full((count, 2), np.inf),
        leaders=[np.arange(i % 3) for i in range(count)],
    )
    document = {
        "a": {"b": array, "c": [np.ones((2, 2)), np.zeros((1, 2))]},
        "d": records, "e": Records(id=np.arange(0)), "f": None, "g": {},
    }  # fmt: skip
    rows = [
        {"id": i, "kind": "ba"[i % 2], "point": [None, None], "leaders": list(range(i % 3))}
        for i in range(count)
    ]
    assert json.loads(b"".join(write_document(document))) == {
        "a": {"b": array.tolist(), "c": [[[1, 1], [1, 1]], [[0, 0]]]}, "d": rows, "e": [], "f": None, "g": {},
    }  # fmt: skip


def step_times_s(work: Iterable[object]) -> Iterator[float]:
    """Yield the CPU time of every step, which does not depend on the load of the machine."""
    start_s = time.thread_time()
    for _ in work:
        yield time.thread_time() - start_s
        start_s = time.thread_time()


@pytest.mark.alone
def test_long_documents_are_written_in_short_steps() -> None:
    count = 200_000
    points = np.random.default_rng(3).normal(size=(count, 2))
    records = Records(index=np.arange(count), point=points, leaders=[*np.arange(count)[:, None]])
    blocks = write_document({"leaders": records, "limits": points, "wide": points.reshape(-1, 400)})
    gc.collect()
    gc.freeze()  # as a started server does: the objects of other tests are not collected in these steps
    try:
        assert max(step_times_s(blocks)) < 0.05
    finally:
        gc.unfreeze()


def test_response_that_becomes_too_long_is_refused_while_it_is_written() -> None:
    block = bytes(1_000_000)
    assert join_blocks([block] * 3) == block * 3
    with pytest.raises(TooLarge, match="over 256 MB: ask for less at once"):
        join_blocks(repeat(block))
