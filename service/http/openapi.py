"""What the OpenAPI document says of routes beyond their types: bodies, errors, headers and examples.

The examples are in service/wire/examples.json. They are real: tests send every request.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastapi.routing import iter_route_contexts
from starlette.routing import BaseRoute

from service.http.bodies import JSON
from service.http.errors import DEADLINE_MESSAGE, ERROR_TYPES, INTERNAL, INTERNAL_MESSAGE, error_document
from service.wire.protocols import ErrorResponse

EXAMPLES_FILE = Path(__file__).parents[1] / "wire/examples.json"
EXAMPLES: dict[str, dict[str, Any]] = json.loads(EXAMPLES_FILE.read_text("utf-8"))
ERRORS: dict[int, tuple[str, str, str | None]] = {  # description; message and param of an example
    400: (
        "Not JSON, or not UTF-8.",
        "the body is not JSON: EOF while parsing a value at line 1 column 0",
        None,
    ),
    401: ("No API key, or not one of ours.", "this API key is not one of those that may call", None),
    403: (
        "A page of another origin, which is not in CORS_ALLOW_ORIGIN.",
        "pages of this origin may not call here: it is not in CORS_ALLOW_ORIGIN",
        None,
    ),
    404: ("No such route or model.", "there is no such route", None),
    413: ("Over a limit; the message names it.", "more than 1024 texts (MAX_CLIENT_BATCH_SIZE)", "input"),
    415: ("A media type this route does not read.", "send the header Content-Type: application/json", None),
    422: ("Well-formed but wrong; `param` says where.", "points[3] has 3 numbers, expected 2", "points[3]"),
    429: (
        "Overloaded; Retry-After says when to come back.",
        "too much is waiting already; try again shortly",
        None,
    ),
    500: ("The service failed; its log has an entry with the request id.", INTERNAL_MESSAGE, None),
    503: ("Not ready, draining, or unable to infer.", "the service is stopping", None),
    504: ("It took longer than a request may.", DEADLINE_MESSAGE, None),
}
BUSY = ("429", "503")
BINARY_SCHEMA = {"schema": {"type": "string", "format": "binary"}}
REQUEST_ID = {"description": "The id of the request, as in the log.", "schema": {"type": "string"}}
RETRY_AFTER = {"description": "Seconds after which to send it again.", "schema": {"type": "integer"}}
MODEL_DIGEST = {
    "description": "The SHA-256 digest of the bundle that answered, as in its card; of several models all, "
    "separated by commas.",
    "schema": {"type": "string"},
}


def route(name: str, request: type, response: Any) -> dict[str, Any]:
    """Return the declaration of a route whose request and response are JSON, with the examples `name`."""
    return {
        "response_model": response,
        "responses": responses(name),
        "openapi_extra": body(name, request),
    }


def body(name: str, model: type, *media_types: str) -> dict[str, Any]:
    """Return the documentation of a request body; `media_types` are further types of the route."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    example = {"schema": schema, "example": EXAMPLES[name]["request"]}
    return {
        "requestBody": {
            "content": {JSON: example, **dict.fromkeys(media_types, BINARY_SCHEMA)},
            "required": True,
        }
    }


def responses(
    name: str = "",
    *media_types: str,
    errors: Sequence[int] = tuple(ERRORS),
    error_type: type = ErrorResponse,
) -> dict[int | str, dict[str, Any]]:
    """Return the documentation of a route's responses, those with the statuses `errors` included."""
    documented: dict[int | str, dict[str, Any]] = {}
    if name:
        example = {JSON: {"example": EXAMPLES[name]["response"]}}
        content = example | dict.fromkeys(media_types, BINARY_SCHEMA)
        documented[200] = {"content": content, "headers": {"x-model-digest": MODEL_DIGEST}}
    for status in errors:
        description, message, param = ERRORS[status]
        error: dict[str, Any] = {"error": message}
        if error_type is ErrorResponse:
            kind = ERROR_TYPES.get(status, INTERNAL[1])
            error = error_document(kind, message, param, EXAMPLES["classify"]["response"]["id"])
        content = {JSON: {"example": error}}
        documented[status] = {"model": error_type, "description": description, "content": content}
    return documented


def restore_nulls(document: dict[str, Any], routes: Sequence[BaseRoute]) -> None:
    """Put the examples of responses back into the document: FastAPI leaves out their fields that are null."""
    for route in iter_route_contexts(routes):
        operations = document["paths"].get(route.path_format, {})
        for method in operations.keys() & {method.lower() for method in route.methods or ()}:
            for status, declared in route.responses.items():
                documented = operations[method]["responses"][str(status)]["content"]
                for media_type, content in declared.get("content", {}).items():
                    documented[media_type] |= content


def declare_headers(document: dict[str, Any]) -> None:
    """Add the headers of all responses, and those of refusals for a time, to the document."""
    for operations in document["paths"].values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                busy = {"Retry-After": RETRY_AFTER} if status in BUSY else {}
                response["headers"] = response.get("headers", {}) | {"x-request-id": REQUEST_ID} | busy
