"""Bodies that lie about themselves, and what is not HTTP."""

from __future__ import annotations

import httpx
from refusals import JSON, refusal
from server import Server
from wire import NPY, announce, chunked, connect, read_answer, read_status, status_of

QUESTION = b'{"input": "superb"}'


def expecting(head: bytes) -> bytes:
    """A head that asks whether its body is wanted."""
    return head.replace(b"host", b"expect: 100-continue\r\nhost", 1)


def test_body_over_the_limit_is_refused_before_it_is_sent(server: Server) -> None:
    expecting = announce(999_999_999_999, "/dynamics", NPY).replace(
        b"host", b"expect: 100-continue\r\nhost", 1
    )
    with connect(server.port) as connection:
        connection.sendall(expecting)
        head, body = read_answer(connection)
    assert head.startswith(b"HTTP/1.1 413 ")
    assert b"PAYLOAD_LIMIT_MB" in body


def test_chunked_body_over_the_limit_is_refused_while_it_comes(client: httpx.Client) -> None:
    refused = client.post("/classify", content=iter([b" " * 1_000_000] * 50), headers=JSON)
    assert refusal(refused) == (413, "too_large", None)
    assert client.get("/health").status_code == 200


def test_expect_100_continue_is_answered(server: Server) -> None:
    with connect(server.port) as connection:
        connection.sendall(expecting(announce(len(QUESTION))))
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
        connection.sendall(QUESTION)
        assert read_status(connection) == 200


def test_no_text_of_a_user_is_logged(server: Server, client: httpx.Client) -> None:
    secret = "xyzzyplugh"
    client.post("/classify", json={"input": secret})
    client.post("/classify", json={"input": [secret], secret: 1})
    client.post("/classify", content=f'{{"input": "{secret}'.encode(), headers=JSON)
    client.get(f"/{secret}")
    client.post(f"/dynamics?{secret}=1", json={"points": [[1, 1]]})
    assert secret not in server.output


def test_key_is_checked_before_the_body_is_read(locked: Server) -> None:
    assert status_of(locked.port, announce(100)) == 401  # and never sent


def test_key_in_a_trailer_opens_nothing(locked: Server) -> None:
    trailers = b"x-api-key: secret\r\nauthorization: Bearer secret\r\n\r\n"
    assert status_of(locked.port, chunked(QUESTION).removesuffix(b"\r\n") + trailers) == 401
