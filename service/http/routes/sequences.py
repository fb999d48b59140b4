"""POST /sequences/classify: sequences of points in, the labels of an exact classifier out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from pydantic_core import to_json
from starlette.responses import Response

from service.http import examples
from service.http.arrays import read_arrays
from service.http.bytes_route import BytesRoute, Raw, reply
from service.http.dependencies import RequestId, ServiceOf, by_name
from service.http.problems import validate
from service.lifecycle import Service
from service.schemas import SequencesEnvelope, SequencesRequest, SequencesResponse

if TYPE_CHECKING:
    from service.sequences.classifier import Sequences

router = APIRouter(generate_unique_id_function=by_name, route_class=BytesRoute, tags=["inference"])


@router.post(
    "/sequences/classify",
    response_model=SequencesResponse,
    responses=examples.answers(examples.LABELS),
    openapi_extra=examples.body(examples.SEQUENCES),
    summary="Label sequences of points, exactly",
)
async def classify_sequences(
    body: Raw[SequencesRequest], service: ServiceOf, request_id: RequestId
) -> Response:
    """With a model that `hardmax-export exact` built from labelled sequences and that lies in MODELS_DIR."""
    async with service.clouds.place() as place:
        return reply(await place.step(lambda: _answer(body.content, service, request_id)))


def _answer(body: bytes, service: Service, request_id: str) -> bytes:
    sequences, document = read_arrays(
        body,
        "sequences",
        most=service.settings.max_client_batch_size,
        max_rows=service.settings.max_points,
        max_columns=service.settings.max_dimension,
    )
    name = validate(SequencesEnvelope, document).model
    model: Sequences = service.registry.find(name, "sequences")
    results = model.classify(sequences)
    data = [{"index": index, **result} for index, result in enumerate(results)]
    return to_json({"id": request_id, "model": name, "data": data})
