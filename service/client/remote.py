"""A typed client of a server: `AsyncClient` for asyncio, and `Client`, the same for programs that wait.

Every call is written once, as a coroutine of `Calls`. Over a connection that blocks it never suspends, so
`Client` runs it to its end in one step.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

import httpx
import numpy as np

from service.client.answers import Answers, CloudRun, DynamicsOptions
from service.client.connections import AsyncConnection, BlockingConnection, ConnectionFailed, RemoteError
from service.schemas.clouds import ControlResponse
from service.schemas.operations import Info, ModelCard, ModelList
from service.schemas.sequences import SequenceLabel, SequencesResponse
from service.schemas.texts import ClassifyResponse, Explain

__all__ = ["AsyncClient", "Client", "ConnectionFailed", "RemoteError"]

P = ParamSpec("P")
T = TypeVar("T")
HERE = "http://127.0.0.1:8000"
RETRIED = (429, 503)
LONGEST_PAUSE_S = 30.0


class Calls:
    """Every call of the API, over any connection."""

    def __init__(
        self, connection: AsyncConnection | BlockingConnection, url: str, api_key: str | None, retries: int
    ) -> None:
        self._connection = connection
        self._base = httpx.URL(url.rstrip("/") + "/")
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._retries = retries

    async def classify(
        self,
        texts: str | Sequence[str],
        *,
        model: str | None = None,
        explain: Explain = "leaders",
        trajectory: bool = False,
        truncate: bool = True,
        batch_size: int = 256,
    ) -> Answers:
        """The sentiment of each text with its exact reason; long lists travel in batches."""
        options: dict[str, Any] = {"explain": explain, "trajectory": trajectory, "truncate": truncate}
        if model is not None:
            options["model"] = model
        batches = [texts] if isinstance(texts, str) else _batches(texts, batch_size)
        answers = Answers()
        for batch in batches:
            body = {"input": batch, **options}
            response = await self._ask("POST", "classify", first=len(answers), json=body)
            some = [batch] if isinstance(batch, str) else batch
            answers.add(ClassifyResponse.model_validate_json(response.content), some)
        return answers

    async def dynamics(self, /, points: Any, **options: Unpack[DynamicsOptions]) -> CloudRun:
        """A cloud run to its limits."""
        response = await self._ask("POST", "dynamics", **_cloud(points, options))
        return CloudRun.model_validate_json(response.content).model_copy(update={"points": points})

    async def stream_dynamics(
        self, points: Any, **options: Unpack[DynamicsOptions]
    ) -> AsyncGenerator[dict[str, Any], None]:
        """One line a chunk of layers as they are computed; the last is the result."""
        cloud = _cloud(points, options)
        headers = {**cloud.pop("headers", {}), "accept": "application/x-ndjson"}
        request = self._build("POST", "dynamics", headers=headers, **cloud)
        async for line in self._connection.lines(request):
            yield json.loads(line)

    async def classify_sequences(self, model: str, sequences: Sequence[Any]) -> list[SequenceLabel]:
        """The label, margin and leader of each sequence by an exact model."""
        body = {"model": model, "sequences": [np.asarray(s).tolist() for s in sequences]}
        response = await self._ask("POST", "sequences/classify", json=body)
        return list(SequencesResponse.model_validate_json(response.content).data)

    async def control(
        self,
        points: Any,
        *,
        assignment: Mapping[int, int] | None = None,
        leaders: Sequence[int] | None = None,
    ) -> ControlResponse:
        """A matrix A under which the wish comes true, or why none does."""
        body: dict[str, Any] = {"points": np.asarray(points).tolist()}
        if assignment is not None:
            body["assignment"] = {str(token): leader for token, leader in assignment.items()}
        if leaders is not None:
            body["leaders"] = list(leaders)
        response = await self._ask("POST", "control", json=body)
        return ControlResponse.model_validate_json(response.content)

    async def models(self) -> list[ModelCard]:
        """The cards of the models being served."""
        response = await self._ask("GET", "models")
        return list(ModelList.model_validate_json(response.content).models)

    async def info(self) -> Info:
        """Version, providers and limits of the server."""
        response = await self._ask("GET", "info")
        return Info.model_validate_json(response.content)

    async def close(self) -> None:
        await self._connection.close()

    async def _ask(self, method: str, path: str, *, first: int = 0, **options: Any) -> httpx.Response:
        """One answer: refusals for the moment (429, 503) are tried again, after what Retry-After says."""
        for attempt in range(self._retries + 1):
            response = await self._connection.send(self._build(method, path, **options))
            if response.status_code not in RETRIED or attempt == self._retries:
                break
            await self._connection.pause(_pause_before_retry(response, attempt))
        if response.is_error:
            raise RemoteError(response, first=first)
        return response

    def _build(self, method: str, path: str, **options: Any) -> httpx.Request:
        headers = {**self._headers, **options.pop("headers", {})}
        return httpx.Request(method, self._base.join(path), headers=headers, **options)


class AsyncClient(Calls):
    """Talks to one server; an asynchronous context manager that closes its connections."""

    def __init__(
        self,
        url: str = HERE,
        *,
        api_key: str | None = None,
        timeout_s: float = 60.0,
        retries: int = 3,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        http = httpx.AsyncClient(timeout=timeout_s, transport=transport)
        super().__init__(AsyncConnection(http), url, api_key, retries)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.close()


def _blocking(
    call: Callable[Concatenate[Calls, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """The same call as a method that waits for its answer."""

    @wraps(call)
    def method(self: Client, /, *arguments: P.args, **options: P.kwargs) -> T:
        return _run(call(self._calls, *arguments, **options))

    return method


class Client:
    """Talks to one server; a context manager that closes its connections."""

    def __init__(
        self,
        url: str = HERE,
        *,
        api_key: str | None = None,
        timeout_s: float = 60.0,
        retries: int = 3,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        http = httpx.Client(timeout=timeout_s, transport=transport)
        self._calls = Calls(BlockingConnection(http), url, api_key, retries)

    classify = _blocking(Calls.classify)
    dynamics = _blocking(Calls.dynamics)
    classify_sequences = _blocking(Calls.classify_sequences)
    control = _blocking(Calls.control)
    models = _blocking(Calls.models)
    info = _blocking(Calls.info)
    close = _blocking(Calls.close)

    def stream_dynamics(self, points: Any, **options: Unpack[DynamicsOptions]) -> Iterator[dict[str, Any]]:
        """One line a chunk of layers as they are computed; the last is the result."""
        lines = self._calls.stream_dynamics(points, **options)
        try:
            while True:
                yield _run(anext(lines))
        except StopAsyncIteration:
            return
        finally:
            _run(lines.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def _run(call: Awaitable[T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        next(iter(call.__await__()))
    except StopIteration as done:
        result: T = done.value
        return result
    raise RuntimeError("a call over a blocking connection was suspended")


def _batches(texts: Sequence[str], size: int) -> Iterator[list[str]]:
    for first in range(0, len(texts), size):
        yield list(texts[first : first + size])


def _cloud(points: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """A cloud as a request's options: npy and a query, or JSON where a matrix A must come along."""
    points = np.asarray(points, dtype=np.float64)
    given = {name: value for name, value in options.items() if value is not None}
    if "A" in given:
        given["A"] = np.asarray(given["A"], dtype=np.float64).tolist()
        return {"json": {"points": points.tolist(), **given}}
    file = io.BytesIO()
    np.save(file, points, allow_pickle=False)
    headers = {"content-type": "application/x-npy"}
    return {"content": file.getvalue(), "params": given, "headers": headers}


def _pause_before_retry(response: httpx.Response, attempt: int) -> float:
    """What the server asks for, or else a doubling pause; jitter keeps callers from returning in step."""
    try:
        asked = float(response.headers.get("retry-after", ""))
    except ValueError:
        asked = 0.1 * 2**attempt
    return min(max(asked, 0.0), LONGEST_PAUSE_S) * random.uniform(1.0, 1.25)
