"""POST /dynamics: a cloud in, its leaders, clusters and limits out: whole, as arrays, or line by line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterator
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import numpy as np
from fastapi import APIRouter, Request
from pydantic_core import to_json
from starlette.responses import Response

from service.engine.lane import LARGE, Steps
from service.errors import DeadlineExceeded, HardmaxError, MalformedInput
from service.http import examples
from service.http.arrays import Array, as_array, read_npy, read_rows, write_npz
from service.http.bodies import JSON, NDJSON, NPY, NPZ, Body, BodyOf, parse_json, reader_of, wanted
from service.http.dependencies import HoldingOf, RequestId, ServiceOf
from service.http.documents import Pieces, Records, reply_document, reply_pieces, write_document
from service.http.problems import document, status_of, validate
from service.lifecycle import Service
from service.schemas.clouds import DynamicsParameters, DynamicsRequest, DynamicsResult
from service.settings import Settings

if TYPE_CHECKING:
    from service.clouds.dynamics import Dynamics, Parameters, Result

MODEL = "dynamics"  # the bundle that runs clouds
SUMMARY = ("n", "d", "alpha", "status", "layers", "certified_layer", "margin")
NUMBER_BYTES = 8  # of a number in an answer, at least

router = APIRouter(tags=["inference"])
QUERY = [
    {
        "name": name,
        "in": "query",
        "description": f"With an npy body: {field.description}",
        "schema": {"type": "string"},
    }
    for name, field in DynamicsParameters.model_fields.items()
]


@router.post(
    "/dynamics",
    response_model=DynamicsResult,
    responses=examples.answers({"id": examples.ID, **examples.RESULT}, NPZ, NDJSON),
    openapi_extra={**examples.body(examples.DYNAMICS, DynamicsRequest, NPY), "parameters": QUERY},
    summary="Run a cloud to its certified end",
)
async def dynamics(
    body: BodyOf,
    request: Request,
    service: ServiceOf,
    request_id: RequestId,
    holding: HoldingOf,
) -> Response:
    """Send JSON, or the array itself as `application/x-npy` with the parameters in the query. Accept
    `application/x-npz` for arrays, or `application/x-ndjson` for a line a chunk of layers and the result
    last. A client that leaves stops the work.
    """
    answer_as = wanted(request, JSON, NPZ, NDJSON)
    model: Dynamics = service.registry.find(MODEL, "dynamics")
    read = partial(_read, body, request.scope["query_string"], model, service.settings)
    points, parameters = await reader_of(request).read(len(body.content), read)
    if answer_as == NDJSON:
        return await _stream(_lines(request, service, model, points, parameters))

    def work() -> Steps[Result]:
        run = model.start(points, parameters)
        for _ in run:
            holding.expect(run.kept_bytes)
            yield
        return run.result

    if parameters.stop == "never" and "trajectory" in parameters.include:
        kept = parameters.max_layers // parameters.trajectory_every + 1
        holding.expect(NUMBER_BYTES * kept * points.size)
    async with service.clouds.place(large=points.size > LARGE) as place:
        result = await place.follow(work())
    if answer_as == NPZ:
        return await reply_pieces(npz(request_id, result, parameters.include), holding, NPZ)
    return await reply_document({"id": request_id, **answer(result, parameters.include)}, holding)


def _read(body: Body, query: bytes, model: Dynamics, settings: Settings) -> tuple[Array, Parameters]:
    """Read and check a request."""
    limits = {"max_rows": settings.max_points, "max_columns": settings.max_dimension}
    if body.media_type == NPY:
        parameters = parameters_of(_from_query(query), settings, strict=False)
        check = partial(model.check_size, parameters=parameters)
        return read_npy(body.content, "points", **limits, check=check), parameters
    points, document = read_rows(body.content, "points", **limits)
    return points, parameters_of(document, settings)


async def _stream(lines: AsyncGenerator[bytes]) -> Response:
    """The first line is computed before the status is sent: a bad request is refused, not streamed."""
    first = await anext(lines)

    async def stream() -> AsyncGenerator[bytes]:
        async with aclosing(lines):
            yield first
            async for line in lines:
                yield line

    return Pieces(stream(), NDJSON)


async def _lines(
    request: Request, service: Service, model: Dynamics, points: Array, parameters: Parameters
) -> AsyncGenerator[bytes]:
    visit, name, holding = request.state.visit, request.state.request_id, request.state.holding
    async with service.clouds.place(large=points.size > LARGE) as place:
        run = await place.step(partial(model.start, points, parameters))
        try:
            while (progress := await place.step(lambda: next(run, None))) is not None:
                holding.expect(run.kept_bytes)
                yield to_json({"progress": progress}) + b"\n"
            parts = write_document({"id": name, **answer(run.result, parameters.include)})
            for part in parts:
                holding.add(len(part))
                yield part
            yield b"\n"
        except asyncio.CancelledError:
            if not isinstance(visit.ended_by, DeadlineExceeded):
                raise
            visit.resume()
            yield _last_words(visit.ended_by, name)
        except HardmaxError as failure:
            yield _last_words(failure, name)


def parameters_of(document: dict[str, Any], settings: Settings, *, strict: bool | None = None) -> Parameters:
    """What a run is asked for, checked; who names no `max_layers` gets no more than the operator allows."""
    from service.clouds.dynamics import Parameters

    wire = validate(DynamicsParameters, document, strict=strict)
    fields = dict(wire)
    fields["include"] = frozenset(wire.include)
    if wire.A is not None:
        fields["A"] = as_array(
            wire.A, "A", max_rows=settings.max_dimension, max_columns=settings.max_dimension
        )
    if "max_layers" not in wire.model_fields_set:
        fields["max_layers"] = min(wire.max_layers, settings.max_layers)
    return Parameters(**fields)


def answer(result: Result, include: Collection[str] = ("assignment",)) -> dict[str, Any]:
    """A result in the words of the contract. What may be long stays arrays: see `write_document`."""
    clusters = result.clusters
    document: dict[str, Any] = {
        **{name: getattr(result, name) for name in SUMMARY},
        "leaders": Records(**vars(result.leaders)),
        "clusters": Records(
            id=np.arange(len(clusters)),
            kind=np.where(clusters.tie, "tie", "leader"),
            leaders=clusters.leaders,
            limit=clusters.limit,
            size=clusters.size,
        ),
    }
    if result.note:
        document["note"] = result.note
    if "assignment" in include:
        document["assignment"] = result.assignment
    if "limits" in include:
        document["limits"] = result.limits
    if "polytope" in include:
        document["polytope"] = {"vertices": result.vertices}
    if "temperature" in include:
        document["temperature"] = result.temperature and vars(result.temperature)
    if "trajectory" in include:
        assert result.trajectory is not None
        kept = result.trajectory
        document["trajectory"] = {"layers": kept.layers, "points": list(kept.points)}
    return document


def npz(request_id: str, result: Result, include: Collection[str]) -> Iterator[bytes]:
    """The answer's arrays, and its summary as JSON in the array `summary`."""
    summary = {name: getattr(result, name) for name in SUMMARY}
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
    if result.temperature is not None:
        arrays["temperature"] = np.array([result.temperature.t or np.inf, result.temperature.distance])
    if result.trajectory is not None:
        arrays["trajectory_layers"], arrays["trajectory"] = result.trajectory
    return write_npz(arrays)


def _from_query(query: bytes) -> dict[str, Any]:
    """Parameters beside an npy body: A as JSON, include separated by commas or repeated."""
    try:
        given = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError:
        raise MalformedInput("the query string is not valid") from None
    document: dict[str, Any] = {}
    for name, value in given:
        if name == "include":
            document.setdefault(name, []).extend(part for part in value.split(",") if part)
        elif name == "A":
            document[name] = parse_json(value.encode())
        else:
            document[name] = value
    return document


def _last_words(failure: HardmaxError, request_id: str) -> bytes:
    """An error in the middle of a stream: the status is sent long ago, the last line says it."""
    status, kind = status_of(failure)
    message = failure.message if status != 500 else "the service failed on this request"
    return to_json(document(kind, message, failure.param, request_id)) + b"\n"
