"""The protocols of Hugging Face: inference endpoints at `/`, text-embeddings-inference at `/predict`.

    huggingface_hub.InferenceClient(base_url="http://127.0.0.1:8000").text_classification("A superb film.")

Answers have label and score without an explanation, unlike /classify. An answer on which the model abstains
looks like any other, unless `?abstain=neutral` replaces it by `neutral`. The header `x-abstained` lists the
texts on which it abstains, by their index.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field, StringConstraints
from starlette.responses import Response

from hardmax.models.document import Items
from service.errors import InvalidInput
from service.http import openapi
from service.http.bodies import json_body, reply, write_answers
from service.http.dependencies import LabelOptions, LabelOptionsDep, ModelInPath, ServiceDep
from service.http.routes.classify import label_texts
from service.state import AppState
from service.text.decision import MAX_LABEL_CHARS, MAX_LABELS
from service.text.pipeline import Answer, ClassifyOptions
from service.wire.documents import write_list
from service.wire.protocols import ProtocolRequest, ResponseModel
from service.wire.requests import TEXTS

ABSTAINED = "x-abstained"
MAX_LISTED = 256  # in that header: proxies accept headers of 4 kB

TopK = Annotated[
    int | None, Field(ge=1, description="How many labels of each text, the best first; all if absent.")
]


Label = Annotated[str, StringConstraints(max_length=MAX_LABEL_CHARS)]


class EndpointParameters(ProtocolRequest):
    """The parameters of an inference endpoint."""

    top_k: TopK = None
    function_to_apply: Literal["sigmoid", "softmax", "none"] | None = Field(
        default=None,
        description="With none, the scores before softmax are returned, otherwise probabilities.",
    )
    candidate_labels: Annotated[Items[Label], Field(max_length=MAX_LABELS)] | None = Field(
        default=None, description="The labels of a zero-shot client, which must be labels of this model."
    )


class EndpointRequest(ProtocolRequest):
    """What clients of inference endpoints send for text classification."""

    inputs: str | Items[str] = Field(description="One text, or a list of texts.", json_schema_extra=TEXTS)
    parameters: EndpointParameters = Field(
        default=EndpointParameters(), description="The parameters of the task."
    )


class PredictRequest(ProtocolRequest):
    """What clients of text-embeddings-inference send to /predict."""

    inputs: str | Items[str] | Items[Items[str]] = Field(
        description="One text, a list of them, or a list of lists of one text each.",
        json_schema_extra=TEXTS,
    )
    raw_scores: bool = Field(False, description="Return the scores before softmax.")
    truncate: bool = Field(
        True, description="With false, a text longer than the model reads is refused (413)."
    )
    top_k: TopK = None


class LabelScore(ResponseModel):
    """A label and its score."""

    label: str = Field(description="A label of the model.")
    score: float = Field(description="The probability of the label, or its score before softmax.")


EndpointBody = Annotated[EndpointRequest, json_body(EndpointRequest)]

router = APIRouter(tags=["other clients"])
SCORES_MODEL = list[LabelScore] | list[list[LabelScore]]
ENDPOINT = openapi.route("endpoint", EndpointRequest, SCORES_MODEL)


@router.post("/", **ENDPOINT, summary="Classify texts, as an inference endpoint")
async def endpoint(body: EndpointBody, service: ServiceDep, query: LabelOptionsDep) -> Response:
    """Return a list of labels and scores for each text, the best first, by the default model.

    For `huggingface_hub.InferenceClient(base_url=...)` and callers of inference endpoints. With
    `candidate_labels` one text has one list.
    """
    return await _answer_endpoint(body, service, service.settings.default_model, query)


@router.post("/models/{name}", **ENDPOINT, summary="Classify texts with a model, as an inference endpoint")
async def endpoint_of_model(
    body: EndpointBody, service: ServiceDep, name: ModelInPath, query: LabelOptionsDep
) -> Response:
    """Answer by the model in the path: the base URL of the client ends in `/models/NAME`."""
    return await _answer_endpoint(body, service, name, query)


@router.post(
    "/predict",
    **openapi.route("predict", PredictRequest, SCORES_MODEL),
    summary="Classify texts, as text-embeddings-inference",
)
async def predict(
    body: Annotated[PredictRequest, json_body(PredictRequest)],
    service: ServiceDep,
    query: LabelOptionsDep,
) -> Response:
    """One text gives one list of labels and scores, the best first; several give a list of such lists."""
    options = ClassifyOptions(await service.find_heads(None), "none", truncate=body.truncate)
    texts, neutral = _unwrap_texts(body.inputs), not body.raw_scores
    answers = await label_texts(service, texts, options, "inputs", query, neutral=neutral)
    ranked = [_rank_labels(answer, raw=body.raw_scores, top_k=body.top_k) for answer in answers]
    return await _reply(ranked[0] if isinstance(body.inputs, str) else ranked, answers)


async def _answer_endpoint(
    body: EndpointRequest, service: AppState, name: str, query: LabelOptions
) -> Response:
    heads, parameters = await service.find_heads(name), body.parameters
    labels, candidates = heads[0].rule.labels, parameters.candidate_labels
    if candidates is not None and not set(candidates) <= set(labels):
        problem = f"this model has the labels {', '.join(labels)}, and no others"
        raise InvalidInput(problem, param="parameters.candidate_labels")
    if parameters.function_to_apply == "sigmoid" and len(labels) > 2 and heads[0].rule.thresholds is None:
        problem = "the labels of this model exclude each other: use softmax or none"
        raise InvalidInput(problem, param="parameters.function_to_apply")
    raw = parameters.function_to_apply == "none"
    options = ClassifyOptions(heads, "none")
    answers = await label_texts(service, body.inputs, options, "inputs", query, neutral=not raw)
    ranked = [_rank_labels(answer, raw=raw, top_k=parameters.top_k, among=candidates) for answer in answers]
    zero_shot = candidates is not None and isinstance(body.inputs, str)  # then one list
    return await _reply(ranked[0] if zero_shot else ranked, answers)


async def _reply(ranked: Any, answers: Sequence[Answer]) -> Response:
    """Respond with labels and scores; a header lists the texts on which the model abstains."""
    response = reply(await write_answers(partial(write_list, ranked), len(answers)))
    abstained = [str(index) for index, answer in enumerate(answers) if answer["abstain_reason"]]
    if abstained:
        more = ["..."] if len(abstained) > MAX_LISTED else []
        response.headers[ABSTAINED] = ",".join([*abstained[:MAX_LISTED], *more])
    return response


def _unwrap_texts(inputs: str | Sequence[str | Sequence[str]]) -> str | list[str]:
    """Return the texts without the list that text-embeddings-inference puts around each of several."""
    if isinstance(inputs, str):
        return inputs
    texts = []
    for index, entry in enumerate(inputs):
        if not isinstance(entry, str) and len(entry) != 1:
            raise InvalidInput("this is a pair of texts; the model takes one text", param=f"inputs[{index}]")
        texts.append(entry if isinstance(entry, str) else entry[0])
    return texts


def _rank_labels(
    answer: Answer, *, raw: bool, top_k: int | None, among: Sequence[str] | None = None
) -> list[dict[str, str | float]]:
    """Return labels and their scores, the best first. Raw scores are those before softmax."""
    scores: dict[str, float] = answer["probs"]
    if raw:
        logit = answer["logit"]
        if not isinstance(logit, dict):
            halves = (-logit / 2, logit / 2)
            logit = _log_probabilities(scores) if len(scores) > 2 else dict(zip(scores, halves, strict=True))
        scores = logit
    pairs = [(label, score) for label, score in scores.items() if among is None or label in among]
    pairs = sorted(pairs, key=lambda pair: -pair[1])[:top_k]
    return [{"label": label, "score": score} for label, score in pairs]


def _log_probabilities(probs: dict[str, float]) -> dict[str, float]:
    """Return scores whose softmax is the probabilities, up to their seven digits."""
    return {label: round(math.log(max(p, 1e-7)), 6) for label, p in probs.items()}
