"""HTTP as bytes: requests that no library would send, answers read whole, refusals looked at closely."""

from __future__ import annotations

import io
import json
import re
import socket
from contextlib import suppress
from typing import Any

import numpy as np

from benchmarks.load import is_complete

JSON = b"application/json"
NPY = b"application/x-npy"
TYPES = {
    400: "malformed_input",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid_input",
    429: "overloaded",
    503: "not_ready",
    504: "deadline_exceeded",
}
AGAIN = (429, 503)  # with Retry-After


def announce(size: int, path: str = "/classify", kind: bytes = JSON) -> bytes:
    """The head of a request whose body has that length."""
    return _head(path, kind) + b"content-length: %d\r\n\r\n" % size


def whole(body: bytes, path: str = "/classify", kind: bytes = JSON) -> bytes:
    return announce(len(body), path, kind) + body


def chunked(body: bytes) -> bytes:
    """A request whose body comes in chunks, and tells no length."""
    pieces = [body[at : at + 65536] for at in range(0, len(body), 65536)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return _head("/classify", JSON) + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


def _head(path: str, kind: bytes) -> bytes:
    return b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: %s\r\n" % (path.encode(), kind)


def npy(array: Any) -> bytes:
    body = io.BytesIO()
    np.save(body, array)
    return body.getvalue()


def npy_said_to_be(shape: str) -> bytes:
    """Six numbers, and an npy header that says this of their shape."""
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(48)


def with_tensor(tensor: bytes, texts: int = 1) -> tuple[bytes, dict[str, str]]:
    """A body of the Open Inference Protocol whose tensor follows its JSON, and the headers that say so."""
    said = {"name": "text", "datatype": "BYTES", "shape": [texts]}
    head = json.dumps({"inputs": [said | {"parameters": {"binary_data_size": len(tensor)}}]}).encode()
    kind = {"content-type": "application/octet-stream"}
    return head + tensor, kind | {"inference-header-content-length": str(len(head))}


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def read_answer(connection: socket.socket) -> tuple[bytes, bytes]:
    """Head and body of the answer that comes next. Nothing may follow it."""
    answer = b""
    while not is_complete(answer):
        piece = connection.recv(65536)
        assert piece, f"the connection ended after {answer!r}"
        answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


def read_all(connection: socket.socket) -> bytes:
    """Everything until the server closes; it must not reset the connection."""
    answer = b""
    while piece := connection.recv(65536):
        answer += piece
    return answer


def exchange(port: int, *pieces: bytes) -> bytes:
    """Send these pieces as they are, and read until the server closes, however early the answer comes."""
    with connect(port) as connection:
        with suppress(ConnectionError):
            for piece in pieces:
                connection.sendall(piece)
        return read_all(connection)


def read_status(connection: socket.socket) -> int:
    """The status of the answer that comes next, whose shape is right where it is a refusal."""
    head, body = read_answer(connection)
    status = int(head[9:12])
    fault = find_fault(status, head, body) if status >= 400 else None
    assert fault is None, fault
    return status


def status_of(port: int, request: bytes) -> int:
    """The status that these bytes are answered with, on a connection of their own."""
    with connect(port) as caller:
        caller.sendall(request)
        return read_status(caller)


def find_fault(status: int, head: bytes, body: bytes, *, protocol: bool = False) -> str | None:
    """What is wrong with a refusal, or None. `protocol`: in the shape of the Open Inference Protocol."""
    if status in AGAIN and not re.search(rb"\r\nretry-after: [1-9]", head, re.IGNORECASE):
        return f"{status} does not say when to come back"
    document = json.loads(body)
    error = document.get("error")
    if set(document) != {"error"} or not error:
        return f"not the shape of an error: {body[:200]!r}"
    if protocol:
        return None if isinstance(error, str) else f"not the protocol's shape: {body[:200]!r}"
    if set(error) != {"type", "message", "param", "request_id"} or not error["message"]:
        return f"not the one shape: {body[:200]!r}"
    if error["type"] != TYPES.get(status):
        return f"{status} is called {error['type']}"
    if not re.search(rb"\r\nx-request-id: " + re.escape(error["request_id"].encode()) + rb"(\r\n|$)", head):
        return "the request's id is not that of its answer"
    return None
