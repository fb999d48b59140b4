"""POST /sequences/classify: sequences of points in, the labels of an exact classifier out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from pydantic_core import to_json
from starlette.responses import Response

from service.engine.capacity import Holding
from service.engine.lane import Steps
from service.http import examples
from service.http.arrays import read_arrays
from service.http.bytes_route import LARGE, BytesRoute, Raw, reply_parts
from service.http.dependencies import HoldingOf, RequestId, ServiceOf
from service.http.documents import keep
from service.http.problems import validate
from service.lifecycle import Service
from service.schemas.sequences import SequencesEnvelope, SequencesRequest, SequencesResponse

if TYPE_CHECKING:
    from service.sequences.classifier import Sequences

NUMBER_BYTES = 32  # of a number on its way into an answer

router = APIRouter(route_class=BytesRoute, tags=["inference"])


@router.post(
    "/sequences/classify",
    response_model=SequencesResponse,
    responses=examples.answers(examples.LABELS),
    openapi_extra=examples.body(examples.SEQUENCES),
    summary="Label sequences of points, exactly",
)
async def classify_sequences(
    body: Raw[SequencesRequest], service: ServiceOf, request_id: RequestId, holding: HoldingOf
) -> Response:
    """With a model that `hardmax-export exact` built from labelled sequences and that lies in MODELS_DIR."""
    async with service.clouds.place(large=len(body.content) > LARGE) as place:
        parts = await place.follow(_answer(body.content, service, request_id, holding))
    return reply_parts(parts)


def _answer(body: bytes, service: Service, request_id: str, holding: Holding) -> Steps[list[bytes]]:
    sequences, document = yield from read_arrays(
        body,
        "sequences",
        most=service.settings.max_client_batch_size,
        max_rows=service.settings.max_points,
        max_columns=service.settings.max_dimension,
    )
    name = validate(SequencesEnvelope, document).model
    model: Sequences = service.registry.find(name, "sequences")
    yield
    holding.expect(NUMBER_BYTES * model.numbers_of(sequences))
    results = yield from model.steps(sequences)
    return (yield from keep(_write(request_id, name, results), holding))


def _write(request_id: str, name: str, results: list[dict[str, Any]]) -> Iterator[bytes]:
    yield to_json({"id": request_id, "model": name})[:-1] + b',"data":['
    for index, result in enumerate(results):
        yield (b"," if index else b"") + to_json({"index": index, **result})
    yield b"]}"
