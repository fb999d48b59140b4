"""Clouds and sequences of points.

POST /dynamics              run a cloud to its leaders, clusters and limits: as JSON, or a line stream
POST /sequences/classify    label sequences by an exact classifier
POST /control               find a matrix A under which chosen points lead
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from hardmax.models.clouds import ControlResponse, DynamicsResult
from hardmax.models.sequences import SequencesResponse
from service.cloud.dynamics import Dynamics, Progress
from service.errors import DeadlineExceeded, HardmaxError
from service.http import openapi
from service.http.bodies import (
    JSON,
    MAX_SENT_BYTES,
    NDJSON,
    NO_STORE,
    NPY,
    BodyDep,
    parse_body,
    preferred_type,
    reply,
)
from service.http.dependencies import ServiceDep, record_models
from service.http.errors import DEADLINE_MESSAGE, describe_error, error_document, log_error
from service.runtime.bundle import version_of
from service.sequences import SequenceClassifier
from service.state import AppState
from service.wire.arrays import read_arrays
from service.wire.clouds import (
    MODEL,
    answer_control,
    answer_dynamics,
    answer_sequences,
    read_dynamics,
    read_npy_dynamics,
)
from service.wire.documents import validate, write
from service.wire.prices import body_s, sequences_s
from service.wire.requests import (
    ControlRequest,
    DynamicsParameters,
    DynamicsRequest,
    SequencesEnvelope,
    SequencesRequest,
)

UNBUFFERED = {"x-accel-buffering": "no"}  # nginx passes each line on at once
CONTROL_TIME_SHARE = 0.8  # of its time, after which a search answers with the best form so far

router = APIRouter(tags=["inference"])
QUERY = [
    {
        "name": name,
        "in": "query",
        "description": f"With an npy body: {schema.pop('description')}",
        # A travels as JSON, include as names separated by commas
        **({"content": {JSON: {"schema": schema}}} if name == "A" else {"schema": schema, "explode": False}),
    }
    for name, schema in DynamicsParameters.model_json_schema()["properties"].items()
]


@router.post(
    "/dynamics",
    response_model=DynamicsResult,
    responses=openapi.responses("dynamics", NDJSON),
    openapi_extra={**openapi.body("dynamics", DynamicsRequest, NPY), "parameters": QUERY},
    summary="Run a point cloud to its certified limits",
)
async def dynamics(body: BodyDep, request: Request, service: ServiceDep) -> Response:
    """Run hardmax attention on a point cloud until its limits are certified.

    The request is JSON, or the array as `application/x-npy` with the parameters in the query. The response is
    JSON, or with `accept: application/x-ndjson` lines of progress, one every 0.1 s at most, and the result
    last. The computation stops when the client disconnects.
    """
    answer_type = preferred_type(request, JSON, NDJSON)
    model = _find_dynamics(service, request)
    if body.media_type == NPY:
        query = request.scope["query_string"]
        read = partial(read_npy_dynamics, body.content, query, model, service.settings)
    else:
        read = partial(read_dynamics, body.content, service.settings)
    work = partial(
        service.compute.run,
        answer_dynamics,
        model,
        read,
        request.state.request_id,
        seconds=body_s(len(body.content), is_npy=body.media_type == NPY),
        held=request.state.held,
    )
    if answer_type == NDJSON:
        return await _stream(_lines(work), request)
    return reply(await work(), answer_type)


def _find_dynamics(service: AppState, request: Request) -> Dynamics:
    entry = service.registry.find(MODEL, "dynamics")
    record_models(request, [entry])
    model: Dynamics = entry.model
    return model


class LineStream(StreamingResponse):
    """A response line by line. The middleware ends it when the caller leaves or the deadline passes."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.stream_response(send)


