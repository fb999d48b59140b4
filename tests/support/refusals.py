"""Checks of error responses."""

import httpx

JSON = {"content-type": "application/json"}


def refusal(response: httpx.Response) -> tuple[int, str, str | None]:
    """Check the format of an error response, and return its status, type and param."""
    error = response.json()["error"]
    assert set(error) == {"type", "message", "param", "request_id"}
    assert error["request_id"] == response.headers["x-request-id"]
    assert error["message"]
    return response.status_code, error["type"], error["param"]
