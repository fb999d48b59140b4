"""Clients of a server: `Client` for programs that wait, and `AsyncClient`, the same for asyncio."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import math
import random
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import aclosing, closing, contextmanager
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx
import numpy as np

from hardmax import calls, errors
from hardmax.calls import Ask, Calls, Question, as_method
from hardmax.display import printable
from hardmax.errors import (
    ConnectionFailed,
    HardmaxError,
    InvalidInput,
    Overloaded,
    RemoteError,
    UnexpectedAnswer,
)

P = ParamSpec("P")
T = TypeVar("T")
HERE = "http://127.0.0.1:8000"
RETRIED = (429, 503)
LONGEST_PAUSE_S = 30.0
LONGEST_ANSWER = 2**28  # bytes of an answer, or of a line of a stream
QUERY_CHARS = 4000  # of a matrix A that travels in the query: many proxies read 8 kB of it
# The same where the cloud may be over the 16 MB of JSON that a server reads: 62 kB once they are escaped.
LONGEST_QUERY_CHARS = 44_000
JSON_NUMBERS = 600_000
NPY, NDJSON = "application/x-npy", "application/x-ndjson"
LINES = (
    "A line a chunk of layers as they are computed, with the options of `dynamics`; the last is the result."
)
KINDS = {  # too_large -> TooLarge
    re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower(): kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.InputError | errors.CapacityError)
}


class Protocol:
    """What both clients know: how questions become requests, and responses documents."""

    def __init__(self, url: str, api_key: str | None, retries: int) -> None:
        self._base = address_of(url)
        self._headers = {"authorization": f"Bearer {key}"} if (key := key_of(api_key)) else {}
        self._retries = retries

    def request(self, question: Question, accept: str = "application/json") -> httpx.Request:
        """A cloud travels as npy with the rest in the query, unless a matrix A is too long for that."""
        headers = {**self._headers, "accept": accept}
        method = "GET" if question.body is None else "POST"
        options: dict[str, Any] = {} if question.body is None else {"json": question.body}
        if question.points is not None and question.body is not None:
            matrix = json.dumps(question.body.get("A"))
            large = question.points.size > JSON_NUMBERS
            if len(matrix) <= (LONGEST_QUERY_CHARS if large else QUERY_CHARS):
                file = io.BytesIO()
                np.save(file, question.points, allow_pickle=False)
                query = {**question.body, "include": ",".join(question.body["include"]), "A": matrix}
                query = {name: value for name, value in query.items() if name in question.body}
                options = {"content": file.getvalue(), "params": query}
                headers["content-type"] = NPY
            else:
                options = {"json": {"points": question.points.tolist(), **question.body}}
        return httpx.Request(method, self._base.join(question.path), headers=headers, **options)

    def pause_s(self, response: httpx.Response, attempt: int) -> float | None:
        """How long to wait before the same question is asked again: what the server asks for, or else a
        doubling pause; jitter keeps callers from returning in step. None: it is not asked again.
        """
        if response.status_code not in RETRIED or attempt == self._retries:
            return None
        asked = retry_after_s(response)
        pause_s = 0.1 * 2**attempt if asked is None else asked
        return min(pause_s, LONGEST_PAUSE_S) * random.uniform(1.0, 1.25)

    @contextmanager
    def failures_translated(self) -> Iterator[None]:
        """What httpx raises where it cannot connect, or where an answer breaks off, as our own error."""
        try:
            yield
        except (httpx.HTTPError, httpx.StreamError) as failure:
            server = f"{self._base.scheme}://{self._base.netloc.decode()}"  # without a password
            why = printable(str(failure)) or type(failure).__name__
            raise ConnectionFailed(f"no answer from {server}: {why}") from failure


def address_of(url: str) -> httpx.URL:
    try:
        address = httpx.URL(url.rstrip("/") + "/")
    except httpx.InvalidURL:
        address = httpx.URL()
    if address.scheme not in ("http", "https") or not address.host or (address.port or 0) > 65_535:
        raise InvalidInput(f"{url!r} is no address of a server: it should look like {HERE}", param="url")
    return address


def key_of(api_key: str | None) -> str:
    """A key as a header can carry it; one that was read from a file may end with its line."""
    key = (api_key or "").strip()
    if key.isascii() and key.isprintable():
        return key
    raise InvalidInput("an API key has plain letters, digits and signs alone", param="api_key")


def retry_after_s(response: httpx.Response) -> float | None:
    try:
        asked = float(response.headers.get("retry-after", ""))
    except ValueError:
        return None
    return asked if math.isfinite(asked) and asked >= 0 else None


class Parts:
    """Collects what arrives, to its end or line by line, up to a bound: a server may send without end."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def add(self, part: bytes) -> None:
        self._kept += part
        if len(self._kept) > LONGEST_ANSWER:
            raise UnexpectedAnswer(f"this is no answer of hardmax: more than {LONGEST_ANSWER >> 20} MB")

    def lines(self, part: bytes) -> Iterator[bytes]:
        """The lines that are whole with this part."""
        whole, newline, rest = part.rpartition(b"\n")
        if newline:
            self.add(whole)
            yield from (line for line in self.take().split(b"\n") if line.strip())
        self.add(rest)

    def take(self) -> bytes:
        taken, self._kept = bytes(self._kept), bytearray()
        return taken


