"""Every route of the service, in one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from service.api import classify, control, dynamics, operations, protocol, sequences
from service.api.pages import Pages
from service.api.routes import ALL, HandledRoute, Handler, Signature
from service.batching import Batcher
from service.lane import Lane
from service.metrics import Metrics
from service.registry import Registry
from service.schemas import InferenceError, Info
from service.settings import Settings

WEB = Path(__file__).parent.parent / "web"

Answers = dict[int | str, dict[str, Any]]
Row = tuple[str, Signature, Handler, str, Sequence[int], Answers | None]


class Life(Protocol):
    """What the whole service can be asked."""

    def healthy(self) -> bool: ...
    def unready(self) -> str | None: ...
    def info(self) -> Info: ...


@dataclass(frozen=True)
class Parts:
    """What routes are made of."""

    settings: Settings
    registry: Registry
    texts: Batcher[Any, dict[str, Any]]
    clouds: Lane
    metrics: Metrics
    life: Life


def routes(parts: Parts) -> list[HandledRoute]:
    return [*_inference(parts), *_operations(parts), *_protocol(parts), *_pages()]


def _inference(parts: Parts) -> list[HandledRoute]:
    settings, registry, clouds = parts.settings, parts.registry, parts.clouds
    texts = classify.Classify(registry, parts.texts, settings)
    points = dynamics.Dynamic(registry, clouds, settings)
    labels = sequences.ClassifySequences(registry, clouds, settings)
    wishes = control.Controls(registry, clouds, settings)
    rows: list[tuple[str, Signature, Handler, dict[str, Any], Answers]] = [
        ("/classify", classify.classify, texts, classify.REQUEST, classify.ANSWER),
        ("/dynamics", dynamics.dynamics, points, dynamics.REQUEST, dynamics.ANSWER),
        ("/sequences/classify", sequences.classify_sequences, labels, sequences.REQUEST, sequences.ANSWER),
        ("/control", control.control, wishes, control.REQUEST, control.ANSWER),
    ]
    return [
        HandledRoute(
            path,
            signature,
            handler,
            method="POST",
            tag="inference",
            statuses=ALL,
            answers=answer,
            extra=request,
        )
        for path, signature, handler, request, answer in rows
    ]


def _operations(parts: Parts) -> list[HandledRoute]:
    life = parts.life
    state = operations.State(
        healthy=life.healthy, unready=life.unready, info=life.info, metrics=parts.metrics.render
    )
    cards = operations.Cards(lambda: parts.registry.entries, parts.settings.default_model)
    plain: Answers = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
    rows: list[Row] = [
        ("/health", operations.health, state.health, "GET", (503,), None),
        ("/ready", operations.ready, state.ready, "GET", (503,), None),
        ("/info", operations.info, state.info, "GET", (401,), None),
        ("/models", operations.models, cards.list, "GET", (401,), None),
        ("/models/{name}", operations.model, cards.one, "GET", (401, 404), None),
        ("/metrics", operations.metrics, state.metrics, "GET", (401,), plain),
    ]
    return [
        HandledRoute(
            path, signature, handler, method=method, tag="operations", statuses=some, answers=answers
        )
        for path, signature, handler, method, some, answers in rows
    ]


def _protocol(parts: Parts) -> list[HandledRoute]:
    """The Open Inference Protocol; a version in the path must be the one that is served."""
    served = protocol.Protocol(parts.registry, parts.texts, parts.settings, parts.life)
    model, version = "/v2/models/{name}", "/v2/models/{name}/versions/{version}"
    rows: list[Row] = [
        ("/v2", protocol.server_metadata, served.server, "GET", (401,), None),
        ("/v2/health/live", protocol.server_live, served.live, "GET", (503,), None),
        ("/v2/health/ready", protocol.server_ready, served.ready, "GET", (503,), None),
        (model, protocol.model_metadata, served.model, "GET", (401, 404), None),
        (f"{model}/ready", protocol.model_ready, served.model_ready, "GET", (401, 404, 503), None),
        (f"{model}/infer", protocol.infer, served.infer, "POST", ALL, protocol.ANSWER),
        (version, protocol.version_metadata, served.model, "GET", (401, 404), None),
        (f"{version}/ready", protocol.version_ready, served.model_ready, "GET", (401, 404, 503), None),
        (f"{version}/infer", protocol.version_infer, served.infer, "POST", ALL, protocol.ANSWER),
    ]
    return [
        HandledRoute(
            path,
            signature,
            handler,
            method=method,
            tag="v2",
            statuses=some,
            errors=InferenceError,
            answers=answers,
            extra=protocol.REQUEST if method == "POST" else None,
        )
        for path, signature, handler, method, some, answers in rows
    ]


def _pages() -> list[HandledRoute]:
    pages = Pages(WEB)

    async def page() -> None:
        """The page"""

    async def docs() -> None:
        """This documentation, readable"""

    async def file(path: str) -> None:
        """A file of the page"""

    found = [
        HandledRoute("/", page, pages.index, method="GET", tag="page", statuses=()),
        HandledRoute("/docs", docs, pages.docs, method="GET", tag="page", statuses=()),
        HandledRoute("/web/{path:path}", file, pages.file, method="GET", tag="page", statuses=(404,)),
    ]
    for route in found:
        route.include_in_schema = False
    return found
