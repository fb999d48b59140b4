"""HTTP as bytes: requests that no library would send, and checks of the format of error responses."""

from __future__ import annotations

import io
import json
import re
import socket
from contextlib import suppress
from typing import Any

import numpy as np

JSON = b"application/json"
NPY = b"application/x-npy"
ERROR_TYPES = {
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
RETRYABLE = (429, 503)  # with Retry-After
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)


def is_complete(response: bytes) -> bool:
    """Return whether these bytes are a whole HTTP response."""
    head_ends = response.find(b"\r\n\r\n")
    if head_ends < 0:
        return False
    length = LENGTH.search(response, 0, head_ends + 2)
    if length:
        return len(response) >= head_ends + 4 + int(length[1])
    return CHUNKED.search(response, 0, head_ends + 2) is not None and response.endswith(b"0\r\n\r\n")


def unchunk(body: bytes) -> bytes:
    """Return the content of a body in chunked transfer encoding."""
    content = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        content += rest[:length]
        body = rest[length + 2 :] if length else b""
    return content


def request_head(size: int, path: str = "/classify", content_type: bytes = JSON) -> bytes:
    """Return the head of a request whose body has `size` bytes."""
    return _head(path, content_type) + b"content-length: %d\r\n\r\n" % size


def post_request(body: bytes, path: str = "/classify", content_type: bytes = JSON) -> bytes:
    return request_head(len(body), path, content_type) + body


def chunked_request(body: bytes) -> bytes:
    """Return a request with a chunked body, without a content length."""
    parts = [body[start : start + 65536] for start in range(0, len(body), 65536)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(data), data) for data in parts)
    return _head("/classify", JSON) + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


def _head(path: str, content_type: bytes) -> bytes:
    return b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: %s\r\n" % (path.encode(), content_type)


def npy(array: Any) -> bytes:
    body = io.BytesIO()
    np.save(body, array)
    return body.getvalue()


def npy_with_shape(shape: str) -> bytes:
    """Return six numbers with an npy header that declares this shape."""
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(48)


def binary_tensor(tensor: bytes, texts: int = 1) -> tuple[bytes, dict[str, str]]:
    """Return a body of the Open Inference Protocol with a binary tensor, and the headers that declare it."""
    tensor_info = {"name": "text", "datatype": "BYTES", "shape": [texts]}
    head = json.dumps({"inputs": [tensor_info | {"parameters": {"binary_data_size": len(tensor)}}]}).encode()
    content_type = {"content-type": "application/octet-stream"}
    return head + tensor, content_type | {"inference-header-content-length": str(len(head))}


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def read_response(connection: socket.socket) -> tuple[bytes, bytes]:
    """Read the head and the body of the next response. Nothing may follow it."""
    response = b""
    while not is_complete(response):
        data = connection.recv(65536)
        assert data, f"the connection ended after {response!r}"
        response += data
    head, _, body = response.partition(b"\r\n\r\n")
    return head, body


def read_all(connection: socket.socket) -> bytes:
    """Read until the server closes the connection, which it must not reset."""
    response = b""
    while data := connection.recv(65536):
        response += data
    return response


def exchange(port: int, *parts: bytes) -> bytes:
    """Send these parts, even if the response comes early, and read until the server closes the connection."""
    with connect(port) as connection:
        with suppress(ConnectionError):
            for data in parts:
                connection.sendall(data)
        return read_all(connection)


def read_status(connection: socket.socket) -> int:
    """Read the next response and return its status; check the format if it is an error."""
    head, body = read_response(connection)
    status = int(head[9:12])
    defect = find_defect(status, head, body) if status >= 400 else None
    assert defect is None, defect
    return status


def status_of(port: int, request: bytes) -> int:
    """Send a request on a new connection, and return the status of the response."""
    with connect(port) as connection:
        connection.sendall(request)
        return read_status(connection)


def find_defect(status: int, head: bytes, body: bytes, *, protocol: bool = False) -> str | None:
    """Return what is wrong with an error response, or None. `protocol`: of the Open Inference Protocol."""
    if status in RETRYABLE and not re.search(rb"\r\nretry-after: [1-9]", head, re.IGNORECASE):
        return f"{status} does not say when to come back"
    document = json.loads(body)
    error = document.get("error")
    if set(document) != {"error"} or not error:
        return f"not the shape of an error: {body[:200]!r}"
    if protocol:
        return None if isinstance(error, str) else f"not the protocol's shape: {body[:200]!r}"
    if set(error) != {"type", "message", "param", "request_id"} or not error["message"]:
        return f"not the one shape: {body[:200]!r}"
    if error["type"] != ERROR_TYPES.get(status):
        return f"{status} is called {error['type']}"
    if not re.search(rb"\r\nx-request-id: " + re.escape(error["request_id"].encode()) + rb"(\r\n|$)", head):
        return "the request's id is not that of its answer"
    return None
