"""GET /health, /ready, /info and /models."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hardmax.documents import Number
from service.schemas.wire import Wire


class Health(Wire):
    status: Literal["ok"] = Field(description="Always ok: a process that is not answers 503.")


class Ready(Wire):
    status: Literal["ready"] = Field(description="Always ready: a process that is not answers 503.")


class ModelCard(Wire):
    """The card of a bundle, as it is."""

    name: str = Field(description="What requests call it.")
    kind: Literal["reader", "sentiment", "dynamics", "sequences"] = Field(
        description="What it reads. sentiment: a head on a reader, whatever its labels."
    )
    description: str = Field(description="What it is, in a line.")
    licence: str = Field(description="Under which it may be used.")
    default: bool = Field(False, description="Whether requests that name no model get it.")
    bias: Number | None = Field(
        None, description="Of a head: what its logit is without any word, as in answers."
    )
    loaded_at: str | None = Field(None, description="Since when this process serves it.")


class ModelList(Wire):
    models: list[ModelCard] = Field(description="All that are served.")
