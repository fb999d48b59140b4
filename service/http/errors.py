"""Errors as responses. An exception becomes a status here and nowhere else.

{"error": {"type": "invalid_input", "message": "...", "param": "points[3]", "request_id": "..."}}
{"error": "..."}                                         under /v2, as the Open Inference Protocol has it
"""

import json
import logging
import math
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from service import errors
from service.errors import HardmaxError
from service.http.bodies import NO_STORE
from service.schemas.reading import NAME_CHARS, input_error

log = logging.getLogger(__name__)

STATUS: dict[type[HardmaxError], tuple[int, str]] = {
    errors.MalformedInput: (400, "malformed_input"),
    errors.Unauthorized: (401, "unauthorized"),
    errors.Forbidden: (403, "forbidden"),
    errors.NotFound: (404, "not_found"),
    errors.TooLarge: (413, "too_large"),
    errors.UnsupportedMediaType: (415, "unsupported_media_type"),
    errors.InvalidInput: (422, "invalid_input"),
    errors.Overloaded: (429, "overloaded"),
    errors.Cancelled: (499, "cancelled"),  # not sent: for logs and metrics
    errors.NotReady: (503, "not_ready"),
    errors.DeadlineExceeded: (504, "deadline_exceeded"),
}
ERROR_TYPES = dict(STATUS.values())
INTERNAL = (500, "internal_error")
INTERNAL_MESSAGE = "The service failed on this request; its log has an entry with this request id."
DEADLINE_MESSAGE = "the request took longer than it may"
MIN_PATH_SIMILARITY = 0.75  # from 0 to 1: how alike a path must be to be suggested


def path_of(scope: Scope) -> str:
    """Return the path of a request, without what a proxy's prefix adds to it."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


class BodyRefused(HTTPException):
    """One of our errors, raised while a body arrives: there FastAPI lets only an HTTPException pass."""

    def __init__(self, failure: HardmaxError) -> None:
        super().__init__(status_of(failure)[0], failure.message)
        self.failure = failure


async def handle_error(request: Request, failure: Exception) -> Response:
    """Respond to an exception of a route."""
    return problem_response(failure, request.scope)


def status_of(failure: BaseException) -> tuple[int, str]:
    """Return the status and the type that a failure is answered with."""
    for kind in type(failure).__mro__:
        if kind in STATUS:
            return STATUS[kind]
    return INTERNAL


def describe_failure(failure: Exception) -> tuple[int, str, str, str | None]:
    """Return status, type, message and param; of an unexpected failure the message is a fixed sentence."""
    status, kind = status_of(failure)
    if status == INTERNAL[0] or not isinstance(failure, HardmaxError):
        return status, kind, INTERNAL_MESSAGE, None
    return status, kind, failure.message, failure.param


def problem_response(failure: Exception, scope: Scope) -> Response:
    """Return the response to a failed request, and count it. Unexpected errors are logged, not described."""
    if isinstance(failure, BodyRefused):
        failure = failure.failure
    elif isinstance(failure, RequestValidationError):
        failure = input_error(failure.errors())
    headers = dict(NO_STORE)
    if isinstance(failure, HTTPException):
        status, kind, message, param = _from_http(failure, scope)
        headers |= {name.lower(): value for name, value in (failure.headers or {}).items()}
    else:
        status, kind, message, param = describe_failure(failure)
        headers |= _headers(failure)
    log_failure(failure, kind, scope)
    body: object = error_document(kind, message, param, scope["state"]["request_id"])
    if path_of(scope).startswith("/v2"):
        body = {"error": message}  # the protocol's shape
    # ASCII, so that a lone surrogate in a field's name cannot break the answer.
    return Response(json.dumps(body).encode("ascii"), status, headers, "application/json")


def log_failure(failure: Exception, kind: str, scope: Scope) -> None:
    """Count a failure; log it if it is unexpected."""
    if kind == INTERNAL[1]:
        log.error("request %s failed", scope["state"]["request_id"], exc_info=failure)
    scope["state"]["error"] = kind
    scope["app"].state.service.metrics.failed(kind)


def _headers(failure: Exception) -> dict[str, str]:
    if isinstance(failure, errors.Overloaded):
        return {"retry-after": str(max(1, math.ceil(failure.retry_after_s)))}
    if isinstance(failure, errors.NotReady):
        return {"retry-after": "1"}
    return {"www-authenticate": "Bearer"} if isinstance(failure, errors.Unauthorized) else {}


def _from_http(failure: HTTPException, scope: Scope) -> tuple[int, str, str, str | None]:
    """Return status, type, message and param of an HTTPException."""
    phrase = next(
        (each.phrase for each in HTTPStatus if each == failure.status_code), "error"
    )  # 499 has none
    kind = ERROR_TYPES.get(failure.status_code, phrase.lower().replace(" ", "_"))
    message = str(failure.detail)
    if message == phrase and failure.status_code == 404:
        message = "there is no such route" + _suggestion(scope)
    elif message == phrase and failure.status_code == 405:
        allowed = (failure.headers or {}).get("Allow", "").replace(", ", " or ")
        message = f"this route does not answer {scope['method'][:20]}; use {allowed}"
    return failure.status_code, kind, message, None


def _suggestion(scope: Scope) -> str:
    """Return a hint: the route that was probably meant, or where routes are listed."""
    path = path_of(scope)[:NAME_CHARS]
    routes = iter_route_contexts(scope["app"].routes)
    paths = [route.path or "" for route in routes if getattr(route, "include_in_schema", False)]
    known = [each for each in paths if "{" not in each]
    near = (
        [path.rstrip("/")]
        if path.rstrip("/") in known
        else get_close_matches(path, known, 1, MIN_PATH_SIMILARITY)
    )
    return f"; did you mean {near[0]}?" if near else "; GET /docs lists them"


def error_document(kind: str, message: str, param: str | None, request_id: str) -> dict[str, Any]:
    """Return the body of an error response."""
    return {"error": {"type": kind, "message": message, "param": param, "request_id": request_id}}