async def _stream(lines: AsyncGenerator[bytes], request: Request) -> Response:
    """Return a response that streams lines.

    The first line is computed before the status is sent, so that a bad request is refused and not streamed.
    A later failure is described in the last line.
    """
    first = await anext(lines)

    async def stream() -> AsyncGenerator[bytes]:
        async with aclosing(lines):
            yield first
            try:
                async for line in lines:
                    yield line
            except asyncio.CancelledError:
                if not request.state.timeout.expired() or request.state.caller_left:
                    raise
                yield _error_line(DeadlineExceeded(DEADLINE_MESSAGE), request)
            except HardmaxError as error:
                yield _error_line(error, request)

    return LineStream(stream(), headers={**NO_STORE, **UNBUFFERED}, media_type=NDJSON)


async def _lines(
    work: Callable[..., Coroutine[Any, Any, bytes]],
) -> AsyncGenerator[bytes]:
    """Yield the latest progress whenever the client has taken the previous line, and then the result.

    The work does not wait for the client.
    """
    latest: Progress | None = None
    layer = -1
    updated = asyncio.Event()

    def report(progress: Progress) -> None:
        nonlocal latest, layer
        if progress.layer > layer:  # a job that begins again in the next lane reports again
            latest, layer = progress, progress.layer
            updated.set()

    working = asyncio.create_task(work(on_progress=report))
    working.add_done_callback(lambda task: updated.set())
    try:
        while latest is not None or not working.done():
            await updated.wait()
            updated.clear()
            if latest is not None:
                line, latest = write({"progress": latest}) + b"\n", None
                yield line
        result = await working
        for start in range(0, len(result), MAX_SENT_BYTES):
            yield result[start : start + MAX_SENT_BYTES]
        yield b"\n"
    finally:
        working.cancel()


def _error_line(error: HardmaxError, request: Request) -> bytes:
    """Return the last line of a stream that fails after its status was sent: the error."""
    _, kind, message, param = describe_error(error)
    log_error(error, kind, request.scope)
    return write(error_document(kind, message, param, request.state.request_id)) + b"\n"


@router.post(
    "/sequences/classify",
    **openapi.route("sequences", SequencesRequest, SequencesResponse),
    summary="Classify sequences of points",
)
async def classify_sequences(body: BodyDep, request: Request, service: ServiceDep) -> Response:
    """Classify sequences with a model in MODELS_DIR that `hardmax-export exact` built from labels."""
    settings = service.settings
    read = partial(
        read_arrays,
        field="sequences",
        max_arrays=settings.max_client_batch_size,
        max_rows=settings.max_points,
        max_columns=settings.max_dimension,
    )
    # the name of the model is in the body: a long one is a job of its own
    run = partial(service.compute.run, seconds=body_s(len(body.content)), held=request.state.held)
    sequences, document = await parse_body(body.content, read, run)
    name = validate(document, SequencesEnvelope).model
    entry = await service.find_model(name, "sequences")
    record_models(request, [entry])
    model: SequenceClassifier = entry.model
    seconds = sequences_s(map(len, sequences), model.dimension)
    names = {"model": name, "model_version": version_of(entry.name)}
    arguments = model, names, sequences, request.state.request_id
    return reply(
        await service.compute.run(answer_sequences, *arguments, seconds=seconds, held=request.state.held)
    )


@router.post(
    "/control",
    **openapi.route("control", ControlRequest, ControlResponse),
    summary="Find a matrix A under which chosen points lead",
)
async def control(body: BodyDep, request: Request, service: ServiceDep) -> Response:
    """Find a matrix A under which chosen points are leaders.

    `assignment` names the leader of each token, `leaders` only the tokens that should lead. The answer is a
    matrix that is proved to do so, with the dynamics run under it; or a certificate that no matrix does; or,
    rarely, neither (`feasible` is null).
    """
    end_s = time.monotonic() + CONTROL_TIME_SHARE * service.settings.request_timeout_s
    model = _find_dynamics(service, request)
    arguments = body.content, model, service.settings, end_s, request.state.request_id
    seconds = body_s(len(body.content))
    return reply(
        await service.compute.run(answer_control, *arguments, seconds=seconds, held=request.state.held)
    )
