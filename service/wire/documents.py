"""Parse documents as JSON or as a pydantic model, describe their errors, and write answers.

Answers are dicts and arrays, not the models of `hardmax.models` that document them: a model of one text takes
15 us to validate and write, its dict 0.6 us, and a cloud of a million points would be a million objects. The
contract tests compare them with the models.
"""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

import numpy as np
import orjson
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, from_json

from service.errors import InvalidInput, MalformedInput, TooLarge

MAX_JSON_PARTS = 1_200_000  # arrays, objects and strings in one document
MAX_LISTED_FAULTS = 100  # of one body: to list a million takes seconds
MAX_TEXT_ARRAYS = 20_000  # and objects in a request of texts: all its lists at their limits have fewer
NAME_CHARS = 200  # of a name that the caller sent
MAX_JSON_BYTES = 4_000_000  # of a body, or of the JSON part of one
MAX_ANSWER_BYTES = 64_000_000

# The parser's messages for a lone surrogate, which is valid JSON but not text: a low one, a high one.
LONE_SURROGATE = ("surrogate", "unexpected end of hex escape")

Raw = bytes | bytearray
Model = TypeVar("Model", bound=BaseModel)
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


def check_parts(content: Raw, *, max_arrays: int = MAX_JSON_PARTS) -> None:
    """Refuse documents with so many values that parsing takes too long or too much memory.

    `max_arrays` bounds the arrays and objects; brackets in a text do not count.
    """
    brackets = content.count(b"[") + content.count(b"{")
    if brackets + content.count(b'"') // 2 > MAX_JSON_PARTS:
        raise TooLarge(f"the body has more than {MAX_JSON_PARTS} arrays, objects and strings")
    if brackets > max_arrays:
        outside = _STRING.sub(b"", content)
        if outside.count(b"[") + outside.count(b"{") > max_arrays:
            raise TooLarge(f"the body has more than {max_arrays} arrays and objects")


def parse_json(text: Raw, param: str | None = None) -> Any:
    """Parse JSON, which may hold NaN and infinities. `param` names the text in messages, if not the body."""
    try:
        return from_json(text, allow_inf_nan=True)
    except ValueError as error:
        if _is_lone_surrogate(str(error)):
            raise _lone_surrogate_error(param) from None
        problem = f"{param or 'the body'} is not JSON: {str(error)[:200]}"
        raise MalformedInput(problem, param=param) from None


def _is_lone_surrogate(message: str) -> bool:
    return any(phrase in message for phrase in LONE_SURROGATE)


def _lone_surrogate_error(param: str | None = None) -> InvalidInput:
    return InvalidInput(f"{param or 'the body'} contains half a character: a lone surrogate", param=param)


def parse_object(content: Raw) -> dict[str, Any]:
    """Parse a body that has to be a JSON object."""
    check_parts(content)
    document = parse_json(content)
    if not isinstance(document, dict):
        raise InvalidInput("the body should be an object")
    return document


def parse(body: Raw, model: type[Model]) -> Model:
    """Parse a request of texts as a `model`.

    Raises:
        InvalidInput: A field is wrong; the message names it and never quotes the body.
        MalformedInput: The text is not JSON.
        TooLarge: The text has too many values.
    """
    check_parts(body, max_arrays=MAX_TEXT_ARRAYS)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise input_error(error, model.model_fields) from None


def validate(document: object, model: type[Model], *, strict: bool | None = None) -> Model:
    """Validate a parsed document. `strict` overrides the strictness of the model."""
    try:
        return model.model_validate(document, strict=strict)
    except ValidationError as error:
        raise input_error(error, model.model_fields) from None


def input_error(
    errors: ValidationError | Sequence[ErrorDetails], names: Iterable[str] = ()
) -> MalformedInput | InvalidInput:
    """Return the exception for errors that pydantic found. It names fields and never quotes the body.

    `names` are those of fields that are suggested for an unknown one.
    """
    if isinstance(errors, ValidationError):
        if errors.error_count() > MAX_LISTED_FAULTS:
            return InvalidInput(f"the body is wrong in {errors.error_count()} places")
        errors = errors.errors(include_url=False, include_input=False, include_context=False)
    if missing := next((error for error in errors if error["type"] == "missing"), None):
        return _missing_field(missing, errors)
    # The deepest error: in a union it is about the intended branch. Of equally deep ones, one that is not
    # about the type: a list that is too short was meant as a list.
    error = max(errors, key=lambda p: (len(p["loc"]), not p["type"].endswith("_type")))
    if error["type"] == "json_invalid":
        return _invalid_json(error["msg"])
    param = _param(error["loc"])
    if error["type"] == "extra_forbidden":
        return _unknown_field(param[:NAME_CHARS], names)
    message = error["msg"]
    if error["type"].endswith("_type"):
        message = _describe_types(errors, param)
    return InvalidInput(_name_field(message, param), param=param or None)


def _missing_field(missing: ErrorDetails, errors: Sequence[ErrorDetails]) -> InvalidInput:
    param = _param(missing["loc"]) or None
    unknown = [_param(error["loc"]) for error in errors if error["type"] == "extra_forbidden"]
    sent = f"; you sent {', '.join(f'`{name}`' for name in unknown)}"[:NAME_CHARS] if unknown else ""
    return InvalidInput(f"`{param or 'the body'}` is required{sent}", param=param)


def _invalid_json(message: str) -> MalformedInput | InvalidInput:
    if _is_lone_surrogate(message):
        return _lone_surrogate_error()
    message = message.replace("JSON decode error", "Invalid JSON")[:300]  # of FastAPI, and of pydantic
    return MalformedInput(message.replace("Invalid JSON", "the body is not JSON"))


def _unknown_field(param: str, names: Iterable[str]) -> InvalidInput:
    matches = get_close_matches(param, list(names), 1)
    hint = f"; did you mean {matches[0]}?" if matches else ""
    return InvalidInput(f"{param}: an unknown field{hint}", param=param)


def _describe_types(errors: Sequence[ErrorDetails], param: str) -> str:
    """Return the types of all branches of a union, each of which has a error."""
    branches = [p for p in errors if p["type"].endswith("_type") and _param(p["loc"]) == param]
    kinds = dict.fromkeys(error["msg"] for error in branches)
    return " or ".join(kinds).replace(" or Input should be", " or")


def _name_field(message: str, param: str) -> str:
    """Return pydantic's message with the name of the field as its subject."""
    message = message.removeprefix("Value error, ").replace(" after validation", "")
    subject, _, predicate = message.partition(" should ")
    if subject in ("Input", "String", "List", "Dictionary"):
        return f"{param or 'the body'} should {predicate}"
    return message


def _param(location: Sequence[str | int]) -> str:
    """Return input[0] for `("body", "input", "list[str]", 0)`: the part of the request and the branch of a
    union are left out."""
    if location and location[0] in ("body", "query", "path", "header", "cookie"):
        location = location[1:]
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif not path:
            path = part
        elif part not in ("str", "constrained-str") and not part.startswith("list["):
            path += f".{part}"
    return path


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
