"""A typed client, synchronous (`Client`) and asynchronous (`AsyncClient`), for programs and the command line.

Both speak one protocol, written as generators that yield a request (or a pause) and are handed the response;
the two differ only in how they send and sleep. Knows HTTP and the wire format, nothing else.
"""

from __future__ import annotations

import asyncio
import io
import json
import random
import time
from collections.abc import AsyncIterator, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import numpy as np

from service.errors import HardmaxError
from service.schemas import (
    Classification,
    ClassifyResponse,
    ControlResponse,
    DynamicsResponse,
    Explain,
    Info,
    ModelCard,
    ModelList,
    SequenceLabel,
    SequencesResponse,
)

T = TypeVar("T")
RETRIED = (429, 503)
LONGEST_PAUSE_S = 30.0


class RemoteError(HardmaxError):
    """An answer of the server that is no result: its status, type, message and request id."""

    def __init__(self, response: httpx.Response) -> None:
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


class ConnectionFailed(HardmaxError):
    """No answer at all: nobody listens there, or the connection broke."""


@dataclass(frozen=True)
class Pause:
    """What the protocol yields when it wants to wait before it goes on."""

    seconds: float


Flow = Generator[httpx.Request | Pause, httpx.Response, T]


class Protocol:
    """What is asked and how answers are read; sends nothing itself."""

    def __init__(self, url: str, api_key: str | None, retries: int) -> None:
        self.base = httpx.URL(url.rstrip("/") + "/")
        self.headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self.retries = retries

    def build(self, method: str, path: str, **options: Any) -> httpx.Request:
        headers = {**self.headers, **options.pop("headers", {})}
        return httpx.Request(method, self.base.join(path), headers=headers, **options)

    def ask(self, method: str, path: str, **options: Any) -> Flow[httpx.Response]:
        """One answer: refusals for the moment (429, 503) are tried again, after what Retry-After says."""
        for attempt in range(self.retries + 1):
            response = yield self.build(method, path, **options)
            if response.status_code not in RETRIED or attempt == self.retries:
                break
            yield Pause(pause_before_retry(response, attempt))
        if response.is_error:
            raise RemoteError(response)
        return response

    def classify(
        self,
        texts: str | Sequence[str],
        model: str | None,
        explain: Explain,
        trajectory: bool,
        truncate: bool,
        batch_size: int,
    ) -> Flow[list[Classification]]:
        texts = [texts] if isinstance(texts, str) else list(texts)
        options: dict[str, Any] = {"explain": explain, "trajectory": trajectory, "truncate": truncate}
        if model is not None:
            options["model"] = model
        results: list[Classification] = []
        for first in range(0, len(texts), batch_size):
            body = {"input": texts[first : first + batch_size], **options}
            response = yield from self.ask("POST", "classify", json=body)
            for result in ClassifyResponse.model_validate_json(response.content).data:
                results.append(result.model_copy(update={"index": len(results)}))
        return results

    def dynamics(self, points: Any, options: Mapping[str, Any]) -> Flow[DynamicsResponse]:
        response = yield from self.ask("POST", "dynamics", **cloud(points, options))
        return DynamicsResponse.model_validate_json(response.content)

    def stream(self, points: Any, options: Mapping[str, Any]) -> dict[str, Any]:
        request = cloud(points, options)
        headers = {**self.headers, **request.pop("headers", {}), "accept": "application/x-ndjson"}
        return {"method": "POST", "url": self.base.join("dynamics"), "headers": headers, **request}

    def sequences(self, model: str, sequences: Sequence[Any]) -> Flow[list[SequenceLabel]]:
        body = {"model": model, "sequences": [np.asarray(s).tolist() for s in sequences]}
        response = yield from self.ask("POST", "sequences/classify", json=body)
        return list(SequencesResponse.model_validate_json(response.content).data)

    def control(self, points: Any, wish: Mapping[str, Any]) -> Flow[ControlResponse]:
        body = {"points": np.asarray(points).tolist(), **wish}
        response = yield from self.ask("POST", "control", json=body)
        return ControlResponse.model_validate_json(response.content)

    def models(self) -> Flow[list[ModelCard]]:
        response = yield from self.ask("GET", "models")
        return list(ModelList.model_validate_json(response.content).models)

    def info(self) -> Flow[Info]:
        response = yield from self.ask("GET", "info")
        return Info.model_validate_json(response.content)


