"""Refusals looked at closely."""

import httpx

JSON = {"content-type": "application/json"}


def refusal(response: httpx.Response) -> tuple[int, str, str | None]:
    """Status, type and param of a refusal, whose shape is checked."""
    error = response.json()["error"]
    assert set(error) == {"type", "message", "param", "request_id"}
    assert error["request_id"] == response.headers["x-request-id"]
    assert error["message"]
    return response.status_code, error["type"], error["param"]
