"""What operators ask: is it alive, is it ready, what is it, what does it serve, how is it doing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic_core import to_json

from service.api.exchange import Exchange, Reply
from service.errors import NotFound, NotReady
from service.metrics import CONTENT_TYPE
from service.registry import Entry
from service.schemas import Health, Info, ModelCard, ModelList, Ready

Entries = Callable[[], Mapping[str, Entry]]


async def health() -> Health:
    """Whether the process lives and its inference thread answers"""
    raise NotImplementedError


async def ready() -> Ready:
    """Whether models are loaded and warm, and the service is not draining"""
    raise NotImplementedError


async def info() -> Info:
    """Version, provider, limits"""
    raise NotImplementedError


async def models() -> ModelList:
    """The cards of all models"""
    raise NotImplementedError


async def model(name: str) -> ModelCard:
    """The card of one model"""
    raise NotImplementedError


async def metrics() -> None:
    """Metrics for Prometheus"""
    raise NotImplementedError


class State:
    """Answers that are computed when asked."""

    def __init__(
        self,
        *,
        healthy: Callable[[], bool],
        unready: Callable[[], str | None],
        info: Callable[[], Info],
        metrics: Callable[[], bytes],
    ) -> None:
        self._healthy = healthy
        self._unready = unready
        self._info = info
        self._metrics = metrics

    async def health(self, exchange: Exchange) -> Reply:
        if not self._healthy():
            raise NotReady("the inference thread does not answer")
        return Reply(b'{"status":"ok"}')

    async def ready(self, exchange: Exchange) -> Reply:
        if reason := self._unready():
            raise NotReady(reason)
        return Reply(b'{"status":"ready"}')

    async def info(self, exchange: Exchange) -> Reply:
        return Reply(self._info().model_dump_json().encode())

    async def metrics(self, exchange: Exchange) -> Reply:
        return Reply(self._metrics(), media_type=CONTENT_TYPE)


class Cards:
    """The models' cards, as their makers wrote them."""

    def __init__(self, entries: Entries, default_model: str) -> None:
        self._entries = entries
        self._default_model = default_model

    async def list(self, exchange: Exchange) -> Reply:
        return Reply(to_json({"models": [self._card(entry) for entry in self._entries().values()]}))

    async def one(self, exchange: Exchange) -> Reply:
        entry = self._entries().get(exchange.parameters["name"])
        if entry is None:
            raise NotFound("no model has this name", param="name")
        return Reply(to_json(self._card(entry)))

    def _card(self, entry: Entry) -> dict[str, Any]:
        return {
            **entry.card,
            "default": entry.name == self._default_model,
            "version": entry.version,
            "loaded_at": entry.loaded_at.isoformat(timespec="seconds"),
        }
