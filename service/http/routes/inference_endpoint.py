"""What clients of other servers speak: inference endpoints at `/`, text-embeddings-inference at `/predict`.

    huggingface_hub.InferenceClient(base_url="http://127.0.0.1:8000").text_classification("A superb film.")

Both give label and score and no reason: that is what /classify is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import orjson
from fastapi import APIRouter
from starlette.responses import Response

from service.errors import InvalidInput
from service.http import examples
from service.http.bodies import json_body
from service.http.dependencies import ServiceOf
from service.http.documents import reply
from service.http.routes.classify import check_texts, run
from service.lifecycle import Service
from service.schemas.endpoints import EndpointRequest, LabelScore, PredictRequest
from service.texts.runs import How

Answer = dict[str, Any]
EndpointBody = Annotated[EndpointRequest, json_body(EndpointRequest)]

router = APIRouter(tags=["other clients"])
ENDPOINT: dict[str, Any] = {
    "response_model": list[list[LabelScore]],
    "responses": examples.answers([examples.SCORES]),
    "openapi_extra": examples.body(examples.ENDPOINT, EndpointRequest),
}


@router.post("/", summary="Label texts as an inference endpoint does", **ENDPOINT)
async def endpoint(body: EndpointBody, service: ServiceOf) -> Response:
    """For `huggingface_hub.InferenceClient(base_url=..)` and what speaks to inference endpoints: a list of
    labels and scores for each text, the best first, by the default model.
    """
    return await _endpoint(body, service, service.settings.default_model)


@router.post("/models/{name}", summary="The same by a model of one's choice", **ENDPOINT)
async def endpoint_of_model(body: EndpointBody, service: ServiceOf, name: str) -> Response:
    """The base URL of a client then ends in `/models/NAME`."""
    return await _endpoint(body, service, name)


@router.post(
    "/predict",
    response_model=list[LabelScore] | list[list[LabelScore]],
    responses=examples.answers(examples.SCORES),
    openapi_extra=examples.body(examples.PREDICT, PredictRequest),
    summary="Label texts as text-embeddings-inference does",
)
async def predict(body: Annotated[PredictRequest, json_body(PredictRequest)], service: ServiceOf) -> Response:
    """One text gives one list of labels and scores, the best first; several give a list of such lists."""
    texts = _texts(body.inputs)
    single = isinstance(body.inputs, str)
    answers = await _classify(service, service.settings.default_model, texts, single, body.truncate)
    ranked = [_ranked(answer, raw=body.raw_scores, top_k=body.top_k) for answer in answers]
    return reply(orjson.dumps(ranked[0] if single else ranked))


async def _endpoint(body: EndpointRequest, service: Service, name: str) -> Response:
    single = isinstance(body.inputs, str)
    answers = await _classify(service, name, _texts(body.inputs), single, truncate=True)
    parameters = body.parameters
    if parameters.function_to_apply == "sigmoid" and len(answers[0]["probs"]) > 2:
        problem = "the labels of this model exclude each other: ask for softmax or none"
        raise InvalidInput(problem, param="parameters.function_to_apply")
    raw = parameters.function_to_apply == "none"
    return reply(orjson.dumps([_ranked(answer, raw=raw, top_k=parameters.top_k) for answer in answers]))


def _texts(inputs: str | Sequence[str | Sequence[str]]) -> list[str]:
    """The texts, however they are nested: text-embeddings-inference puts each in a list of its own."""
    if isinstance(inputs, str):
        return [inputs]
    texts = []
    for index, each in enumerate(inputs):
        if not isinstance(each, str) and len(each) != 1:
            raise InvalidInput("this is a pair of texts; the model takes one text", param=f"inputs[{index}]")
        texts.append(each if isinstance(each, str) else each[0])
    return texts


async def _classify(
    service: Service, name: str, texts: Sequence[str], single: bool, truncate: bool
) -> list[Answer]:
    model = service.registry.find(name, "sentiment")
    check_texts(texts, service.settings, "inputs", single=single)
    how = How(model, "none", False, truncate, "codepoints")
    return await run(service, how, texts, "inputs", single=single)


def _ranked(answer: Answer, *, raw: bool, top_k: int | None) -> list[dict[str, str | float]]:
    """Labels and their scores, the best first. Raw scores are those of which softmax makes the others."""
    scores: dict[str, float] = answer["probs"]
    if raw:
        logit = answer["logit"]
        if not isinstance(logit, dict):
            logit = dict(zip(scores, (-logit / 2, logit / 2), strict=True))
        scores = logit
    best = sorted(scores.items(), key=lambda pair: -pair[1])[:top_k]
    return [{"label": label, "score": score} for label, score in best]
