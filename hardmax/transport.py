"""HTTP for both clients: build requests, decide about retries, and decode responses."""

from __future__ import annotations

import io
import json
import math
import random
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np

from hardmax import errors
from hardmax.errors import (
    ConnectionFailed,
    HardmaxError,
    InvalidInput,
    Overloaded,
    RemoteError,
    UnexpectedAnswer,
)
from hardmax.formatting import printable
from hardmax.operations import ApiRequest

DEFAULT_URL = "http://127.0.0.1:8000"
RETRIED_STATUSES = (429, 503)
# A busy server refuses at once. One that has worked for longer was kept busy by the request: not sent again.
PROMPT_REFUSAL_S = 5.0
MAX_TIMEOUT_S = 86_400.0
MAX_PAUSE_S = 30.0
CONNECT_TIMEOUT_S = 5.0
CONNECT_RETRY_S = 1.0  # for refused connections, to a server that is starting
CONNECT_PAUSE_S = 0.25
MAX_RECEIVED_BYTES = 2**28  # of an answer, or of a line of a stream
# Numbers, lists and objects in an answer: a list of empty lists takes 30 times its bytes once it is parsed.
MAX_RESPONSE_VALUES, MAX_RESPONSE_CONTAINERS = 2**24, 2**23
# Characters of a matrix A in the query, escaped: many proxies accept 8 kB, a server 64 kB. The longer one is
# of a cloud that may exceed the 4 MB of JSON that a server accepts.
MAX_MATRIX_CHARS, MAX_MATRIX_CHARS_LARGE_CLOUD = 6_000, 60_000
MAX_JSON_NUMBERS = 150_000
JSON, NPY, NDJSON = "application/json", "application/x-npy", "application/x-ndjson"
ERROR_CLASSES = {  # too_large -> TooLarge
    re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower(): error_class
    for name, error_class in vars(errors).items()
    if isinstance(error_class, type) and issubclass(error_class, errors.InputError | errors.CapacityError)
}


class HttpProtocol:
    """Builds requests, decides about retries and translates failures of httpx."""

    def __init__(self, url: str, api_key: str | None, timeout_s: float, retries: int) -> None:
        self._base_url = parse_url(url)
        key = clean_api_key(api_key)
        if not (isinstance(timeout_s, int | float) and 0 < timeout_s <= MAX_TIMEOUT_S):
            raise InvalidInput("timeout_s should be a number of seconds, at most a day", param="timeout_s")
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self._timeout_s = timeout_s
        self._retries = retries

    @property
    def httpx_timeout(self) -> httpx.Timeout:
        """The timeouts of single steps; `remaining_s` bounds the whole call."""
        return httpx.Timeout(self._timeout_s, connect=min(self._timeout_s, CONNECT_TIMEOUT_S))

    def deadline(self) -> float:
        """Return the time of the monotonic clock at which a call that starts now is over."""
        return time.monotonic() + self._timeout_s

    def remaining_s(self, deadline: float) -> float:
        """Return the seconds left of a call, or raise ConnectionFailed if there are none."""
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            raise self.timeout_error()
        return seconds

    def timeout_error(self) -> ConnectionFailed:
        """Return the error of a call that took too long."""
        return ConnectionFailed(
            f"no complete answer from {self._server} within {self._timeout_s:g} s (timeout_s)"
        )

    def build_request(self, request: ApiRequest, accept: str = JSON) -> httpx.Request:
        """Return the HTTP request. A cloud is sent as npy, unless its matrix A is too long for a query."""
        if request.sweep:
            raise InvalidInput("a list of alpha or A is several runs: call dynamics", param="alpha")
        headers = {**self._headers, "accept": accept}
        if request.body is not None:
            headers["content-type"] = JSON
        method = "GET" if request.body is None else "POST"
        content: dict[str, Any] = {} if request.body is None else {"content": encode_json(request.body)}
        if request.points is not None and request.body is not None:
            matrix = encode_json(request.body.get("A")).decode()
            large = request.points.size > MAX_JSON_NUMBERS
            if len(quote(matrix)) <= (MAX_MATRIX_CHARS_LARGE_CLOUD if large else MAX_MATRIX_CHARS):
                file = io.BytesIO()
                np.save(file, request.points, allow_pickle=False)
                query = {**request.body, "include": ",".join(request.body["include"]), "A": matrix}
                query = {name: value for name, value in query.items() if name in request.body}
                content = {"content": file.getvalue(), "params": query}
                headers["content-type"] = NPY
            else:
                content = {"content": encode_json({"points": request.points.tolist(), **request.body})}
        return httpx.Request(method, self._base_url.join(request.path), headers=headers, **content)

    def pause_s(
        self, response: httpx.Response, attempt: int, start_s: float, deadline: float
    ) -> float | None:
        """Return the seconds to wait before the next attempt, or None if the response is final.

        It is the pause that the server requests, or else a doubling one, with jitter. A response is also
        final if it came late, or if the next attempt would start after the deadline.
        """
        if response.status_code not in RETRIED_STATUSES or attempt == self._retries:
            return None
        if time.monotonic() - start_s > PROMPT_REFUSAL_S:
            return None
        requested = parse_retry_after(response)
        pause_s = 0.1 * 2**attempt if requested is None else requested
        pause_s = min(pause_s, MAX_PAUSE_S) * random.uniform(1.0, 1.25)
        return pause_s if time.monotonic() + pause_s < deadline else None

    def connect_pause_s(self, start_s: float) -> float | None:
        """Return the seconds to wait before connecting again, or None after `CONNECT_RETRY_S`."""
        return CONNECT_PAUSE_S if time.monotonic() + CONNECT_PAUSE_S < start_s + CONNECT_RETRY_S else None

    @property
    def _server(self) -> str:
        return f"{self._base_url.scheme}://{self._base_url.netloc.decode()}"  # without a password

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Translate the errors of httpx, when a connection or an answer fails, to ConnectionFailed."""
        try:
            yield
        except httpx.ConnectError as error:
            reason = printable(str(error)) or type(error).__name__
            hint = f"tried again for {CONNECT_RETRY_S:g} s; is the server running?"
            raise ConnectionFailed(f"no answer from {self._server}: {reason} ({hint})") from error
        except (httpx.HTTPError, httpx.StreamError) as error:
            reason = printable(str(error)) or type(error).__name__
            raise ConnectionFailed(f"no answer from {self._server}: {reason}") from error
        except TimeoutError:
            raise self.timeout_error() from None


def encode_json(value: Any) -> bytes:
    """Return a value as JSON, or raise InvalidInput if it has a part that JSON lacks."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:  # also half a character: a lone surrogate
        raise InvalidInput(f"the request cannot be written as JSON: {error}") from None