def cloud(points: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """A cloud as a request's options: npy and a query, or JSON where a matrix A must come along."""
    points = np.asarray(points, dtype=np.float64)
    given = {name: value for name, value in options.items() if value is not None}
    if "A" in given:
        given["A"] = np.asarray(given["A"], dtype=np.float64).tolist()
        return {"json": {"points": points.tolist(), **given}}
    file = io.BytesIO()
    np.save(file, points, allow_pickle=False)
    if "include" in given:
        given["include"] = list(given["include"])
    return {
        "content": file.getvalue(),
        "params": given,
        "headers": {"content-type": "application/x-npy"},
    }


@contextmanager
def translated() -> Iterator[None]:
    """httpx's failures to connect or to keep a connection, as ours."""
    try:
        yield
    except httpx.TransportError as failure:
        raise ConnectionFailed(f"no answer: {failure or type(failure).__name__}") from failure


def pause_before_retry(response: httpx.Response, attempt: int) -> float:
    """What the server asks for, or else a doubling pause; jitter keeps callers from returning in step."""
    try:
        asked = float(response.headers.get("retry-after", ""))
    except ValueError:
        asked = 0.1 * 2**attempt
    return min(max(asked, 0.0), LONGEST_PAUSE_S) * random.uniform(1.0, 1.25)


class Client:
    """Talks to one server; a context manager that closes its connections."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        api_key: str | None = None,
        timeout_s: float = 60.0,
        retries: int = 3,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._protocol = Protocol(url, api_key, retries)
        self._http = httpx.Client(timeout=timeout_s, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def classify(
        self,
        texts: str | Sequence[str],
        *,
        model: str | None = None,
        explain: Explain = "leaders",
        trajectory: bool = False,
        truncate: bool = True,
        batch_size: int = 256,
    ) -> list[Classification]:
        """The sentiment of each text with its exact reason; long lists travel in batches."""
        return self._run(self._protocol.classify(texts, model, explain, trajectory, truncate, batch_size))

    def dynamics(self, points: Any, **options: Any) -> DynamicsResponse:
        """A cloud run to its limits; options as in the API: alpha, A, max_layers, stop, include, ..."""
        return self._run(self._protocol.dynamics(points, options))

    def stream_dynamics(self, points: Any, **options: Any) -> Iterator[dict[str, Any]]:
        """One line a chunk of layers as they are computed; the last is the result."""
        with translated(), self._http.stream(**self._protocol.stream(points, options)) as response:
            if response.is_error:
                response.read()
                raise RemoteError(response)
            yield from map(json.loads, response.iter_lines())

    def classify_sequences(self, model: str, sequences: Sequence[Any]) -> list[SequenceLabel]:
        """The label, margin and leader of each sequence by an exact model."""
        return self._run(self._protocol.sequences(model, sequences))

    def control(self, points: Any, **wish: Any) -> ControlResponse:
        """A matrix A under which `assignment={...}` or `leaders=[...]` comes true, or why none does."""
        return self._run(self._protocol.control(points, wish))

    def models(self) -> list[ModelCard]:
        """The cards of the models being served."""
        return self._run(self._protocol.models())

    def info(self) -> Info:
        """Version, providers and limits of the server."""
        return self._run(self._protocol.info())

    def _run(self, flow: Flow[T]) -> T:
        response: httpx.Response | None = None
        while True:
            try:
                step = flow.send(response)  # type: ignore[arg-type]
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            if isinstance(step, Pause):
                time.sleep(step.seconds)
                response = None
            else:
                with translated():
                    response = self._http.send(step)


class AsyncClient:
    """The same as `Client`, for asyncio."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        api_key: str | None = None,
        timeout_s: float = 60.0,
        retries: int = 3,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._protocol = Protocol(url, api_key, retries)
        self._http = httpx.AsyncClient(timeout=timeout_s, transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def classify(
        self,
        texts: str | Sequence[str],
        *,
        model: str | None = None,
        explain: Explain = "leaders",
        trajectory: bool = False,
        truncate: bool = True,
        batch_size: int = 256,
    ) -> list[Classification]:
        return await self._run(
            self._protocol.classify(texts, model, explain, trajectory, truncate, batch_size)
        )

    async def dynamics(self, points: Any, **options: Any) -> DynamicsResponse:
        return await self._run(self._protocol.dynamics(points, options))

    async def stream_dynamics(self, points: Any, **options: Any) -> AsyncIterator[dict[str, Any]]:
        with translated():
            async with self._http.stream(**self._protocol.stream(points, options)) as response:
                if response.is_error:
                    await response.aread()
                    raise RemoteError(response)
                async for line in response.aiter_lines():
                    yield json.loads(line)

    async def classify_sequences(self, model: str, sequences: Sequence[Any]) -> list[SequenceLabel]:
        return await self._run(self._protocol.sequences(model, sequences))

    async def control(self, points: Any, **wish: Any) -> ControlResponse:
        return await self._run(self._protocol.control(points, wish))

    async def models(self) -> list[ModelCard]:
        return await self._run(self._protocol.models())

    async def info(self) -> Info:
        return await self._run(self._protocol.info())

    async def _run(self, flow: Flow[T]) -> T:
        response: httpx.Response | None = None
        while True:
            try:
                step = flow.send(response)  # type: ignore[arg-type]
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
                response = None
            else:
                with translated():
                    response = await self._http.send(step)
