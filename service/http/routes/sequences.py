"""POST /sequences/classify: sequences of points in, the labels of an exact classifier out."""

from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from hardmax.documents import SequencesResponse
from service.answers.arrays import read_arrays
from service.engine.cloud_queue import LARGE, Steps
from service.http import examples
from service.http.bodies import BodyOf, reader_of, reply_document
from service.http.dependencies import RequestId, ReservationOf, ServiceOf
from service.schemas.reading import validate
from service.schemas.requests import SequencesEnvelope, SequencesRequest
from service.sequences.classifier import Sequences

NUMBER_BYTES = 32  # of a number on its way into an answer

router = APIRouter(tags=["inference"])


@router.post(
    "/sequences/classify",
    response_model=SequencesResponse,
    responses=examples.answers(examples.LABELS),
    openapi_extra=examples.body(examples.SEQUENCES, SequencesRequest),
    summary="Label sequences of points, exactly",
)
async def classify_sequences(
    body: BodyOf, request: Request, service: ServiceOf, request_id: RequestId, reservation: ReservationOf
) -> Response:
    """With a model that `hardmax-export exact` built from labelled sequences and that lies in MODELS_DIR."""
    settings = service.settings
    read = partial(
        read_arrays,
        body.content,
        "sequences",
        most=settings.max_client_batch_size,
        max_rows=settings.max_points,
        max_columns=settings.max_dimension,
    )
    sequences, document = await reader_of(request).read(len(body.content), read)
    name = validate(SequencesEnvelope, document).model
    model: Sequences = service.registry.find(name, "sequences")
    size = sum(each.size for each in sequences)

    def work() -> Steps[list[dict[str, Any]]]:
        reservation.expect(NUMBER_BYTES * model.numbers_of(sequences))
        yield
        return (yield from model.steps(sequences))

    async with service.clouds.slot(large=size > LARGE) as slot:
        results = await slot.follow(work())
    data = [{"index": index, **result} for index, result in enumerate(results)]
    return await reply_document({"id": request_id, "model": name, "data": data}, reservation)
