"""Routes for clients of vLLM and OpenAI: classification, and the list of models."""

import time
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from hardmax.models.document import Items
from hardmax.models.texts import AbstainReason, Leader
from service.answers.texts import find_heads
from service.http import examples
from service.http.bodies import json_body, reply_document
from service.http.dependencies import NeutralDep, RequestId, ServiceDep, SizeDep
from service.http.routes.classify import label_texts
from service.schemas.protocols import ProtocolRequest, ResponseModel
from service.schemas.requests import TEXTS, ModelName
from service.text.pipeline import ClassifyOptions

router = APIRouter(tags=["other clients"])


class VllmRequest(ProtocolRequest):
    """What clients of vLLM send to /v1/classify."""

    input: str | Items[str] = Field(description="One text, or a list of texts.", json_schema_extra=TEXTS)
    model: ModelName | None = Field(None, description="The name of the model; the default model if absent.")


class VllmLabel(ResponseModel):
    """The label of one text."""

    index: int = Field(description="The index of the text in the request.")
    label: str = Field(description="The most probable label.")
    probs: list[float] = Field(description="The probability of each label, in the order of the model's card.")
    num_classes: int = Field(description="The number of labels.")
    abstain_reason: AbstainReason | None = Field(
        None, description="Why the model abstains; null if the label can be acted upon."
    )
    leaders: list[Leader] = Field([], description="The leaders of the text, as in /classify.")


class VllmUsage(ResponseModel):
    """The number of tokens."""

    prompt_tokens: int = Field(description="The number of subword tokens that were read.")
    total_tokens: int = Field(description="The same number.")
    completion_tokens: int = Field(description="The number of generated tokens, which is 0.")


class VllmResponse(ResponseModel):
    """The response of POST /v1/classify."""

    id: str = Field(description="The id of the answer.")
    object: Literal["list"] = Field(description="The type of the answer.")
    created: int = Field(description="The time of the answer, in seconds since 1970.")
    model: str = Field(description="The model that answered.")
    data: list[VllmLabel] = Field(description="One entry for each text.")
    usage: VllmUsage = Field(description="The amount of text that was read.")


class OpenAIModel(ResponseModel):
    """A model in the words of the OpenAI API."""

    id: str = Field(description="The name of the model in requests.")
    object: str = Field(default="model", description="The type of the entry, which is model.")
    created: int = Field(
        description="The time at which this process loaded the model, in seconds since 1970."
    )
    owned_by: str = Field(default="hardmax", description="The owner, which is hardmax.")


class OpenAIModels(ResponseModel):
    """The models in the words of the OpenAI API."""

    object: str = Field(default="list", description="The type of the answer, which is list.")
    data: list[OpenAIModel] = Field(description="All models that are served.")


@router.post(
    "/v1/classify",
    **examples.route(VllmRequest, examples.VLLM_CLASSIFY, VllmResponse, examples.VLLM_CLASSIFIED),
    summary="Classify texts, as vLLM",
)
async def vllm(
    body: Annotated[VllmRequest, json_body(VllmRequest)],
    service: ServiceDep,
    id: RequestId,
    neutral: NeutralDep,
    size: SizeDep,
) -> Response:
    """Return what vLLM returns, with `abstain_reason` and `leaders` of each text."""
    name = body.model or service.settings.default_model
    options = ClassifyOptions(find_heads(service.registry.find, [name]), "leaders")
    answers = await label_texts(service, body.input, options, "input", neutral, size)
    tokens = sum([answer["n_tokens"] for answer in answers])
    data = [
        {
            "index": index,
            "label": answer["label"],
            "probs": list(answer["probs"].values()),
            "num_classes": len(answer["probs"]),
            "abstain_reason": answer["abstain_reason"],
            "leaders": answer["leaders"],
        }
        for index, answer in enumerate(answers)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0}
    head = {"id": f"classify-{id}", "object": "list", "created": int(time.time()), "model": name}
    return await reply_document({**head, "data": data, "usage": usage}, size)


@router.get("/v1/models", responses=examples.responses(errors=(401,)), summary="List the models, as OpenAI")
async def v1_models(service: ServiceDep) -> OpenAIModels:
    """Return the names of all models that are served."""
    entries = service.registry.entries.values()
    data = [OpenAIModel(id=entry.name, created=int(entry.loaded_at.timestamp())) for entry in entries]
    return OpenAIModels(data=data)
