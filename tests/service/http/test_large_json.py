"""A document that is read in pieces is the document, wherever it is cut."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from pydantic_core import from_json

from service.errors import InvalidInput, MalformedInput, TooLarge
from service.http.large_json import PIECE, read_large

TOO_LONG = TooLarge("a string is too long")
PIECES = (1, 2, 5, 17)  # bytes: a cut at each comma, or at some
WHOLE: list[Any] = [
    {}, {"a": []}, {"a": [[], {}, [{}]], "b": {"c": {}}}, {"a": "x,y", "b,": '",', "[{": "]},"},
    {"a": [1, -2.5e3, True, None, float("inf")], "b": {"c": [[1, 2], [3]], "d": "\\"}, "e": "\\\""},
    {"\0": "\0", "é": ["\N{GRINNING FACE}", " " * 90], "a": [[[[1, 2], [3, 4]]], 5]},
]  # fmt: skip
BROKEN = [
    '{"a": [1,,2]}', '{"a": [1, 2,]}', '{"a": 1,}', '{,"a": 1}', '{"a": [,1]}', '{"a": [1, ,2]}',
    '{"a": 1} , 2', '{"a": [1, 2}]', '{"a": [1, 2]]', '{"a": [1, 2]', '{"a": 1, 2}', '{"a": [1, "b": 2]}',
    '{"a" 1, "b": 2}', '{"a": 1, "b}', '{"a": "b", \\"c": 1}', "", ",", "{" * 300,
    '{"a": ' + "[" * 300 + "1, 2" + "]" * 300 + "}",
]  # fmt: skip


def read(body: bytes, piece: int) -> object:
    *_, (document, _) = read_large(body, longest=1000, refusal=TOO_LONG, piece=piece)
    return document


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("indent", [None, 3])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_document_is_read_as_it_is_in_one_piece(piece: int, indent: int | None, ascii_only: bool) -> None:
    for document in WHOLE:
        text = json.dumps(document, indent=indent, ensure_ascii=ascii_only)
        assert read(text.encode(), piece) == document, text


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("text", BROKEN)
def test_what_is_no_document_is_refused(text: str, piece: int) -> None:
    with pytest.raises(MalformedInput):
        read(text.encode(), piece)


def test_wounded_document_is_judged_as_it_is_in_one_piece() -> None:
    chance = random.Random(7)
    outcomes = set()
    for _ in range(1500):
        body = json.dumps(chance.choice(WHOLE[2:]), indent=chance.choice([None, 2])).encode()
        at = chance.randrange(len(body))
        wound = chance.choice([b",", b"[", b"]", b"{", b"}", b'"', b"\\", b":", b" ", b"0", b'"a": 1,', b""])
        body = body[:at] + wound + body[at + chance.randrange(2) :]
        try:
            expected = from_json(body, allow_inf_nan=True)
        except ValueError:
            expected = MalformedInput
        try:
            found = read(body, chance.choice(PIECES))
        except MalformedInput:
            found = MalformedInput
        except InvalidInput:
            continue  # the object ended early, or one has a name twice
        outcomes.add(found is MalformedInput)
        assert found == expected, body
    assert outcomes == {True, False}


def test_name_given_twice_is_as_in_json_or_refused() -> None:
    assert read(b'{"a": [1, 2], "b": 3, "a": 4}', 1) == {"a": 4, "b": 3}
    with pytest.raises(InvalidInput, match="a name twice"):
        read(b'{"a": [1], "b": 3, "a": [2, ' + b"4" * 50 + b"]}", 28)


def test_caller_may_take_what_will_not_change() -> None:
    body = json.dumps({"a": list(range(100)), "b": 1}).encode()
    taken: list[int] = []
    document: dict[str, Any] = {}
    for document, _ in read_large(body, longest=100, refusal=TOO_LONG, piece=10):
        row = document.get("a", [])
        taken += row[:-1]
        del row[:-1]
    assert (taken, document) == (list(range(99)), {"a": [99], "b": 1})


def test_document_is_never_far_ahead_of_what_is_shown() -> None:
    body = json.dumps({"a": ["x" * 50] * 50_000}).encode()
    seen = [parts for _, parts in read_large(body, longest=100_000, refusal=TOO_LONG)]
    assert len(seen) > len(body) // PIECE
    assert 49_000 < sum(seen) <= 50_003  # the last piece is not counted
    assert max(seen) < 2 * PIECE // 50


@pytest.mark.parametrize("text", ['{"a": "' + "b" * 2000 + '"}', '{"a": ' + "[" * 90 + '"' + "b" * 2000])
def test_text_that_is_too_long_is_refused(text: str) -> None:
    with pytest.raises(TooLarge, match="too long"):
        read(text.encode(), 100)


def test_blanks_may_be_long() -> None:
    much = b" \t\r\n" * 1000
    assert read(much + b'{"a" :' + much + b"[1," + much + b"2]" + much + b"}", 100) == {"a": [1, 2]}
