"""POST /sequences/classify: sequences of points in, the labels of an exact classifier out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_core import to_json

from service.api import examples
from service.api.exchange import Exchange, Reply
from service.api.media import require_json
from service.api.numbers import read_arrays, read_document
from service.api.problems import validate
from service.lane import Lane
from service.registry import Registry
from service.schemas import SequencesEnvelope, SequencesRequest, SequencesResponse
from service.settings import Settings

if TYPE_CHECKING:
    from service.sequences import Sequences

REQUEST = examples.body(examples.SEQUENCES)
ANSWER = examples.answer(examples.LABELS)


async def classify_sequences(body: SequencesRequest) -> SequencesResponse:
    """Label sequences of points, exactly

    With a model that `hardmax-export exact` built from labelled sequences and that lies in MODELS_DIR.
    """
    raise NotImplementedError


class ClassifySequences:
    def __init__(self, registry: Registry, lane: Lane, settings: Settings) -> None:
        self._registry = registry
        self._lane = lane
        self._settings = settings

    async def __call__(self, exchange: Exchange) -> Reply:
        require_json(exchange)
        body = await exchange.read(self._settings.payload_limit_bytes)
        async with self._lane.place() as place:
            text = await place.step(lambda: self._answer(body, exchange.text_id))
        return Reply(text)

    def _answer(self, body: bytes, request_id: str) -> bytes:
        document = read_document(body, "sequences")
        given = document.pop("sequences", None)
        name = validate(SequencesEnvelope, document).model
        model: Sequences = self._registry.find(name, "sequences")
        settings = self._settings
        sequences = read_arrays(
            given,
            "sequences",
            most=settings.max_client_batch_size,
            max_rows=settings.max_points,
            max_columns=settings.max_dimension,
        )
        results = model.classify(sequences)
        data = [{"index": index, **result} for index, result in enumerate(results)]
        return to_json({"id": request_id, "model": name, "data": data})
