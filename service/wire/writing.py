"""Write answers as JSON text.

Answers are dicts and arrays, not the models of `hardmax.models` that document them: a model of one text takes
15 us to validate and write, its dict 0.6 us, and a cloud of a million points would be a million objects. The
contract tests compare them with the models.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from service.errors import TooLarge

MAX_ANSWER_BYTES = 64_000_000


def write(value: Any) -> bytes:
    """Return a value as JSON text. It may contain arrays; numbers that are not finite become null."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY, default=_rows)


def _rows(value: Any) -> Any:
    """Return what orjson does not write itself: arrays that are not contiguous, or of names."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value)} is not written as JSON")


def write_entries(document: dict[str, Any], field: str = "data") -> bytes:
    """Return a document as JSON text; each entry of its long list `field` is written by a call of its own.

    One call for all entries would keep the interpreter from other threads for long.
    """
    head, entries = write({name: value for name, value in document.items() if name != field}), document[field]
    return head[:-1] + b"," * (len(document) > 1) + write(field) + b":" + write_list(entries) + b"}"


def write_list(entries: Sequence[Any]) -> bytes:
    """Return a list as JSON text; each entry is written by a call of its own."""
    return b"[" + b",".join(map(write, entries)) + b"]"


def check_answer(answer: bytes) -> bytes:
    """Return an answer; refuse one of over MAX_ANSWER_BYTES."""
    if len(answer) > MAX_ANSWER_BYTES:
        raise TooLarge(f"the answer is over {MAX_ANSWER_BYTES / 1e6:g} MB: ask for less at once")
    return answer
