"""What clients of other servers ask first: which models there are, in the words of OpenAI and of Triton."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import Field

from service.http import examples
from service.http.dependencies import ServiceOf
from service.schemas.open_inference import ProtocolError
from service.schemas.wire import Wire

router = APIRouter(tags=["other clients"])


class OpenAIModel(Wire):
    id: str = Field(description="What requests call it.")
    object: str = Field(default="model", description="Always model.")
    created: int = Field(description="When this process loaded it, in seconds since 1970.")
    owned_by: str = Field(default="hardmax", description="Always hardmax.")


class OpenAIModels(Wire):
    object: str = Field(default="list", description="Always list.")
    data: list[OpenAIModel] = Field(description="All models that are served.")


class Version(Wire):
    name: str = Field(description="Of the model.")
    version: str = Field(description="The one that is served.")


class IndexEntry(Version):
    state: str = Field(default="READY", description="READY, or UNAVAILABLE for a bundle that was refused.")
    reason: str = Field(default="", description="Why it was refused.")


class Statistics(Wire):
    model_stats: list[Version] = Field(description="What is served; its counts are in GET /metrics.")


@router.get("/v1/models", responses=examples.answers(failing=(401,)), summary="Names of models, as OpenAI")
async def v1_models(service: ServiceOf) -> OpenAIModels:
    entries = service.registry.entries.values()
    return OpenAIModels(
        data=[OpenAIModel(id=each.name, created=int(each.loaded_at.timestamp())) for each in entries]
    )


V2: dict[str, Any] = {"responses": examples.answers(errors=ProtocolError)}


@router.get("/v2/models/stats", **V2, summary="Models and versions, as Triton's statistics")
async def statistics(service: ServiceOf) -> Statistics:
    entries = service.registry.entries.values()
    return Statistics(model_stats=[Version(name=each.name, version=each.version[:12]) for each in entries])


@router.post("/v2/repository/index", **V2, summary="Models and refused bundles, as Triton's repository")
async def repository_index(service: ServiceOf) -> list[IndexEntry]:
    registry = service.registry
    refused = [
        IndexEntry(name=name, version="", state="UNAVAILABLE", reason=why)
        for name, why in registry.refused.items()
    ]
    served = [IndexEntry(name=each.name, version=each.version[:12]) for each in registry.entries.values()]
    return served + refused
