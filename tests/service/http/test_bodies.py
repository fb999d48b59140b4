"""Bodies that lie about themselves, and what is not HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
from refusals import JSON, refusal
from server import Server, eventually
from wire import announce, connect, exchange, read_status, whole


def test_body_over_the_limit_is_refused_before_it_is_sent(server: Server) -> None:
    head = b"POST /dynamics HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-npy\r\n"
    with connect(server.port) as connection:
        connection.sendall(head + b"content-length: 999999999999\r\nexpect: 100-continue\r\n\r\n")
        answer = b""
        while b"PAYLOAD_LIMIT_MB" not in answer:
            piece = connection.recv(65536)
            assert piece, answer
            answer += piece
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_chunked_body_over_the_limit_is_refused_while_it_comes(server: Server) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(50):
            yield b" " * 1_000_000

    with server.client() as client:
        assert refusal(client.post("/classify", content=pieces(), headers=JSON)) == (413, "too_large", None)
        assert client.get("/health").status_code == 200


def test_expect_100_continue_is_answered(server: Server) -> None:
    body = b'{"input": "superb"}'
    head = b"POST /classify HTTP/1.1\r\nhost: localhost\r\n"
    head += b"content-type: application/json\r\nconnection: close\r\n"
    with connect(server.port) as connection:
        connection.sendall(head + b"content-length: %d\r\nexpect: 100-continue\r\n\r\n" % len(body))
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_what_is_not_http_is_refused_in_the_one_shape(server: Server) -> None:
    answer = exchange(server.port, b"NONSENSE\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["type"] == "malformed_input"


def test_body_that_ends_early_leaves_nothing_behind(server: Server) -> None:
    for _ in range(20):
        head = b"POST /classify HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        head += b"content-length: 500\r\n\r\n"
        with connect(server.port) as caller:
            caller.sendall(head + b'{"input": "good')
    with server.client() as client:
        assert client.post("/classify", json={"input": "superb"}).status_code == 200
        eventually(lambda: 'route="/classify",status="499"' in client.get("/metrics").text)


def test_no_text_of_a_user_is_logged(server: Server, client: httpx.Client) -> None:
    secret = "xyzzyplugh"
    client.post("/classify", json={"input": secret})
    client.post("/classify", json={"input": [secret], secret: 1})
    client.post("/classify", content=f'{{"input": "{secret}'.encode(), headers=JSON)
    client.get(f"/{secret}")
    client.post(f"/dynamics?{secret}=1", json={"points": [[1, 1]]})
    assert secret not in server.output


def test_of_two_content_types_the_first_counts(server: Server) -> None:
    typed_twice = whole(b'{"input": "superb"}').replace(
        b"content-type", b"content-type: text/plain\r\ncontent-type", 1
    )
    with connect(server.port) as caller:
        caller.sendall(typed_twice)
        assert read_status(caller) == 415


def test_key_is_checked_before_the_body_is_read(locked: Server) -> None:
    with connect(locked.port) as caller:
        caller.sendall(announce(100))  # and never sent
        assert read_status(caller) == 401
