"""POST /dynamics: a cloud in, its leaders, clusters and limits out: whole, as arrays, or line by line."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import numpy as np
from pydantic import ValidationError
from pydantic_core import to_json

from service.api import examples
from service.api.documents import Records, each_in_turn, write_document
from service.api.exchange import Exchange, Reply
from service.api.media import JSON, NDJSON, NPY, NPZ, body_type, wanted
from service.api.numbers import WHOLE, read_document, read_npy, read_rows
from service.api.problems import input_error, status_of, validate
from service.errors import DeadlineExceeded, HardmaxError, InvalidInput, MalformedInput
from service.lane import Lane
from service.registry import Registry
from service.schemas import DynamicsParameters, DynamicsRequest, DynamicsResponse
from service.settings import Settings

if TYPE_CHECKING:
    from service.dynamics import Dynamics, Parameters, Result, Run

MODEL = "dynamics"  # the bundle that runs clouds

_BINARY = {"schema": {"type": "string", "format": "binary"}}
REQUEST = {
    **examples.body(examples.DYNAMICS, **{NPY: _BINARY}),
    "parameters": [
        {
            "name": name,
            "in": "query",
            "description": f"With an npy body: {field.description}",
            "schema": {"type": "string"},
        }
        for name, field in DynamicsParameters.model_fields.items()
    ],
}
ANSWER = examples.answer(
    {"id": examples.ID, **examples.RESULT}, **{NPZ: _BINARY, NDJSON: {"schema": {"type": "string"}}}
)


async def dynamics(body: DynamicsRequest) -> DynamicsResponse:
    """Run a cloud to its certified end

    Send JSON, or the array itself as `application/x-npy` with the parameters in the query. Accept
    `application/x-npz` for arrays, or `application/x-ndjson` for a line a chunk of layers and the result
    last. A client that leaves stops the work.
    """
    raise NotImplementedError


class Dynamic:
    def __init__(self, registry: Registry, clouds: Lane, settings: Settings) -> None:
        self._registry = registry
        self._clouds = clouds
        self._settings = settings

    async def __call__(self, exchange: Exchange) -> Reply:
        kind = body_type(exchange, JSON, NPY)
        answer_as = wanted(exchange, JSON, NPZ, NDJSON)
        model: Dynamics = self._registry.find(MODEL, "dynamics")
        body = await exchange.read(self._settings.payload_limit_bytes)
        if answer_as == NDJSON:
            return await self._stream(exchange, model, body, kind)
        async with self._clouds.place() as place:
            run, parameters = await place.step(lambda: self._start(model, body, kind, exchange.query))
            body = b""  # let go of it: the run may take long
            while await place.step(lambda: next(run, None)) is not None:
                pass
            form = npz if answer_as == NPZ else pieces
            parts = await place.collect(form(exchange.text_id, run.result, parameters.include))
        if sum(map(len, parts)) <= WHOLE:
            return Reply(b"".join(parts), media_type=answer_as.encode())
        return Reply(each_in_turn(parts), media_type=answer_as.encode())

    def _start(self, model: Dynamics, body: bytes, kind: str, query: bytes) -> tuple[Run, DynamicsParameters]:
        """Read and check a request, in the lane's thread."""
        if kind == NPY:
            points = read_npy(body, "points", **self._limits())
            parameters = _from_query(query)
        else:
            document = read_document(body, "points")
            if "points" not in document:
                raise InvalidInput("points is required", param="points")
            points = read_rows(document.pop("points"), "points", **self._limits())
            parameters = validate(DynamicsParameters, document)
        limit = self._settings.max_layers
        if "max_layers" not in parameters.model_fields_set:
            parameters = parameters.model_copy(update={"max_layers": min(parameters.max_layers, limit)})
        return model.start(points, as_parameters(parameters)), parameters

    def _limits(self) -> dict[str, int]:
        return {"max_rows": self._settings.max_points, "max_columns": self._settings.max_dimension}

    async def _stream(self, exchange: Exchange, model: Dynamics, body: bytes, kind: str) -> Reply:
        """The first lines are computed before the status is sent: a bad request is refused, not streamed."""
        lines = self._lines(exchange, model, body, kind)
        first = await anext(lines)

        async def stream() -> AsyncGenerator[bytes]:
            async with aclosing(lines):
                yield first
                async for line in lines:
                    yield line

        return Reply(stream(), media_type=NDJSON.encode())

    async def _lines(
        self, exchange: Exchange, model: Dynamics, body: bytes, kind: str
    ) -> AsyncGenerator[bytes]:
        async with self._clouds.place() as place:
            run, parameters = await place.step(lambda: self._start(model, body, kind, exchange.query))
            body = b""
            try:
                while (progress := await place.step(lambda: next(run, None))) is not None:
                    yield to_json({"progress": progress}) + b"\n"
                written = pieces(exchange.text_id, run.result, parameters.include)
                parts = await place.collect(written)
                for part in parts[:-1]:
                    yield part
                yield parts[-1] + b"\n"
            except asyncio.CancelledError:
                if not isinstance(exchange.ended_by, DeadlineExceeded):
                    raise
                exchange.resume()
                yield _last_words(exchange.ended_by, exchange)
            except HardmaxError as failure:
                yield _last_words(failure, exchange)


