"""Headers of every response, the page, and the lines of requests in the log."""

from pathlib import Path

import httpx
import pytest
from server import in_process


def test_responses_carry_the_request_id_of_the_caller_if_it_is_valid(client: httpx.Client) -> None:
    valid = client.get("/health", headers={"x-request-id": "trace-1.2:3_4"})
    assert valid.headers["x-request-id"] == "trace-1.2:3_4"
    for invalid in ("a b", "x" * 129, "é".encode(), "<script>"):
        request_id = client.get("/health", headers={"x-request-id": invalid}).headers["x-request-id"]
        assert len(request_id) == 24
        assert request_id.isalnum()
    response = client.post("/classify", json={"input": "good"}, headers={"x-request-id": "me"})
    assert response.json()["id"] == "me"


def test_responses_carry_security_headers(client: httpx.Client) -> None:
    for path in ("/health", "/nowhere", "/"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_page_is_answered_with_an_etag(client: httpx.Client) -> None:
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.text.lstrip().lower().startswith("<!doctype html>")
    cached = client.get("/", headers={"if-none-match": page.headers["etag"]})
    assert (cached.status_code, cached.content) == (304, b"")
    assert client.head("/").headers["etag"] == page.headers["etag"]


def test_line_of_a_refused_request_names_the_error(models: Path, caplog: pytest.LogCaptureFixture) -> None:
    with in_process(models) as client, caplog.at_level("INFO", "service.requests"):
        client.post("/classify", json={"input": []})
        client.get("/health")
    lines = [record.getMessage() for record in caplog.records if record.args]
    assert [line.endswith(" invalid_input") for line in lines] == [True, False]


def test_methods_that_clients_invent_are_counted_as_one(client: httpx.Client) -> None:
    """Each method that was sent became a series of its own, which stayed for ever."""
    client.request("BREW", "/nowhere")
    lines = client.get("/metrics").text.splitlines()
    assert any('method="other",route="(none)"' in line for line in lines)
    assert not any("BREW" in line for line in lines)
