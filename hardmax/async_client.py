"""`AsyncClient`: the client of a server for asyncio, with the methods of `Client`."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Self

import httpx

from hardmax.api import AsyncApi, takes_parameters_of
from hardmax.operations import ApiRequest, dynamics_request
from hardmax.transport import DEFAULT_URL, NDJSON, BoundedBuffer, HttpProtocol, decode_response


class AsyncClient(AsyncApi):
    """A client of one server for asyncio. An asynchronous context manager that closes its connections.

    Args:
        url: The address of the server.
        api_key: The API key, if the server needs one.
        timeout_s: Seconds for one request, with its retries, however slowly the server sends.
        retries: Further attempts after a 429 or 503 response, unless the request itself was its cause.
        transport: An httpx transport, for proxies and tests.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        timeout_s: float = 75.0,
        retries: int = 3,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._protocol = HttpProtocol(url, api_key, timeout_s, retries)
        self._http = httpx.AsyncClient(timeout=self._protocol.httpx_timeout, transport=transport)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def send(self, request: ApiRequest) -> Any:
        """Send one request, with retries, and return the JSON document of its answer.

        Raises:
            HardmaxError: The request was refused, or no answer came.
        """
        http_request = self._protocol.build_request(request)
        deadline = self._protocol.deadline()
        for attempt in itertools.count():
            start_s = time.monotonic()
            with self._protocol.translate_errors():
                async with asyncio.timeout(self._protocol.remaining_s(deadline)):
                    response = await self._connect(http_request)
                    content = await self._read(response, deadline)
            pause_s = self._protocol.pause_s(response, attempt, start_s, deadline)
            if pause_s is None:
                break
            await asyncio.sleep(pause_s)
        return decode_response(response, content)

    async def _connect(self, request: httpx.Request) -> httpx.Response:
        """Send a request; retry for CONNECT_RETRY_S if the connection is refused."""
        start_s = time.monotonic()
        while True:
            try:
                return await self._http.send(request, stream=True)
            except httpx.ConnectError:
                pause_s = self._protocol.connect_pause_s(start_s)
                if pause_s is None:
                    raise
                await asyncio.sleep(pause_s)

    async def _send(self, request: ApiRequest) -> Any:
        return await self.send(request)

    @takes_parameters_of(dynamics_request)
    def stream_dynamics(self, request: ApiRequest) -> AsyncIterator[dict[str, Any]]:
        """Run a cloud to its limits, and yield its progress as documents.

        The parameters are those of `dynamics`.
        """
        return self._stream(request)

    async def _stream(self, request: ApiRequest) -> AsyncGenerator[dict[str, Any], None]:
        with self._protocol.translate_errors():
            deadline = self._protocol.deadline()
            response = await self._connect(self._protocol.build_request(request, NDJSON))
            if response.is_error:
                decode_response(response, await self._read(response, deadline))
            buffer = BoundedBuffer()
            async with aclosing(response):
                async for part in response.aiter_bytes():
                    self._protocol.remaining_s(deadline)
                    for line in buffer.lines(part):
                        yield decode_response(response, line)
                for line in buffer.lines(b"\n"):
                    yield decode_response(response, line)

    async def _read(self, response: httpx.Response, deadline: float) -> bytes:
        buffer = BoundedBuffer()
        async with aclosing(response):
            async for part in response.aiter_bytes():
                self._protocol.remaining_s(deadline)
                buffer.add(part)
        return buffer.take()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()
