"""Host names that are answered, and origins that may send requests."""

from pathlib import Path

import httpx
import pytest
from raw_http import exchange
from refusals import refusal
from server import Server, in_process

BODY = {"input": "superb"}
FORBIDDEN = (403, "forbidden", None)
MALFORMED = (400, "malformed_input", None)


def test_host_names_of_this_machine_are_answered_and_others_refused(
    server: Server, client: httpx.Client
) -> None:
    for host in ("localhost", f"127.0.0.1:{server.port}", "[::1]:80", "hardmax.localhost", "LOCALHOST:1"):
        assert client.get("/health", headers={"host": host}).status_code == 200, host
    hosts = ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "[::1]evil.example", "")
    for host in hosts:
        assert refusal(client.get("/health", headers={"host": host})) == MALFORMED, host


def test_request_without_a_host_or_with_two_is_refused(server: Server) -> None:
    for times, status in enumerate((b"400", b"200", b"400")):
        head = b"GET /health HTTP/1.1\r\n" + b"host: localhost\r\n" * times + b"connection: close\r\n\r\n"
        assert exchange(server.port, head).startswith(b"HTTP/1.1 %b " % status)


def test_allowed_hosts_adds_names_and_a_public_address_takes_any(models: Path) -> None:
    def status(client: httpx.Client, host: str) -> int:
        return client.get("/health", headers={"host": host}).status_code

    with in_process(models, allowed_hosts="Api.example, other.example") as client:
        hosts = ("api.example:443", "other.example", "localhost", "evil.example")
        assert [status(client, host) for host in hosts] == [200, 200, 200, 400]
    with in_process(models, host="0.0.0.0") as client:
        assert status(client, "anything.example") == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "http://127.0.0.1"},  # another port of this machine
        {"origin": "http://127.0.0.1:1"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
    ],
)
def test_pages_of_other_sites_may_not_write(client: httpx.Client, headers: dict[str, str]) -> None:
    assert refusal(client.post("/classify", json=BODY, headers=headers)) == FORBIDDEN
    assert client.get("/health", headers=headers).status_code == 200  # the page cannot read this response


def test_own_page_may_write(server: Server, client: httpx.Client) -> None:
    for headers in (
        {"origin": server.url},
        {"origin": server.url, "sec-fetch-site": "same-origin"},
        {"origin": "https://hardmax.example", "sec-fetch-site": "same-origin"},  # behind a proxy
        {"sec-fetch-site": "none"},
    ):
        assert client.post("/classify", json=BODY, headers=headers).status_code == 200, headers


def test_origin_is_compared_by_host_and_port(models: Path) -> None:
    with in_process(models, allowed_hosts="hardmax.example") as client:
        for origin, host, own in (
            ("http://hardmax.example:8000", "Hardmax.example:8000", True),
            ("https://hardmax.example", "hardmax.example:443", True),
            ("http://hardmax.example", "hardmax.example", True),
            ("http://hardmax.example", "hardmax.example:8000", False),
            ("http://hardmax.example:8001", "hardmax.example:8000", False),
            ("http://hardmax.example", "hardmax.example:443", False),
            ("http://127.0.0.1:8000", "127.0.0.1", False),
        ):
            response = client.post("/classify", json=BODY, headers={"origin": origin, "host": host})
            assert response.status_code == (200 if own else 403), (origin, host)


def test_cors_allows_the_origins_it_lists(models: Path) -> None:
    listed = {"origin": "https://friend.example", "sec-fetch-site": "cross-site"}
    limits = {"cors_allow_origin": listed["origin"], "request_timeout_s": 1e-6}
    with in_process(models, **limits) as client:  # a page can read an error, its id and Retry-After
        response = client.post("/classify", json=BODY, headers=listed)
        assert response.status_code == 504
        assert response.headers["access-control-allow-origin"] == listed["origin"]
        assert "x-request-id" in response.headers["access-control-expose-headers"]
    with in_process(models, cors_allow_origin=listed["origin"]) as client:
        headers = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
        assert "access-control-allow-origin" not in client.get("/health", headers=headers).headers
