"""POST /classify: texts in, labels and their exact reasons out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_core import to_json

from service.api.exchange import Exchange, Reply
from service.api.media import require_json
from service.api.problems import parse
from service.batching import Batcher
from service.errors import InvalidInput, TooLarge
from service.registry import Registry
from service.schemas import ClassifyRequest, ClassifyResponse, Explain
from service.settings import Settings

if TYPE_CHECKING:
    from service.sentiment import Sentiment
    from service.tokens import Words

INLINE_CHARS = 20_000  # texts of up to so many characters are cut into words on the event loop: under 5 ms
PIECE_CHARS = 100_000


class How(NamedTuple):
    """What one run is: texts run together when they want the same of the same model."""

    model: Sentiment
    explain: Explain
    trajectory: bool


def run_texts(how: How, batch: Sequence[Words]) -> Sequence[dict[str, Any]]:
    """What the batcher's runner calls."""
    return how.model.classify(batch, how.explain, trajectory=how.trajectory)


async def classify(body: ClassifyRequest) -> ClassifyResponse:
    """Label texts, and say exactly why

    `logit = bias + sum of cluster contributions = bias + sum of word contributions`: this is how the model
    decides, not an approximation. Spans are character offsets into the text as sent. Leaders are sorted by
    |contribution|.
    """
    raise NotImplementedError


class Classify:
    def __init__(
        self,
        registry: Registry,
        texts: Batcher[Words, dict[str, Any]],
        settings: Settings,
        tokenised: Callable[[float], None],
    ) -> None:
        self._registry = registry
        self._texts = texts
        self._settings = settings
        self._payload = settings.payload_limit_bytes
        self._tokenised = tokenised

    async def __call__(self, exchange: Exchange) -> Reply:
        require_json(exchange)
        request = parse(ClassifyRequest, await exchange.read(self._payload))
        name = request.model or self._settings.default_model
        how = How(self._registry.find(name, "sentiment"), request.explain, request.trajectory)
        if request.trajectory and request.explain != "full":
            raise InvalidInput('trajectory needs "explain": "full"', param="trajectory")
        words = await self._words(how.model, request)
        results = await self._texts.submit(how, [(each, each.length) for each in words])
        answer = {
            "id": exchange.text_id,
            "model": name,
            "usage": {"texts": len(words), "tokens": sum([each.tokens for each in words])},
            "data": [{"index": index, **result} for index, result in enumerate(results)],
        }
        if len(words) > 64 or request.trajectory:
            return Reply(await asyncio.to_thread(to_json, answer))
        return Reply(to_json(answer))

    async def _words(self, model: Sentiment, request: ClassifyRequest) -> list[Words]:
        """Every text as the model reads it."""
        texts = request.input
        single = isinstance(texts, str)
        if isinstance(texts, str):
            texts = [texts]
        self._check(texts, single)
        started = time.perf_counter()
        words: list[Words] = []
        if sum(map(len, texts)) <= INLINE_CHARS:
            words = [_tokenise(model, text, index, single) for index, text in enumerate(texts)]
        else:
            words = await asyncio.to_thread(_tokenise_all, model, texts, single)
        self._tokenised(time.perf_counter() - started)
        if not request.truncate:
            for index, each in enumerate(words):
                if each.truncated:
                    raise TooLarge(
                        f"the text has more tokens than the model reads ({model.max_length})",
                        param=_param(index, single),
                    )
        return words

    def _check(self, texts: Sequence[str], single: bool) -> None:
        if not texts:
            raise InvalidInput("input is empty", param="input")
        if len(texts) > self._settings.max_client_batch_size:
            limit = self._settings.max_client_batch_size
            raise TooLarge(f"more than {limit} texts (MAX_CLIENT_BATCH_SIZE)", param="input")
        longest = max(map(len, texts))
        if longest > self._settings.max_text_chars:
            index = next(i for i, text in enumerate(texts) if len(text) == longest)
            limit = self._settings.max_text_chars
            message = f"the text has {longest} characters, more than {limit} (MAX_TEXT_CHARS)"
            raise TooLarge(message, param=_param(index, single))


def _tokenise_all(model: Sentiment, texts: Sequence[str], single: bool) -> list[Words]:
    return [_tokenise(model, text, index, single) for index, text in enumerate(texts)]


def _tokenise(model: Sentiment, text: str, index: int, single: bool) -> Words:
    try:
        return model.tokenise(text)
    except InvalidInput as invalid:
        raise InvalidInput(invalid.message, param=_param(index, single)) from None


def _param(index: int, single: bool) -> str:
    return "input" if single else f"input[{index}]"
