"""What clients of vLLM speak, and those of OpenAI ask first: which models there are."""

import time
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from hardmax.documents import AbstainReason, Leader
from service.answers.texts import heads_of
from service.http import examples
from service.http.bodies import json_body, reply_document
from service.http.dependencies import NeutralOf, RequestId, ServiceOf, SizeOf
from service.http.routes.classify import label
from service.schemas.protocols import Foreign, Wire
from service.schemas.requests import Given, ModelName
from service.text.pipeline import ClassifyOptions

router = APIRouter(tags=["other clients"])


class VllmRequest(Foreign):
    """What clients of vLLM send to /v1/classify."""

    input: str | Given[str] = Field(description="One text, or a list of them.")
    model: ModelName | None = Field(None, description="The default one if absent.")


class VllmLabel(Wire):
    index: int = Field(description="The place of the text in the request.")
    label: str = Field(description="The likelier label.")
    probs: list[float] = Field(description="The probability of each label, in the order of the model's card.")
    num_classes: int = Field(description="How many those are.")
    abstain_reason: AbstainReason | None = Field(
        None, description="Why the model abstains; null if the label can be acted upon."
    )
    leaders: list[Leader] = Field([], description="The words that lead, as /classify has them.")


class VllmUsage(Wire):
    prompt_tokens: int = Field(description="Words and marks that were read.")
    total_tokens: int = Field(description="The same.")
    completion_tokens: int = Field(description="None.")


class VllmResponse(Wire):
    id: str = Field(description="Of the answer.")
    object: Literal["list"] = Field(description="What it is.")
    created: int = Field(description="Seconds since 1970.")
    model: str = Field(description="The model that answered.")
    data: list[VllmLabel] = Field(description="One entry a text.")
    usage: VllmUsage = Field(description="What was read.")


class OpenAIModel(Wire):
    id: str = Field(description="What requests call it.")
    object: str = Field(default="model", description="Always model.")
    created: int = Field(description="When this process loaded it, in seconds since 1970.")
    owned_by: str = Field(default="hardmax", description="Always hardmax.")


class OpenAIModels(Wire):
    object: str = Field(default="list", description="Always list.")
    data: list[OpenAIModel] = Field(description="All models that are served.")


@router.post(
    "/v1/classify",
    **examples.route(VllmRequest, examples.VLLM_CLASSIFY, VllmResponse, examples.VLLM_CLASSIFIED),
    summary="Label texts as vLLM does",
)
async def vllm(
    body: Annotated[VllmRequest, json_body(VllmRequest)],
    service: ServiceOf,
    id: RequestId,
    neutral: NeutralOf,
    size: SizeOf,
) -> Response:
    """What vLLM answers, and beside it of each text `abstain_reason` and `leaders`."""
    name = body.model or service.settings.default_model
    how = ClassifyOptions(heads_of(service.registry.find, [name]), "leaders")
    answers = await label(service, body.input, how, "input", neutral, size)
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
    return await reply_document({**head, "data": data, "usage": usage})


@router.get("/v1/models", responses=examples.answers(failing=(401,)), summary="Names of models, as OpenAI")
async def v1_models(service: ServiceOf) -> OpenAIModels:
    entries = service.registry.entries.values()
    data = [OpenAIModel(id=each.name, created=int(each.loaded_at.timestamp())) for each in entries]
    return OpenAIModels(data=data)
