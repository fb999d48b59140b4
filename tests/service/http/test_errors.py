"""Errors name the route, the method or the field that was probably meant, and failures are logged."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import Request, Response
from refusals import refusal
from server import in_process

from service.errors import InferenceError
from service.http.errors import INTERNAL_MESSAGE
from service.http.routes import points

HINT = "there is no such route; did you mean "


@pytest.mark.parametrize(
    ("method", "path", "body", "message"),
    [
        ("GET", "/nope", None, "there is no such route; GET /docs lists them"),
        ("GET", "/inf", None, HINT + "/info?"),
        ("GET", "/clasify", None, HINT + "/classify?"),
        ("POST", "/classify/", {"input": "superb"}, HINT + "/classify?"),  # and no redirect
        ("GET", "/classify", None, "this route does not answer GET; use POST"),
        ("POST", "/classify", {"text": "superb"}, "`input` is required; you sent `text`"),
        (
            "POST", "/classify", {"input": "a", "modell": "b"},
            "modell: an unknown field; did you mean model?",
        ),
        ("POST", "/classify", {"input": "a", "zzz": 1}, "zzz: an unknown field"),
        (
            "POST", "/dynamics", {"points": [[1, 1]], "trajectory": True},
            "trajectory: an unknown field; did you mean trajectory_every?",
        ),
        ("POST", "/classify", {"input": 5}, "input should be a valid string or a valid array"),
        ("POST", "/classify", {"input": "a", "model": []}, "model should have at least 1 item, not 0"),
        ("POST", "/classify", {"input": "a", "model": ""}, "model should have at least 1 character"),
        (
            "POST", "/classify", {"input": "a", "model": ["tiny", "nobody"]},
            "no model 'nobody' labels texts; there are: tiny",
        ),
        (
            "POST", "/sequences/classify", {"model": "tiny", "sequences": [[[1]]]},
            "no model 'tiny' labels sequences; there are: scenes",
        ),
        ("GET", "/models/nobody", None, "there is no model nobody"),
    ],
)  # fmt: skip
def test_error_names_what_was_probably_meant(
    client: httpx.Client, method: str, path: str, body: object, message: str
) -> None:
    response = client.request(method, path, json=body)
    assert 400 <= refusal(response)[0] < 500
    assert response.json()["error"]["message"] == message


def test_failure_within_a_stream_is_logged_and_counted(
    models: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def lines() -> AsyncGenerator[bytes]:
        yield b"{}\n"
        raise InferenceError("of our inside")

    with in_process(models) as client:
        app: Any = client.app

        @app.get("/lines")
        async def stream(request: Request) -> Response:
            return await points._stream(lines(), request)

        first, last = client.get("/lines").text.splitlines()
        assert (first, json.loads(last)["error"]["message"]) == ("{}", INTERNAL_MESSAGE)
        assert 'hardmax_failures_total{reason="internal_error"} 1.0' in client.get("/metrics").text
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["of our inside"]
