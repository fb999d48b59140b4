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


class Limits(Wire):
    max_concurrent_requests: int = Field(description="Requests at once.")
    max_batch_tokens: int = Field(description="Pieces of words that run together at most.")
    max_client_batch_size: int = Field(description="Texts or sequences in one request.")
    max_text_chars: int = Field(description="Characters of one text.")
    payload_limit_mb: float = Field(description="Megabytes of one body.")
    payload_total_mb: float = Field(description="Megabytes of all bodies and long answers at once.")
    max_points: int = Field(description="Points of one cloud.")
    max_dimension: int = Field(description="Numbers of one point.")
    max_layers: int = Field(description="Layers one cloud may ask for.")
    request_timeout_s: float = Field(description="Seconds a request may take.")


class RefusedBundle(Wire):
    """A bundle in MODELS_DIR that is not served, and why."""

    name: str = Field(description="The folder.")
    reason: str = Field(description="What is wrong with it.")


class Info(Wire):
    name: Literal["hardmax"] = Field(default="hardmax", description="Of the service.")
    version: str = Field(description="Of the service.")
    provider: str = Field(description="Where models run: cpu or cuda.")
    threads: int = Field(description="Of one inference.")
    default_model: str = Field(description="What requests that name none get.")
    models: list[str] = Field(description="Names of those that are served.")
    refused: list[RefusedBundle] = Field(description="Bundles that are not served.")
    limits: Limits = Field(description="What a request may ask for.")
