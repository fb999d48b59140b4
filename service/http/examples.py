"""Requests and responses in the documentation. They are real: tests send every request."""

from collections.abc import Sequence
from typing import Any

from fastapi.routing import iter_route_contexts
from starlette.routing import BaseRoute

from service.http.bodies import JSON
from service.http.errors import DEADLINE_MESSAGE, INTERNAL, INTERNAL_MESSAGE, error_document
from service.wire.protocols import ErrorResponse

_BINARY = {"schema": {"type": "string", "format": "binary"}}
DESCRIPTIONS = {
    400: "Not JSON, or not UTF-8.",
    401: "No API key, or not one of ours.",
    403: "A page of another origin, which is not in CORS_ALLOW_ORIGIN.",
    404: "No such route or model.",
    413: "Over a limit; the message names it.",
    415: "A media type this route does not read.",
    422: "Well-formed but wrong; `param` says where.",
    429: "Overloaded; Retry-After says when to come back.",
    500: "The service failed; its log has an entry with the request id.",
    503: "Not ready, draining, or unable to infer.",
    504: "It took longer than a request may.",
}
ALL = tuple(DESCRIPTIONS)
BUSY = ("429", "503")
REQUEST_ID = {"description": "The id of the request, as in the log.", "schema": {"type": "string"}}
RETRY_AFTER = {"description": "Seconds after which to send it again.", "schema": {"type": "integer"}}
MODEL_DIGEST = {
    "description": "The SHA-256 digest of the bundle that answered, as in its card; of several models all, "
    "separated by commas.",
    "schema": {"type": "string"},
}

ID = "4f1c0a9e2b7d"

