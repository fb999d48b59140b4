"""What operators ask, the page, and what every answer carries."""

from pathlib import Path

import httpx
import pytest
from server import in_process


def test_answers_carry_the_callers_request_id_if_it_is_sane(client: httpx.Client) -> None:
    sane = client.get("/health", headers={"x-request-id": "trace-1.2:3_4"})
    assert sane.headers["x-request-id"] == "trace-1.2:3_4"
    for strange in ("a b", "x" * 129, "é".encode(), "<script>"):
        given = client.get("/health", headers={"x-request-id": strange}).headers["x-request-id"]
        assert len(given) == 24
        assert given.isalnum()
    answer = client.post("/classify", json={"input": "good"}, headers={"x-request-id": "me"})
    assert answer.json()["id"] == "me"


def test_answers_carry_security_headers(client: httpx.Client) -> None:
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
    again = client.get("/", headers={"if-none-match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.head("/").headers["etag"] == page.headers["etag"]


def test_files_of_the_page_are_logged_for_debugging_only(
    models: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with in_process(models) as client, caplog.at_level("DEBUG", "service.requests"):
        for path in ("/", "/web/page.js", "/web/nothing.js", "/health"):
            client.get(path)
    told = [(each.levelname, each.getMessage().split(" ")[:3]) for each in caplog.records if each.args]
    assert told == [
        ("INFO", ["GET", "/", "200"]),
        ("DEBUG", ["GET", "/web/{path:path}", "200"]),
        ("INFO", ["GET", "/web/{path:path}", "404"]),
        ("INFO", ["GET", "/health", "200"]),
    ]


def test_line_of_a_refused_request_says_why(models: Path, caplog: pytest.LogCaptureFixture) -> None:
    with in_process(models) as client, caplog.at_level("INFO", "service.requests"):
        client.post("/classify", json={"input": []})
        client.get("/health")
    lines = [each.getMessage() for each in caplog.records if each.args]
    assert [line.endswith(" invalid_input") for line in lines] == [True, False]
