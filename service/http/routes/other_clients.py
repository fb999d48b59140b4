"""What clients of other servers speak: inference endpoints at `/`, text-embeddings-inference at `/predict`,
vLLM at `/v1/classify`; and what those of OpenAI and of Triton ask first, which models there are.

    huggingface_hub.InferenceClient(base_url="http://127.0.0.1:8000").text_classification("A superb film.")

Inference endpoints and /predict give label and score and no reason: that is what /classify is for. An
undecided verdict looks like any other there, unless `?undecided=label` asks for `neutral`.
"""

import time
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter
from starlette.responses import Response

from service.answers.texts import heads_of
from service.errors import InvalidInput
from service.http import examples
from service.http.bodies import json_body, reply_json
from service.http.dependencies import NeutralOf, RequestId, ServiceOf
from service.http.routes.classify import label
from service.lifecycle import Service
from service.schemas.protocols import (
    EndpointRequest,
    IndexEntry,
    LabelScore,
    OpenAIModel,
    OpenAIModels,
    PredictRequest,
    ProtocolError,
    Statistics,
    Version,
    VllmRequest,
    VllmResponse,
)
from service.texts.work import Answer, RunOptions

EndpointBody = Annotated[EndpointRequest, json_body(EndpointRequest)]

router = APIRouter(tags=["other clients"])
ENDPOINT: dict[str, Any] = {
    "response_model": list[list[LabelScore]],
    "responses": examples.answers([examples.SCORES]),
    "openapi_extra": examples.body(examples.ENDPOINT, EndpointRequest),
}
V2: dict[str, Any] = {"responses": examples.answers(errors=ProtocolError)}


@router.post("/", summary="Label texts as an inference endpoint does", **ENDPOINT)
async def endpoint(body: EndpointBody, service: ServiceOf, neutral: NeutralOf) -> Response:
    """For `huggingface_hub.InferenceClient(base_url=..)` and what speaks to inference endpoints: a list of
    labels and scores for each text, the best first, by the default model.
    """
    return await _endpoint(body, service, service.settings.default_model, neutral)


@router.post("/models/{name}", summary="The same by a model of one's choice", **ENDPOINT)
async def endpoint_of_model(
    body: EndpointBody, service: ServiceOf, name: str, neutral: NeutralOf
) -> Response:
    """The base URL of a client then ends in `/models/NAME`."""
    return await _endpoint(body, service, name, neutral)


@router.post(
    "/predict",
    response_model=list[LabelScore] | list[list[LabelScore]],
    responses=examples.answers(examples.SCORES),
    openapi_extra=examples.body(examples.PREDICT, PredictRequest),
    summary="Label texts as text-embeddings-inference does",
)
async def predict(
    body: Annotated[PredictRequest, json_body(PredictRequest)], service: ServiceOf, neutral: NeutralOf
) -> Response:
    """One text gives one list of labels and scores, the best first; several give a list of such lists."""
    texts = _texts(body.inputs)
    single = isinstance(body.inputs, str)
    heads = heads_of(service.registry.find, [service.settings.default_model])
    how, neutral = RunOptions(heads, "none", truncate=body.truncate), neutral and not body.raw_scores
    answers = await label(service, texts, how, "inputs", single=single, neutral=neutral)
    ranked = [_ranked(answer, raw=body.raw_scores, top_k=body.top_k) for answer in answers]
    return reply_json(ranked[0] if single else ranked)


@router.post(
    "/v1/classify",
    response_model=VllmResponse,
    responses=examples.answers(examples.VLLM_CLASSIFIED),
    openapi_extra=examples.body(examples.VLLM_CLASSIFY, VllmRequest),
    summary="Label texts as vLLM does",
)
async def vllm(
    body: Annotated[VllmRequest, json_body(VllmRequest)],
    service: ServiceOf,
    id: RequestId,
    neutral: NeutralOf,
) -> Response:
    """What vLLM answers, and beside it of each text `undecided` and `leaders`."""
    single = isinstance(body.input, str)
    name = body.model or service.settings.default_model
    how = RunOptions(heads_of(service.registry.find, [name]), "leaders")
    answers = await label(service, _texts(body.input), how, "input", single=single, neutral=neutral)
    tokens = sum([answer["tokens"] for answer in answers])
    data = [
        {
            "index": index,
            "label": answer["label"],
            "probs": list(answer["probs"].values()),
            "num_classes": len(answer["probs"]),
            "undecided": answer["undecided"],
            "leaders": answer["leaders"],
        }
        for index, answer in enumerate(answers)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0}
    head = {"id": f"classify-{id}", "object": "list", "created": int(time.time()), "model": name}
    return reply_json({**head, "data": data, "usage": usage})


async def _endpoint(body: EndpointRequest, service: Service, name: str, neutral: bool) -> Response:
    heads, parameters = heads_of(service.registry.find, [name]), body.parameters
    labels, wanted = heads[0].rules.labels, parameters.candidate_labels
    if wanted is not None and not set(wanted) <= set(labels):
        problem = f"this model tells {', '.join(labels)}, and cannot be asked for other labels"
        raise InvalidInput(problem, param="parameters.candidate_labels")
    if parameters.function_to_apply == "sigmoid" and len(labels) > 2 and heads[0].rules.thresholds is None:
        problem = "the labels of this model exclude each other: ask for softmax or none"
        raise InvalidInput(problem, param="parameters.function_to_apply")
    raw = parameters.function_to_apply == "none"
    single = isinstance(body.inputs, str)
    how = RunOptions(heads, "none")
    texts = _texts(body.inputs)
    answers = await label(service, texts, how, "inputs", single=single, neutral=neutral and not raw)
    ranked = [_ranked(answer, raw=raw, top_k=parameters.top_k) for answer in answers]
    if wanted is not None:  # a zero-shot client: one text, one list
        return reply_json([each for each in ranked[0] if each["label"] in wanted])
    return reply_json(ranked)


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


@router.get("/v1/models", responses=examples.answers(failing=(401,)), summary="Names of models, as OpenAI")
async def v1_models(service: ServiceOf) -> OpenAIModels:
    entries = service.registry.entries.values()
    data = [OpenAIModel(id=each.name, created=int(each.loaded_at.timestamp())) for each in entries]
    return OpenAIModels(data=data)


@router.get("/v2/models/stats", **V2, summary="Models and versions, as Triton's statistics")
async def statistics(service: ServiceOf) -> Statistics:
    entries = service.registry.entries.values()
    return Statistics(model_stats=[Version(name=each.name, version=each.version[:12]) for each in entries])


@router.post("/v2/repository/index", **V2, summary="Models and refused bundles, as Triton's repository")
async def repository_index(service: ServiceOf) -> list[IndexEntry]:
    registry = service.registry
    index = [IndexEntry(name=each.name, version=each.version[:12]) for each in registry.entries.values()]
    for name, why in registry.refused.items():
        index.append(IndexEntry(name=name, version="", state="UNAVAILABLE", reason=why))
    return index
