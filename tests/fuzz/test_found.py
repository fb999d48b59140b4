"""What fuzzing found, kept for ever: each input once crashed a parser or was read wrongly."""

import json
from pathlib import Path

import pytest
from bundles import open_head

from service.answers.arrays import read_npy
from service.answers.writing import write_document
from service.errors import InvalidInput, MalformedInput
from service.texts.work import RunOptions, texts_of

LIMITS = {"max_rows": 10, "max_columns": 10}


def test_npy_header_with_an_open_bracket_is_malformed() -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (hape': (1,), }".ljust(117) + b"\n"
    with pytest.raises(MalformedInput, match="not an npy file"):
        read_npy(b"\x93NUMPY\x01\x00v\x00" + header + bytes(8), "points", **LIMITS)


def test_empty_object_is_written_as_one() -> None:
    assert json.loads(b"".join(write_document({"a": {}}))) == {"a": {}}


def test_half_a_character_is_refused_by_the_text_it_is_in(tmp_path: Path) -> None:
    how = RunOptions((open_head(tmp_path),))
    with pytest.raises(InvalidInput, match="half a character") as refused:
        texts_of(["superb", "caf\ud800"], how)
    assert refused.value.param == "input[1]"
