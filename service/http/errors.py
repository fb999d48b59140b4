"""Errors as responses. Only this module turns an exception into a status.

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
from service.wire.documents import NAME_CHARS, input_error

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
MIN_PATH_SIMILARITY = 0.75  # from 0 to 1, of a suggested path


def path_of(scope: Scope) -> str:
    """Return the path of a request, without the prefix of a proxy."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


class BodyRefused(HTTPException):
    """A HardmaxError that is raised while a body arrives, where FastAPI handles only an HTTPException."""

    def __init__(self, error: HardmaxError) -> None:
        super().__init__(status_of(error)[0], error.message)
        self.error = error


async def handle_error(request: Request, error: Exception) -> Response:
    """Respond to an exception of a route."""
    return problem_response(error, request.scope)


def status_of(error: BaseException) -> tuple[int, str]:
    """Return the status and the type of the response to an error."""
    for kind in type(error).__mro__:
        if kind in STATUS:
            return STATUS[kind]
    return INTERNAL


def describe_error(error: Exception) -> tuple[int, str, str, str | None]:
    """Return status, type, message and param. The message of an unexpected error is a fixed sentence."""
    status, kind = status_of(error)
    if status == INTERNAL[0] or not isinstance(error, HardmaxError):
        return status, kind, INTERNAL_MESSAGE, None
    return status, kind, error.message, error.param


def problem_response(error: Exception, scope: Scope) -> Response:
    """Return the response to a failed request, and count it. Unexpected errors are logged, not described."""
    if isinstance(error, BodyRefused):
        error = error.error
    elif isinstance(error, RequestValidationError):
        error = input_error(error.errors())
    headers = dict(NO_STORE)
    if isinstance(error, HTTPException):
        status, kind, message, param = _from_http(error, scope)
        headers |= {name.lower(): value for name, value in (error.headers or {}).items()}
    else:
        status, kind, message, param = describe_error(error)
        headers |= _headers(error)
    log_error(error, kind, scope)
    body: object = error_document(kind, message, param, scope["state"]["request_id"])
    if path_of(scope).startswith("/v2"):
        body = {"error": message}  # the protocol's shape
    # ASCII, because the name of a field may have a lone surrogate
    return Response(json.dumps(body).encode("ascii"), status, headers, "application/json")


def log_error(error: Exception, kind: str, scope: Scope) -> None:
    """Count an error; log it if it is unexpected."""
    if kind == INTERNAL[1]:
        log.error("request %s failed", scope["state"]["request_id"], exc_info=error)
    scope["state"]["error"] = kind
    scope["app"].state.service.metrics.count_error(kind)


def _headers(error: Exception) -> dict[str, str]:
    if isinstance(error, errors.Overloaded):
        return {"retry-after": str(max(1, math.ceil(error.retry_after_s)))}
    if isinstance(error, errors.NotReady):
        return {"retry-after": "1"}
    return {"www-authenticate": "Bearer"} if isinstance(error, errors.Unauthorized) else {}


def _from_http(error: HTTPException, scope: Scope) -> tuple[int, str, str, str | None]:
    """Return status, type, message and param of an HTTPException."""
    phrase = {int(status): status.phrase for status in HTTPStatus}.get(error.status_code, "error")
    kind = ERROR_TYPES.get(error.status_code, phrase.lower().replace(" ", "_"))
    message = str(error.detail)
    if message == phrase and error.status_code == 404:
        message = "there is no such route" + _suggestion(scope)
    elif message == phrase and error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "").replace(", ", " or ")
        message = f"this route does not answer {scope['method'][:20]}; use {allowed}"
    return error.status_code, kind, message, None


def _suggestion(scope: Scope) -> str:
    """Return a hint: a similar route, or the list of routes."""
    path = path_of(scope)[:NAME_CHARS]
    routes = iter_route_contexts(scope["app"].routes)
    paths = [route.path or "" for route in routes if getattr(route, "include_in_schema", False)]
    fixed = [route for route in paths if "{" not in route]
    bare = path.rstrip("/")
    matches = [bare] if bare in fixed else get_close_matches(path, fixed, 1, MIN_PATH_SIMILARITY)
    return f"; did you mean {matches[0]}?" if matches else "; GET /docs lists them"


def error_document(kind: str, message: str, param: str | None, request_id: str) -> dict[str, Any]:
    """Return the body of an error response."""
    return {"error": {"type": kind, "message": message, "param": param, "request_id": request_id}}
