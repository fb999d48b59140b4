"""The answers about the service: models, limits, versions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from hardmax.models.document import Document, Items, Number, Open


class ModelCard(Document):
    """The card of a model: the fields of its bundle and of the service. There may be others."""

    name: str
    """The name of the model in requests."""
    kind: Annotated[Literal["encoder", "text-classification", "dynamics", "sequences"], Open]
    """The kind of the model; text-classification models are heads on an encoder."""
    description: str
    """A description of the model in one line."""
    license: str
    """The license under which it may be used."""
    version: int = 1
    """The number after the @ of its name; 1 for a name without a number."""
    digest: str | None = None
    """The SHA-256 digest over all files of the bundle."""
    labels: Items[Any] | None = None
    """The labels of the model, for models that have some."""
    encoder: dict[str, Any] | None = None
    """The name and the digest of the encoder, for text-classification models."""
    figures: dict[str, Any] | None = None
    """The accuracy and other metrics that were measured when the model was made."""
    default: bool = False
    """Whether the model answers requests that name none."""
    id2label: dict[str, str] | None = None
    """The label of each index of the probabilities, as in transformers, for text-classification models."""
    bias: Number | None = None
    """The logit of a text without words, for text-classification models."""
    loaded_at: str | None = None
    """The time at which this process loaded the model."""


class ModelList(Document):
    """The models that are served."""

    models: Items[ModelCard]
    """The cards of all models that are served."""


class Limits(Document):
    """The limits of requests."""

    max_concurrent_requests: int
    """The number of requests that are worked on at once."""
    max_batch_tokens: int
    """The number of subword tokens that run together."""
    max_client_batch_size: int
    """The number of texts or sequences in one request."""
    max_text_chars: int
    """The number of characters of one text."""
    payload_limit_mb: float
    """The size of one body in megabytes."""
    max_large_requests: int
    """The number of requests at once whose body or response is over 1 MB."""
    max_points: int
    """The number of points of one cloud."""
    max_dimension: int
    """The dimension of a cloud."""
    max_layers: int
    """The number of layers that a cloud may request."""
    request_timeout_s: float
    """The time that a request may take, in seconds."""


class LoadError(Document):
    """A bundle in MODELS_DIR that is not served, and why."""

    name: str
    """The name of the bundle's folder."""
    reason: str
    """The reason why the bundle could not be loaded."""


class Info(Document):
    """The server, its limits and its models."""

    name: Literal["hardmax"] = "hardmax"
    """The name of the service."""
    version: str
    """The version of the service."""
    provider: str
    """The provider that runs the models, cpu or cuda."""
    threads: int
    """The number of threads of one inference."""
    default_model: str
    """The model of requests that name none."""
    models: Items[str]
    """The names of all models that are served."""
    load_errors: Items[LoadError]
    """The bundles that could not be loaded."""
    limits: Limits
    """The limits of a request."""