CLASSIFY = {"input": "A superb film.", "model": "sentiment", "explain": "leaders"}
LEADERS = [
    {
        "word": "superb",
        "cluster": 0,
        "contribution": 4.1293272,
        "since_layer": 0,
        "followers": 3,
        "spans": [[2, 8]],
        "read": [
            {"word": "a", "spans": [[0, 1]], "layer": 1},
            {"word": "film", "spans": [[9, 13]], "layer": 1},
            {"word": ".", "spans": [[13, 14]], "layer": 1},
        ],
        "read_total": 3,
    }
]
CLASSIFIED = {
    "id": ID,
    "model": "sentiment",
    "model_version": 1,
    "usage": {"texts": 1, "tokens": 4},
    "data": [
        {
            "index": 0,
            "label": "positive",
            "score": 0.9456797,
            "probs": {"negative": 0.0049816, "neutral": 0.0493387, "positive": 0.9456797},
            "abstain_reason": None,
            "logit": 4.0770052,
            "bias": -0.052322,
            "n_words": 4,
            "n_tokens": 4,
            "unknown": 0,
            "truncated": False,
            "leaders": LEADERS,
            "clusters": [
                {
                    "id": 0,
                    "kind": "leader",
                    "leaders": ["superb"],
                    "words": ["superb", "film", ".", "a"],
                    "size": 4,
                    "share": 1.0,
                    "contribution": 4.1293272,
                }
            ],
        }
    ],
}
DYNAMICS = {"points": [[1, 1], [0.5, -0.5], [-1, -1], [0.3, -0.2]], "alpha": 0.5}
RESULT = {
    "id": ID,
    "n": 4,
    "d": 2,
    "alpha": 0.5,
    "status": "certified",
    "layers": 0,
    "certified_layer": 0,
    "margin": 0.2353,
    "leaders": [
        {"index": 0, "since_layer": 0, "point": [1.0, 1.0], "followers": 0, "cluster": 0},
        {"index": 1, "since_layer": 0, "point": [0.5, -0.5], "followers": 1, "cluster": 1},
        {"index": 2, "since_layer": 0, "point": [-1.0, -1.0], "followers": 0, "cluster": 2},
    ],
    "clusters": [
        {"id": 0, "kind": "leader", "leaders": [0], "limit": [1.0, 1.0], "size": 1},
        {"id": 1, "kind": "leader", "leaders": [1], "limit": [0.5, -0.5], "size": 2},
        {"id": 2, "kind": "leader", "leaders": [2], "limit": [-1.0, -1.0], "size": 1},
    ],
    "assignment": [0, 1, 2, 1],
}
SEQUENCES = {"model": "scenes", "sequences": [[[0, 0], [5, 5]], [[2, 1]]]}
LABELS = {
    "id": ID,
    "model": "scenes",
    "model_version": 1,
    "data": [
        {"index": 0, "label": "storm", "margin": 0.19, "leader": 1},
        {"index": 1, "label": "calm", "margin": 0.19, "leader": 0},
    ],
}
CONTROL = {"points": [[1.0, 0.2], [0.9, 0.8], [-0.6, 1.0], [0.2, -1.0]], "leaders": [0, 2]}
CONTROLLED = {
    "id": ID,
    "feasible": True,
    "A": [[1.8122, -0.3716], [-0.3716, 0.1878]],
    "margin": 0.2239,
    "bound": 0.7909,
    "worst_pair": None,
    "certificate": None,
    "note": None,
    "dynamics": {
        "n": 4,
        "d": 2,
        "alpha": 1.0,
        "status": "certified",
        "layers": 0,
        "certified_layer": 0,
        "margin": 0.1839,
        "leaders": [
            {"index": 0, "since_layer": 0, "point": [1.0, 0.2], "followers": 2, "cluster": 0},
            {"index": 2, "since_layer": 0, "point": [-0.6, 1.0], "followers": 0, "cluster": 1},
        ],
        "clusters": [
            {"id": 0, "kind": "leader", "leaders": [0], "limit": [1.0, 0.2], "size": 3},
            {"id": 1, "kind": "leader", "leaders": [2], "limit": [-0.6, 1.0], "size": 1},
        ],
        "assignment": [0, 0, 1, 0],
    },
}
SCORES = [
    {"label": "positive", "score": 0.9456797},
    {"label": "neutral", "score": 0.0493387},
    {"label": "negative", "score": 0.0049816},
]
ENDPOINT_INPUTS = {"inputs": "A superb film."}
INFER = {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": ["A superb film."]}]}
INFERRED = {
    "model_name": "sentiment",
    "model_version": "182ea6e2e121",
    "outputs": [
        {"name": "label", "datatype": "BYTES", "shape": [1], "data": ["positive"]},
        {"name": "score", "datatype": "FP32", "shape": [1], "data": [0.9456797]},
        {"name": "logit", "datatype": "FP32", "shape": [1], "data": [4.0770052]},
        {"name": "abstain_reason", "datatype": "BYTES", "shape": [1], "data": [""]},
    ],
}

ERRORS: dict[int, tuple[str, str, str | None]] = {
    400: ("malformed_input", "the body is not JSON: EOF while parsing a value at line 1 column 0", None),
    401: ("unauthorized", "this API key is not one of those that may call", None),
    403: ("forbidden", "pages of this origin may not call here: it is not in CORS_ALLOW_ORIGIN", None),
    404: ("not_found", "there is no such route", None),
    413: ("too_large", "more than 1024 texts (MAX_CLIENT_BATCH_SIZE)", "input"),
    415: ("unsupported_media_type", "send the header Content-Type: application/json", None),
    422: ("invalid_input", "points[3] has 3 numbers, expected 2", "points[3]"),
    429: ("overloaded", "too much is waiting already; try again shortly", None),
    500: (INTERNAL[1], INTERNAL_MESSAGE, None),
    503: ("not_ready", "the service is stopping", None),
    504: ("deadline_exceeded", DEADLINE_MESSAGE, None),
}


def route(request_type: type, request: object, response_type: object, response: object) -> dict[str, Any]:
    """Return the declaration of a route whose request and response are JSON: both types, with examples."""
    return {
        "response_model": response_type,
        "responses": responses(response),
        "openapi_extra": body(request, request_type),
    }


def body(example: object, model: type, *media_types: str) -> dict[str, Any]:
    """Return the documentation of a request body; `media_types` are further types of the route."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    content = {JSON: {"schema": schema, "example": example}, **dict.fromkeys(media_types, _BINARY)}
    return {"requestBody": {"content": content, "required": True}}


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
                headers = {"x-request-id": REQUEST_ID} | (
                    {"Retry-After": RETRY_AFTER} if status in BUSY else {}
                )
                response["headers"] = response.get("headers", {}) | headers


def responses(
    example: object = None, *media_types: str, errors: Sequence[int] = ALL, error_type: type = ErrorResponse
) -> dict[int | str, dict[str, Any]]:
    """Return the documentation of a route's responses, those with the statuses `errors` included."""
    documented: dict[int | str, dict[str, Any]] = {}
    if example is not None:
        content = {JSON: {"example": example}, **dict.fromkeys(media_types, _BINARY)}
        documented[200] = {"content": content, "headers": {"x-model-digest": MODEL_DIGEST}}
    for status in errors:
        kind, message, param = ERRORS[status]
        own = error_document(kind, message, param, ID)
        content = {JSON: {"example": own if error_type is ErrorResponse else {"error": message}}}
        documented[status] = {"model": error_type, "description": DESCRIPTIONS[status], "content": content}
    return documented