def parse_url(url: str) -> httpx.URL:
    """Return the base URL of a server, or raise InvalidInput."""
    try:
        base_url = httpx.URL(url.rstrip("/") + "/")
    except httpx.InvalidURL:
        base_url = httpx.URL()
    if base_url.scheme not in ("http", "https") or not base_url.host or (base_url.port or 0) > 65_535:
        raise InvalidInput(
            f"{url!r} is not the address of a server: it should look like {DEFAULT_URL}", param="url"
        )
    return base_url


def clean_api_key(api_key: str | None) -> str:
    """Return the key for a header, without the line break of a file; refuse unusual characters."""
    key = (api_key or "").strip()
    if key.isascii() and key.isprintable():
        return key
    raise InvalidInput("an API key has printable ASCII characters only", param="api_key")


def parse_retry_after(response: httpx.Response) -> float | None:
    """Return the seconds of the Retry-After header, or None without a usable one."""
    try:
        seconds = float(response.headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


class BoundedBuffer:
    """Collects the bytes of a response, at once or line by line, up to `MAX_RECEIVED_BYTES`."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, part: bytes) -> None:
        """Append bytes, or raise UnexpectedAnswer over the limit."""
        self._bytes += part
        if len(self._bytes) > MAX_RECEIVED_BYTES:
            raise UnexpectedAnswer(f"not a response of hardmax: more than {MAX_RECEIVED_BYTES >> 20} MB")

    def lines(self, part: bytes) -> Iterator[bytes]:
        """Append bytes, and return the lines that they complete."""
        complete, newline, incomplete = part.rpartition(b"\n")
        if newline:
            self.add(complete)
            yield from (line for line in self.take().split(b"\n") if line.strip())
        self.add(incomplete)

    def take(self) -> bytes:
        """Return the bytes and empty the buffer."""
        content, self._bytes = bytes(self._bytes), bytearray()
        return content


def decode_response(response: httpx.Response, content: bytes) -> Any:
    """Return the document of a response; raise the error that it describes."""
    containers = content.count(b"[") + content.count(b"{")
    if content.count(b",") > MAX_RESPONSE_VALUES or containers > MAX_RESPONSE_CONTAINERS:
        raise UnexpectedAnswer("not a response of hardmax: it has too many values")
    try:
        document = json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):  # no JSON, nested too deeply, or a number of thousands of digits
        document = None
    if response.is_error or document is None or (isinstance(document, dict) and "error" in document):
        raise decode_error(document, response)
    return document


def _refuse_constant(name: str) -> None:
    """Refuse NaN and Infinity, which are not JSON."""
    raise ValueError(f"{name} is not JSON")


def decode_error(document: Any, response: httpx.Response) -> HardmaxError:
    """Return the error of a response as the class that its `type` names."""
    body = document.get("error") if isinstance(document, dict) else None
    if not isinstance(body, dict):
        body = {"message": body} if isinstance(body, str) else {}
    fields = {name: printable(str(value)) for name, value in body.items() if value is not None}
    location = response.headers.get("location")
    redirect = f": it points to {printable(location)}" if location else ""
    default = f"{response.url.host} answered {response.status_code}, and not as hardmax does{redirect}"
    default_class = RemoteError if response.is_error or fields else UnexpectedAnswer
    error_class = ERROR_CLASSES.get(fields.get("type", ""), default_class)
    error = error_class(fields.get("message") or default, param=fields.get("param"))
    error.status = response.status_code
    error.request_id = fields.get("request_id") or printable(response.headers.get("x-request-id", ""))
    if isinstance(error, RemoteError):
        error.type = fields.get("type", error.type)
    if isinstance(error, Overloaded):
        error.retry_after_s = parse_retry_after(response) or error.retry_after_s
    return error
