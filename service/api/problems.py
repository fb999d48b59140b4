"""Errors as answers: the only place where a failure becomes a status. Knows both error shapes.

{"error": {"type": "invalid_input", "message": "...", "param": "points[3]", "request_id": "..."}}
{"error": "..."}                                         under /v2, as the Open Inference Protocol has it
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from http import HTTPStatus
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from service.api.exchange import NO_STORE, Exchange, Header, Reply
from service.errors import (
    Cancelled,
    DeadlineExceeded,
    HardmaxError,
    InvalidInput,
    MalformedInput,
    NotFound,
    NotReady,
    Overloaded,
    TooLarge,
    Unauthorized,
    UnsupportedMediaType,
)

log = logging.getLogger(__name__)

STATUS: dict[type[HardmaxError], tuple[int, str]] = {
    MalformedInput: (400, "malformed_input"),
    Unauthorized: (401, "unauthorized"),
    NotFound: (404, "not_found"),
    TooLarge: (413, "too_large"),
    UnsupportedMediaType: (415, "unsupported_media_type"),
    InvalidInput: (422, "invalid_input"),
    Overloaded: (429, "overloaded"),
    Cancelled: (499, "cancelled"),  # nobody reads it: for logs and metrics
    NotReady: (503, "not_ready"),
    DeadlineExceeded: (504, "deadline_exceeded"),
}
MANY_FAULTS = 100  # of one body: listing a million of them would take seconds
INTERNAL = (500, "internal_error")
INTERNAL_MESSAGE = "The service failed on this request; its log has an entry with this request id."

Model = TypeVar("Model", bound=BaseModel)


def parse(model: type[Model], body: bytes) -> Model:
    """A request's body as `model`; what is wrong with it is said in our words and never quotes it."""
    try:
        return model.model_validate_json(body)
    except ValidationError as invalid:
        raise input_error(invalid) from None


def validate(model: type[Model], document: object) -> Model:
    """The same for a document that is parsed already."""
    try:
        return model.model_validate(document)
    except ValidationError as invalid:
        raise input_error(invalid) from None


def input_error(invalid: ValidationError) -> MalformedInput | InvalidInput:
    """The deepest of pydantic's complaints: of a union it is the one about the branch that was meant."""
    if invalid.error_count() > MANY_FAULTS:
        return InvalidInput(f"the body is wrong in {invalid.error_count()} places")
    problems = invalid.errors(include_url=False, include_input=False, include_context=False)
    problem = max(problems, key=lambda each: len(each["loc"]))
    if problem["type"] == "json_invalid":
        return MalformedInput(problem["msg"][:300].replace("Invalid JSON", "the body is not JSON"))
    param = _param(problem["loc"])
    if problem["type"] == "extra_forbidden":
        return InvalidInput("an unknown field", param=param[:200])
    what = problem["msg"].removeprefix("Input ").removeprefix("Value error, ")
    return InvalidInput(
        f"{param or 'the body'} {what}" if what != problem["msg"] else what, param=param or None
    )


def _param(location: Sequence[str | int]) -> str:
    """`("input", "list[str]", 0)` is input[0]: names of a union's branches are not the caller's business."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif not path:
            path = part
        elif part not in ("str", "list[str]"):
            path += f".{part}"
    return path


def status_of(failure: BaseException) -> tuple[int, str]:
    """The status and the type that a failure is answered with."""
    for kind in type(failure).__mro__:
        if kind in STATUS:
            return STATUS[kind]
    return INTERNAL


def reply(failure: Exception, exchange: Exchange) -> Reply:
    """The answer to a request that failed; what we did not foresee goes to the log and is not told."""
    if isinstance(failure, HTTPException):
        return _from_http(failure, exchange)
    status, kind = status_of(failure)
    headers: list[Header] = [NO_STORE]
    if status == INTERNAL[0] or not isinstance(failure, HardmaxError):
        log.error("request %s failed", exchange.text_id, exc_info=failure)
        return render(exchange, status, kind, INTERNAL_MESSAGE, None, headers)
    if isinstance(failure, Overloaded):
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(failure.retry_after_s))))
    if isinstance(failure, NotReady):
        headers.append((b"retry-after", b"1"))
    if isinstance(failure, Unauthorized):
        headers.append((b"www-authenticate", b"Bearer"))
    return render(exchange, status, kind, failure.message, failure.param, headers)


def _from_http(failure: HTTPException, exchange: Exchange) -> Reply:
    """What the router itself says: no such route, no such method."""
    headers = [NO_STORE, *((k.lower().encode(), v.encode()) for k, v in (failure.headers or {}).items())]
    phrase = HTTPStatus(failure.status_code).phrase
    message = {404: "there is no such route", 405: "this route does not answer that method"}.get(
        failure.status_code, phrase
    )
    kind = phrase.lower().replace(" ", "_")
    return render(exchange, failure.status_code, kind, message, None, headers)


def render(
    exchange: Exchange, status: int, kind: str, message: str, param: str | None, headers: Sequence[Header]
) -> Reply:
    if exchange.path.startswith("/v2"):
        body: object = {"error": message}
    else:
        error = {"type": kind, "message": message, "param": param, "request_id": exchange.text_id}
        body = {"error": error}
    # ASCII, so that a lone surrogate in a field's name cannot break the answer.
    return Reply(json.dumps(body).encode("ascii"), status=status, headers=headers)
