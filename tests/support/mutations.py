"""Strategies for input that is nearly valid, which is where parsers break."""

import io
import json
import random
from typing import Any

import numpy as np
from hypothesis import strategies as st

INTERESTING = [b"\x00", b"\xff", b"1e400", b"NaN", b"\xed\xa0\x80", *map(str.encode, '"\\[]{},:-')]
NUMBER_LITERALS = "0 -0 1 -1.5 1e3 1E-3 1e400 -1e400 NaN Infinity -Infinity 01 +1 1. .5 1e 0x1 1_0".split()
NUMBER_LITERALS += ["9" * 30, "9" * 400, *'true null "1" [1] {} []'.split(), ""]
SPACES = ["", " ", "\n", "\t", "\r\n  "]


def mutate(body: bytes, rng: random.Random) -> bytes:
    """Return the bytes with one to three mutations: bytes are removed, doubled, replaced or inserted."""
    for _ in range(rng.randint(1, 3)):
        start = rng.randint(0, len(body))
        end = min(len(body), start + rng.randint(0, 8))
        patch = rng.choice((rng.choice(INTERESTING), rng.randbytes(rng.randint(0, 4)), body[start:end] * 2))
        body = body[:start] + patch + body[end:]
    return body


FINITE = st.floats(allow_nan=False, allow_infinity=False)
VALID = st.one_of(st.integers(-100, 100).map(str), FINITE.map(repr))
NUMBERS = st.one_of(VALID, VALID, VALID, st.sampled_from(NUMBER_LITERALS))


@st.composite
def rows_text(draw: st.DrawFn) -> str:
    """Draw an array of arrays of numbers; one in three is ragged and has items that are no numbers."""
    invalid = draw(st.sampled_from((False, False, True)))
    width = draw(st.integers(1, 4))
    space = draw(st.sampled_from(SPACES))
    rows = []
    for _ in range(draw(st.integers(0 if invalid else 1, 6))):
        columns = draw(st.integers(0, 5)) if invalid else width
        numbers = [draw(NUMBERS if invalid else VALID) for _ in range(columns)]
        rows.append(f"[{space}" + f",{space}".join(numbers) + f"{space}]")
    return "[" + f"{space},".join(rows) + "]"


JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda children: st.one_of(
        st.lists(children, max_size=4), st.dictionaries(st.text(max_size=6), children, max_size=4)
    ),
    max_leaves=8,
)
KEYS = st.one_of(
    st.just('"points"'),
    st.sampled_from(['"alpha"', '"A"', '"po\\u0069nts"', '"points "', '"include"', '"\\""', '"stop"']),
    st.text(max_size=6).map(json.dumps),
)


@st.composite
def cloud_documents(draw: st.DrawFn) -> bytes:
    """Draw a JSON object with points among other members, in any order; names may repeat."""
    members = [f'"points":{draw(rows_text())}']
    for _ in range(draw(st.integers(0, 3))):
        key = draw(KEYS)
        value = draw(st.one_of(rows_text(), NUMBERS, JSON_VALUES.map(json.dumps)))
        members.insert(draw(st.integers(0, len(members))), f"{key}{draw(st.sampled_from(SPACES))}:{value}")
    return ("{" + ",".join(members) + "}").encode()


@st.composite
def npy_files(draw: st.DrawFn) -> bytes:
    """Draw what numpy.save writes, of any shape, dtype and order."""
    rows, columns = draw(st.integers(0, 5)), draw(st.integers(1, 3))
    shape = draw(st.sampled_from([(rows, columns), (rows, columns), (rows,), (rows, 2, columns), ()]))
    usual = st.sampled_from(["<f8", "<f4", "<i8", ">i2", "|u1"])
    dtype = draw(
        st.one_of(usual, usual, st.sampled_from(["<f2", ">f8", "?", "<c16", "|S3", "<U2", "<M8[s]"]))
    )
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    array = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), dtype).reshape(shape)
    stream = io.BytesIO()
    version = draw(st.sampled_from([(1, 0), (2, 0), (3, 0)]))
    order = np.asfortranarray if draw(st.booleans()) else np.ascontiguousarray
    np.lib.format.write_array(stream, order(array), version=version, allow_pickle=False)
    return stream.getvalue()


WORDS = "a good bad not film waste of time superb it's don't <br /> ... ! é ﬁ 好 👍🏽 ab".split()


def texts() -> st.SearchStrategy[str]:
    """Draw texts of words, punctuation, markup, any character, and lone surrogates."""
    words = st.sampled_from(WORDS)
    characters = st.text(st.characters(), max_size=12)  # st.characters() has surrogates too
    return st.lists(st.one_of(words, words, characters), max_size=20).map(" ".join)
