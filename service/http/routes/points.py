"""Clouds and sequences of points.

POST /dynamics              run a cloud to its leaders, clusters and limits: as JSON, arrays, or a line stream
POST /sequences/classify    label sequences by an exact classifier
POST /control               find a matrix A under which chosen points lead
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from hardmax.models.clouds import ControlResponse, DynamicsResult
from hardmax.models.sequences import SequencesResponse
from service.answers.arrays import read_arrays, read_npy, read_rows
from service.answers.clouds import (
    MODEL,
    answer_control,
    answer_dynamics,
    answer_sequences,
    read_dynamics,
    read_options,
    size_limits,
)
from service.answers.writing import MAX_RESPONSE_BYTES, write
from service.cloud.dynamics import Dynamics, Parameters, Progress
from service.cloud.points import Floats
from service.errors import DeadlineExceeded, HardmaxError, MalformedInput
from service.http import examples
from service.http.bodies import (
    JSON,
    MAX_SENT_BYTES,
    NDJSON,
    NO_STORE,
    NPY,
    NPZ,
    BodyDep,
    parse_body,
    preferred_type,
    reply,
)
from service.http.dependencies import RequestId, ServiceDep, SizeDep
from service.http.errors import DEADLINE_MESSAGE, describe_error, error_document, log_error
from service.schemas.reading import parse_json, validate
from service.schemas.requests import (
    ControlRequest,
    DynamicsParameters,
    DynamicsRequest,
    SequencesEnvelope,
    SequencesRequest,
)
from service.sequences import SequenceClassifier
from service.settings import Settings

UNBUFFERED = {"x-accel-buffering": "no"}  # nginx passes each line on at once
SMALL_NUMBERS = 4_096  # numbers times layers: a smaller job waits only for such jobs
LARGE_NUMBERS = 65_536  # numbers: larger jobs run one at a time
NUMBER_BYTES = 8  # of a number in an answer, at least
OUTPUT_BYTES = 32  # of an output of a sequence while its answer is written
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
    responses=examples.responses(examples.RESULT, NPZ, NDJSON),
    openapi_extra={**examples.body(examples.DYNAMICS, DynamicsRequest, NPY), "parameters": QUERY},
    summary="Run a point cloud to its certified limits",
)
async def dynamics(
    body: BodyDep, request: Request, service: ServiceDep, request_id: RequestId, size: SizeDep
) -> Response:
    """Run hardmax attention on a point cloud until its limits are certified.

    The request is JSON, or the array as `application/x-npy` with the parameters in the query. The response is
    JSON, arrays with `accept: application/x-npz`, or with `application/x-ndjson` lines of progress, one every
    0.1 s at most, and the result last. The computation stops when the client disconnects.
    """
    answer_type = preferred_type(request, JSON, NPZ, NDJSON)
    model: Dynamics = service.registry.find(MODEL, "dynamics")
    if body.media_type == NPY:
        query = request.scope["query_string"]
        points, parameters = await parse_body(
            service.run_in_parser, _read_npy, body.content, query, model, service.settings
        )
    else:
        points, parameters = await parse_body(
            service.compute.run, read_dynamics, body.content, service.settings
        )
    longest = trajectory = 0  # counts of its numbers: at most, and for certain
    if "trajectory" in parameters.include:
        longest = (parameters.max_layers // parameters.trajectory_every + 1) * points.size
    if parameters.stop == "never":
        trajectory = longest
    else:  # it may end earlier: it is not refused, but takes a slot
        longest = min(longest, MAX_RESPONSE_BYTES // NUMBER_BYTES)
    await size.expect_response(max(NUMBER_BYTES * longest, points.nbytes))
    work = partial(
        service.compute.run,
        partial(answer_dynamics, as_npz=answer_type == NPZ),
        model,
        points,
        parameters,
        request_id,
        small=points.size * (parameters.max_layers if parameters.stop == "never" else 1) <= SMALL_NUMBERS,
        large=max(trajectory, points.size) > LARGE_NUMBERS,
    )
    if answer_type == NDJSON:
        return await _stream(_lines(work), request)
    return reply(await work(), answer_type)


def _read_npy(
    content: bytearray, query: bytes, model: Dynamics, settings: Settings
) -> tuple[Floats, Parameters]:
    parameters = read_options(_from_query(query), settings, strict=False)
    check = partial(model.check_size, parameters=parameters)
    return read_npy(content, "points", **size_limits(settings), check=check), parameters


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
    updated = asyncio.Event()

    def report(progress: Progress) -> None:
        nonlocal latest
        latest = progress
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


def _from_query(query: bytes) -> dict[str, Any]:
    """Return the parameters next to an npy body: A as JSON, include separated by commas or repeated."""
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError:
        raise MalformedInput("the query string is not valid") from None
    document: dict[str, Any] = {}
    for name, value in pairs:
        if name == "include":
            document.setdefault(name, []).extend(part for part in value.split(",") if part)
        elif name == "A":
            document[name] = parse_json(value.encode(), param="A")
        else:
            document[name] = value
    return document


@router.post(
    "/sequences/classify",
    **examples.route(SequencesRequest, examples.SEQUENCES, SequencesResponse, examples.LABELS),
    summary="Classify sequences of points",
)
async def classify_sequences(
    body: BodyDep, service: ServiceDep, request_id: RequestId, size: SizeDep
) -> Response:
    """Classify sequences with a model in MODELS_DIR that `hardmax-export exact` built from labels."""
    limits = {"max_arrays": service.settings.max_client_batch_size, **size_limits(service.settings)}
    sequences, document = await parse_body(
        service.compute.run, read_arrays, body.content, "sequences", **limits
    )
    name = validate(document, SequencesEnvelope).model
    await service.load_models(name)
    model: SequenceClassifier = service.registry.find(name, "sequences")
    await size.expect_response(OUTPUT_BYTES * model.count_output_numbers(sequences))
    numbers = sum(sequence.size for sequence in sequences)
    small, large = numbers <= SMALL_NUMBERS, numbers > LARGE_NUMBERS
    arguments = model, name, sequences, request_id
    return reply(await service.compute.run(answer_sequences, *arguments, small=small, large=large))


@router.post(
    "/control",
    **examples.route(ControlRequest, examples.CONTROL, ControlResponse, examples.CONTROLLED),
    summary="Find a matrix A under which chosen points lead",
)
async def control(body: BodyDep, service: ServiceDep, request_id: RequestId, size: SizeDep) -> Response:
    """Find a matrix A under which chosen points are leaders.

    `assignment` names the leader of each token, `leaders` only the tokens that should lead. The answer is a
    matrix that is proved to do so, with the dynamics run under it; or a certificate that no matrix does; or,
    rarely, neither (`feasible` is null).
    """
    settings = service.settings
    end_s = time.monotonic() + CONTROL_TIME_SHARE * settings.request_timeout_s
    points, constraints = await parse_body(
        service.compute.run, read_rows, body.content, "points", **size_limits(settings)
    )
    model: Dynamics = service.registry.find(MODEL, "dynamics")
    arguments = points, constraints, model, settings, end_s, request_id
    return reply(await service.compute.run(answer_control, *arguments, large=points.size > LARGE_NUMBERS))