def as_parameters(wire: DynamicsParameters) -> Parameters:
    """The wire's parameters as the domain's."""
    from service.dynamics import Parameters

    fields = wire.model_dump()
    fields["include"] = frozenset(wire.include)
    if wire.A is not None:
        fields["A"] = read_rows(wire.A, "A", max_rows=len(wire.A), max_columns=len(wire.A))
    return Parameters(**fields)


def answer(result: Result, include: Sequence[str] = ("assignment",)) -> dict[str, Any]:
    """A result in the words of the contract. What may be long stays arrays: see `write_document`."""
    leaders, clusters = result.leaders, result.clusters
    document: dict[str, Any] = {
        "n": result.n,
        "d": result.d,
        "alpha": result.alpha,
        "status": result.status,
        "layers": result.layers,
        "certified_layer": result.certified_layer,
        "margin": result.margin,
        "leaders": Records(
            index=leaders.index,
            since_layer=leaders.since_layer,
            point=leaders.point,
            followers=leaders.followers,
            cluster=leaders.cluster,
        ),
        "clusters": Records(
            id=np.arange(len(clusters)),
            kind=np.where(clusters.tie, "tie", "leader"),
            leaders=clusters.leaders,
            limit=clusters.limit,
            size=clusters.size,
        ),
    }
    if "assignment" in include:
        document["assignment"] = result.assignment
    if "limits" in include:
        document["limits"] = result.limits
    if "polytope" in include:
        document["polytope"] = {"vertices": result.vertices}
    if "trajectory" in include:
        assert result.trajectory is not None
        kept = result.trajectory
        document["trajectory"] = {"layers": kept.layers, "points": list(kept.points)}
    return document


def pieces(request_id: str, result: Result, include: Sequence[str]) -> Iterator[bytes]:
    """The answer as JSON text in pieces, so that no step of writing it holds up others."""
    yield from write_document({"id": request_id, **answer(result, include)})


def npz(request_id: str, result: Result, include: Sequence[str]) -> Iterator[bytes]:
    """The answer's arrays as `numpy.savez` writes them, and its summary as JSON in the array `summary`."""
    document = answer(result, ())
    summary = {name: value for name, value in document.items() if not isinstance(value, Records)}
    arrays: dict[str, Any] = {
        "leaders": result.leaders.index,
        "since_layer": result.leaders.since_layer,
        "cluster_limits": result.clusters.limit,
        "cluster_sizes": result.clusters.size,
        "summary": np.array(to_json({"id": request_id, **summary}).decode()),
    }
    if "assignment" in include:
        arrays["assignment"] = result.assignment
    if "limits" in include:
        arrays["limits"] = result.limits
    if "polytope" in include:
        arrays["vertices"] = result.vertices
    if result.trajectory is not None:
        arrays["trajectory_layers"], arrays["trajectory"] = result.trajectory
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    stream.seek(0)
    yield from iter(lambda: stream.read(WHOLE), b"")


def _from_query(query: bytes) -> DynamicsParameters:
    """Parameters beside an npy body: A as JSON, include separated by commas or repeated."""
    try:
        given = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError:
        raise MalformedInput("the query is not what a URL may hold") from None
    document: dict[str, Any] = {}
    for name, value in given:
        if name == "include":
            document.setdefault(name, []).extend(part for part in value.split(",") if part)
        elif name == "A":
            document[name] = _matrix(value)
        else:
            document[name] = value
    try:
        return DynamicsParameters.model_validate(document, strict=False)
    except ValidationError as invalid:
        raise input_error(invalid) from None


def _matrix(text: str) -> Any:
    return read_document(b'{"A":' + text.encode() + b"}", "A").get("A")


def _last_words(failure: HardmaxError, exchange: Exchange) -> bytes:
    """An error in the middle of a stream: the status is sent long ago, the last line says it."""
    status, kind = status_of(failure)
    message = failure.message if status != 500 else "the service failed on this request"
    error = {"type": kind, "message": message, "param": failure.param, "request_id": exchange.text_id}
    return to_json({"error": error}) + b"\n"
