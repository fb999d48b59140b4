"""Requests and answers as the documentation shows them. Real ones: a test sends every request."""

from __future__ import annotations

from typing import Any

ID = "4f1c0a9e2b7d"

CLASSIFY = {"input": "A superb film.", "model": "sentiment", "explain": "leaders"}
CLASSIFIED = {
    "id": ID,
    "model": "sentiment",
    "usage": {"texts": 1, "tokens": 3},
    "data": [
        {
            "index": 0,
            "label": "positive",
            "score": 0.97,
            "probs": {"negative": 0.03, "positive": 0.97},
            "logit": 3.4761,
            "bias": 0.1,
            "tokens": 3,
            "unknown": 0,
            "truncated": False,
            "leaders": [
                {
                    "word": "superb",
                    "cluster": 0,
                    "since_layer": 0,
                    "followers": 2,
                    "contribution": 3.3761,
                    "spans": [[2, 8]],
                }
            ],
            "clusters": [
                {
                    "id": 0,
                    "kind": "leader",
                    "leaders": ["superb"],
                    "words": ["superb", "film", "a"],
                    "share": 1.0,
                    "contribution": 3.3761,
                }
            ],
        }
    ],
}
DYNAMICS = {"points": [[1, 1], [0.5, -0.5], [-1, -1], [0.3, -0.2]], "alpha": 0.5}
RESULT = {
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
    "data": [
        {"index": 0, "label": "storm", "margin": 0.19, "leader": 1},
        {"index": 1, "label": "calm", "margin": 0.19, "leader": 0},
    ],
}
CONTROL = {"points": [[1.0, 0.2], [0.9, 0.8], [-0.6, 1.0], [0.2, -1.0]], "leaders": [0, 2]}
CONTROLLED = {
    "id": ID,
    "feasible": True,
    "A": [[1.7371, -0.6756], [-0.6756, 0.2629]],
    "margin": 0.3371,
    "worst_pair": None,
    "bound": 0.4349,
}
INFER = {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": ["A superb film."]}]}
INFERRED = {
    "model_name": "sentiment",
    "model_version": "182ea6e2e121",
    "outputs": [
        {"name": "label", "datatype": "BYTES", "shape": [1], "data": ["positive"]},
        {"name": "score", "datatype": "FP32", "shape": [1], "data": [0.97]},
        {"name": "logit", "datatype": "FP32", "shape": [1], "data": [3.4761]},
    ],
}

PROBLEMS: dict[int, tuple[str, str, str | None]] = {
    400: ("malformed_input", "the body is not JSON: EOF while parsing a value at line 1 column 0", None),
    401: ("unauthorized", "this API key is not known here", None),
    404: ("not_found", "there is no such route", None),
    413: ("too_large", "more than 1024 texts (MAX_CLIENT_BATCH_SIZE)", "input"),
    415: ("unsupported_media_type", "send the body as application/json", None),
    422: ("invalid_input", "points[3] has 3 numbers, expected 2", "points[3]"),
    429: ("overloaded", "too much is waiting already; try again shortly", None),
    500: (
        "internal_error",
        "The service failed on this request; its log has an entry with this request id.",
        None,
    ),
    503: ("not_ready", "the service is stopping", None),
    504: ("deadline_exceeded", "the request took longer than it may", None),
}


def problem(status: int, *, protocol: bool) -> dict[str, Any]:
    """An error answer, in the shape of /v2 or in ours."""
    kind, message, param = PROBLEMS[status]
    if protocol:
        return {"error": message}
    return {"error": {"type": kind, "message": message, "param": param, "request_id": ID}}


def body(example: object, **others: object) -> dict[str, Any]:
    """What a route documents of its request beside the schema."""
    return {"requestBody": {"content": {"application/json": {"example": example}, **others}}}


def answer(example: object, **others: object) -> dict[int | str, dict[str, Any]]:
    """The same of its answer."""
    return {200: {"content": {"application/json": {"example": example}, **others}}}
