"""Answers are written as the json module would write them."""

import json

import numpy as np
import pytest

from service.errors import TooLarge
from service.wire.documents import MAX_ANSWER_BYTES, check_answer, write, write_entries, write_list


def test_documents_with_arrays_are_written_as_json_writes_them() -> None:
    points = np.arange(6.0).reshape(3, 2)
    document = {
        "rows": points, "column": points[:, 1], "members": [np.arange(2), np.arange(0)],
        "kinds": np.array(["tie", "leader"]), "not finite": np.array([np.nan, np.inf]), "none": None,
    }  # fmt: skip
    assert json.loads(write(document)) == {
        "rows": [[0, 1], [2, 3], [4, 5]], "column": [1, 3, 5], "members": [[0, 1], []],
        "kinds": ["tie", "leader"], "not finite": [None, None], "none": None,
    }  # fmt: skip


@pytest.mark.parametrize("count", [0, 1, 3])
def test_lists_are_written_entry_by_entry(count: int) -> None:
    entries = [{"index": i, "words": ["a"] * i} for i in range(count)]
    assert write_list(entries) == write(entries)
    document = {"id": "me", "usage": {"texts": count}, "data": entries}
    assert write_entries(document) == write(document)
    assert write_entries({"data": entries}) == write({"data": entries})


def test_answer_over_the_limit_is_refused() -> None:
    answer = bytes(MAX_ANSWER_BYTES)
    assert check_answer(answer) is answer
    with pytest.raises(TooLarge, match="over 64 MB: ask for less at once"):
        check_answer(answer + b" ")