def document_of(response: httpx.Response, content: bytes) -> Any:
    """What a server answered; its errors are raised by the names that it gives them."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):  # no JSON, nested too deeply, or a number of thousands of digits
        document = None
    if response.is_error or document is None or (isinstance(document, dict) and "error" in document):
        raise error_of(document, response)
    return document


def error_of(document: Any, response: httpx.Response) -> HardmaxError:
    error = document.get("error") if isinstance(document, dict) else None
    if not isinstance(error, dict):
        error = {"message": error} if isinstance(error, str) else {}
    said = {name: printable(str(value)) for name, value in error.items() if value is not None}
    elsewhere = response.headers.get("location")
    points = f": it points to {printable(elsewhere)}" if elsewhere else ""
    strange = f"{response.url.host} answered {response.status_code}, and not as hardmax does{points}"
    unknown = RemoteError if response.is_error or said else UnexpectedAnswer
    kind = KINDS.get(said.get("type", ""), unknown)
    failure = kind(said.get("message") or strange, param=said.get("param"))
    failure.status = response.status_code
    failure.request_id = said.get("request_id") or printable(response.headers.get("x-request-id", ""))
    if isinstance(failure, RemoteError):
        failure.type = said.get("type", failure.type)
    if isinstance(failure, Overloaded):
        failure.retry_after_s = retry_after_s(response) or failure.retry_after_s
    return failure


def _streaming(ask: Callable[P, Question]) -> Callable[Concatenate[Client, P], Iterator[dict[str, Any]]]:
    def method(self: Client, /, *arguments: P.args, **options: P.kwargs) -> Iterator[dict[str, Any]]:
        return self._stream(ask(*arguments, **options))

    return as_method(ask, method, LINES)


class Client(Calls):
    """Talks to one server; a context manager that closes its connections."""

    stream_dynamics = _streaming(calls.cloud)

    def __init__(
        self,
        url: str = HERE,
        *,
        api_key: str | None = None,
        timeout_s: float = 60.0,
        retries: int = 3,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._http = httpx.Client(timeout=timeout_s, transport=transport)
        self._protocol = Protocol(url, api_key, retries)

    def close(self) -> None:
        self._http.close()

    def answer(self, question: Question) -> Any:
        request = self._protocol.request(question)
        for attempt in itertools.count():
            with self._protocol.failures_translated():
                response = self._http.send(request, stream=True)
                content = self._whole(response)
            pause_s = self._protocol.pause_s(response, attempt)
            if pause_s is None:
                break
            time.sleep(pause_s)
        return document_of(response, content)

    def _stream(self, question: Question) -> Iterator[dict[str, Any]]:
        with self._protocol.failures_translated():
            response = self._http.send(self._protocol.request(question, NDJSON), stream=True)
            if response.is_error:
                document_of(response, self._whole(response))
            parts = Parts()
            with closing(response):
                for part in itertools.chain(response.iter_bytes(), [b"\n"]):
                    yield from (document_of(response, line) for line in parts.lines(part))

    def _whole(self, response: httpx.Response) -> bytes:
        parts = Parts()
        with closing(response):
            for part in response.iter_bytes():
                parts.add(part)
        return parts.take()


def _awaited(
    call: Callable[Concatenate[Ask, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    async def method(self: AsyncClient, /, *arguments: P.args, **options: P.kwargs) -> T:
        return await call(self.answer, *arguments, **options)

    return as_method(call, method)


def _streaming_async(
    ask: Callable[P, Question],
) -> Callable[Concatenate[AsyncClient, P], AsyncIterator[dict[str, Any]]]:
    def method(
        self: AsyncClient, /, *arguments: P.args, **options: P.kwargs
    ) -> AsyncIterator[dict[str, Any]]:
        return self._stream(ask(*arguments, **options))

    return as_method(ask, method, LINES)


class AsyncClient:
    """Talks to one server; an asynchronous context manager that closes its connections."""

    classify = _awaited(calls.classify)
    dynamics = _awaited(calls.dynamics)
    control = _awaited(calls.control)
    classify_sequences = _awaited(calls.classify_sequences)
    models = _awaited(calls.models)
    info = _awaited(calls.info)
    stream_dynamics = _streaming_async(calls.cloud)

    def __init__(
        self,
        url: str = HERE,
        *,
        api_key: str | None = None,
        timeout_s: float = 60.0,
        retries: int = 3,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = httpx.AsyncClient(timeout=timeout_s, transport=transport)
        self._protocol = Protocol(url, api_key, retries)

    async def close(self) -> None:
        await self._http.aclose()

    async def answer(self, question: Question) -> Any:
        request = self._protocol.request(question)
        for attempt in itertools.count():
            with self._protocol.failures_translated():
                response = await self._http.send(request, stream=True)
                content = await self._whole(response)
            pause_s = self._protocol.pause_s(response, attempt)
            if pause_s is None:
                break
            await asyncio.sleep(pause_s)
        return document_of(response, content)

    async def _stream(self, question: Question) -> AsyncGenerator[dict[str, Any], None]:
        with self._protocol.failures_translated():
            response = await self._http.send(self._protocol.request(question, NDJSON), stream=True)
            if response.is_error:
                document_of(response, await self._whole(response))
            parts = Parts()
            async with aclosing(response):
                async for part in response.aiter_bytes():
                    for line in parts.lines(part):
                        yield document_of(response, line)
                for line in parts.lines(b"\n"):
                    yield document_of(response, line)

    async def _whole(self, response: httpx.Response) -> bytes:
        parts = Parts()
        async with aclosing(response):
            async for part in response.aiter_bytes():
                parts.add(part)
        return parts.take()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.close()
