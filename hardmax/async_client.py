"""`AsyncClient`: the client of a server for asyncio, with the methods of `Client`."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Self, Unpack, overload

import httpx

from hardmax import operations
from hardmax.answers import Answer, Answers, CloudRun
from hardmax.api import ClassifyOptions
from hardmax.models import (
    ControlResponse,
    Explain,
    Include,
    Info,
    ModelCard,
    OffsetUnit,
    SequenceLabel,
    Stop,
)
from hardmax.operations import TEXTS_PER_REQUEST, ApiRequest, ErrorHandling
from hardmax.transport import DEFAULT_URL, NDJSON, BoundedBuffer, HttpProtocol, decode_response


class AsyncClient:
    """A client of one server for asyncio. An asynchronous context manager that closes its connections.

    Args:
        url: The address of the server.
        api_key: The API key, if the server needs one.
        timeout_s: Seconds for one request, with its retries, however slowly the server sends.
        retries: Further attempts after a 429 or 503 response.
        transport: An httpx transport, for proxies and tests.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        timeout_s: float = 60.0,
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
            with self._protocol.translate_failures():
                async with asyncio.timeout(self._protocol.remaining_s(deadline)):
                    response = await self._connect(http_request)
                    content = await self._read(response)
            pause_s = self._protocol.pause_s(response, attempt, deadline)
            if pause_s is None:
                break
            await asyncio.sleep(pause_s)
        return decode_response(response, content)

    async def _connect(self, request: httpx.Request) -> httpx.Response:
        """Send a request, again for a moment if the connection is refused."""
        started = time.monotonic()
        while True:
            try:
                return await self._http.send(request, stream=True)
            except httpx.ConnectError:
                pause_s = self._protocol.connect_pause_s(started)
                if pause_s is None:
                    raise
                await asyncio.sleep(pause_s)

    @overload
    async def classify(self, texts: str, **options: Unpack[ClassifyOptions]) -> Answer: ...
    @overload
    async def classify(self, texts: Iterable[Any], **options: Unpack[ClassifyOptions]) -> Answers: ...
    async def classify(
        self,
        texts: str | Iterable[Any],
        *,
        model: str | Sequence[str] | None = None,
        explain: Explain = "leaders",
        trajectory: bool = False,
        truncate: bool = True,
        offset_unit: OffsetUnit = "codepoints",
        without: Sequence[tuple[int, int]] | None = None,
        flip: bool = False,
        sufficient: bool = False,
        errors: ErrorHandling = "raise",
        batch_size: int = TEXTS_PER_REQUEST,
        progress: bool | None = None,
    ) -> Answer | Answers:
        """Classify one text, or many, with the exact reason for each label. See `Client.classify`."""
        options: dict[str, Any] = {
            "model": model, "explain": explain, "trajectory": trajectory, "truncate": truncate,
            "offset_unit": offset_unit, "without": without, "flip": flip,
            "sufficient": sufficient,
        }  # fmt: skip
        return await operations.classify(
            self.send, texts, options, errors=errors, batch_size=batch_size, progress=progress
        )

    async def dynamics(
        self,
        points: Any,
        *,
        alpha: float = 1.0,
        A: Any = None,
        max_layers: int | None = None,
        stop: Stop | None = None,
        tolerance: float = 1e-9,
        tie_tolerance: float = 0.0,
        include: Sequence[Include] = ("assignment",),
        trajectory_every: int = 1,
        temperature: float | None = None,
    ) -> CloudRun:
        """Run a cloud of points through hardmax attention layers to its limits. See `Client.dynamics`."""
        request = operations.dynamics_request(
            points, alpha=alpha, A=A, max_layers=max_layers, stop=stop, tolerance=tolerance,
            tie_tolerance=tie_tolerance, include=include, trajectory_every=trajectory_every,
            temperature=temperature,
        )  # fmt: skip
        return await operations.dynamics(self.send, request)

    def stream_dynamics(
        self,
        points: Any,
        *,
        alpha: float = 1.0,
        A: Any = None,
        max_layers: int | None = None,
        stop: Stop | None = None,
        tolerance: float = 1e-9,
        tie_tolerance: float = 0.0,
        include: Sequence[Include] = ("assignment",),
        trajectory_every: int = 1,
        temperature: float | None = None,
    ) -> AsyncIterator[dict[str, Any]]:
        """Run a cloud, and yield a document for each chunk of layers. See `Client.stream_dynamics`."""
        request = operations.dynamics_request(
            points, alpha=alpha, A=A, max_layers=max_layers, stop=stop, tolerance=tolerance,
            tie_tolerance=tie_tolerance, include=include, trajectory_every=trajectory_every,
            temperature=temperature,
        )  # fmt: skip
        return self._stream(request)

    async def control(
        self,
        points: Any,
        *,
        assignment: Mapping[int, int] | None = None,
        leaders: Sequence[int] | None = None,
    ) -> ControlResponse:
        """Find a matrix A under which chosen points lead, or prove that none exists. See `Client.control`."""
        return await operations.control(self.send, points, assignment, leaders)

    async def classify_sequences(self, model: str, sequences: Iterable[Any]) -> list[SequenceLabel]:
        """Classify sequences of points with an exact model. See `Client.classify_sequences`."""
        return await operations.classify_sequences(self.send, model, sequences)

    async def models(self) -> list[ModelCard]:
        """List the models with their cards."""
        return await operations.models(self.send)

    async def info(self) -> Info:
        """Return version, provider and limits of the service."""
        return await operations.info(self.send)

    async def _stream(self, request: ApiRequest) -> AsyncGenerator[dict[str, Any], None]:
        with self._protocol.translate_failures():
            deadline = self._protocol.deadline()
            response = await self._connect(self._protocol.build_request(request, NDJSON))
            if response.is_error:
                decode_response(response, await self._read(response))
            buffer = BoundedBuffer()
            async with aclosing(response):
                async for part in response.aiter_bytes():
                    self._protocol.remaining_s(deadline)
                    for line in buffer.lines(part):
                        yield decode_response(response, line)
                for line in buffer.lines(b"\n"):
                    yield decode_response(response, line)

    async def _read(self, response: httpx.Response) -> bytes:
        buffer = BoundedBuffer()
        async with aclosing(response):
            async for part in response.aiter_bytes():
                buffer.add(part)
        return buffer.take()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()
