"""How requests travel: over a connection of asyncio, or over one that blocks; and what goes wrong on the way.

Both kinds have the same coroutines; those of a connection that blocks never suspend.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import httpx

from service.errors import HardmaxError


class RemoteError(HardmaxError):
    """An answer of the server that is no result: its status, type, message and request id.

    `param` names what is at fault; of many texts, `index` says which, counted in the list as it was given.
    """

    def __init__(self, response: httpx.Response, *, first: int = 0) -> None:
        try:
            error = response.json()["error"]
        except (ValueError, KeyError, TypeError):
            error = {}
        if not isinstance(error, dict):
            error = {"message": str(error)}
        message = str(error.get("message") or f"the server answered {response.status_code}")
        super().__init__(message, param=error.get("param"))
        self.status = response.status_code
        self.type = str(error.get("type", "http_error"))
        self.request_id = error.get("request_id") or response.headers.get("x-request-id")
        self.count_from(first)


class ConnectionFailed(HardmaxError):
    """No answer at all: nobody listens there, or the connection broke."""


class AsyncConnection:
    """A connection of asyncio."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self.pause = asyncio.sleep
        self.close = http.aclose

    async def send(self, request: httpx.Request) -> httpx.Response:
        with _failures_translated():
            return await self._http.send(request)

    async def lines(self, request: httpx.Request) -> AsyncIterator[str]:
        with _failures_translated():
            response = await self._http.send(request, stream=True)
            try:
                if response.is_error:
                    await response.aread()
                    raise RemoteError(response)
                async for line in response.aiter_lines():
                    yield line
            finally:
                await response.aclose()


class BlockingConnection:
    """A connection that blocks."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    async def send(self, request: httpx.Request) -> httpx.Response:
        with _failures_translated():
            return self._http.send(request)

    async def lines(self, request: httpx.Request) -> AsyncIterator[str]:
        with _failures_translated():
            response = self._http.send(request, stream=True)
            try:
                if response.is_error:
                    response.read()
                    raise RemoteError(response)
                for line in response.iter_lines():
                    yield line
            finally:
                response.close()

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    async def close(self) -> None:
        self._http.close()


@contextmanager
def _failures_translated() -> Iterator[None]:
    """What httpx raises where it cannot connect, or where the connection breaks, as our own error."""
    try:
        yield
    except httpx.TransportError as failure:
        raise ConnectionFailed(f"no answer: {failure or type(failure).__name__}") from failure
