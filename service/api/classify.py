"""POST /classify: texts in, labels and their exact reasons out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from service.api import examples
from service.api.documents import each_in_turn
from service.api.exchange import Exchange, Reply
from service.api.media import require_json
from service.api.numbers import PIECE, WHOLE
from service.api.texts import TextReader
from service.batching import Batcher
from service.errors import InvalidInput, TooLarge
from service.registry import Registry
from service.schemas import ClassifyRequest, ClassifyResponse, Explain
from service.settings import Settings

if TYPE_CHECKING:
    from service.sentiment import Sentiment

REQUEST = examples.body(examples.CLASSIFY)
ANSWER = examples.answer(examples.CLASSIFIED)
BRIEF = 128  # tokens
AT_ONCE = 2048  # tokens whose answer is written in one step
CHARS_A_TOKEN = 3  # a word has five characters and a space, and is often part of a phrase that is a token too


class How(NamedTuple):
    """What one run is: texts run together when they want the same of the same model."""

    model: Sentiment
    explain: Explain
    trajectory: bool
    truncate: bool
    budget: int  # padded tokens of one inference


def is_brief(how: How, tokens: int) -> bool:
    """Whether it takes less than a millisecond, so that the event loop may do it itself."""
    return tokens <= BRIEF and how.explain != "full"


def size_of(text: str) -> int:
    """About how many tokens a text has: batches are planned with it before anything is read."""
    return len(text) // CHARS_A_TOKEN + 1


def run_texts(
    how: How, texts: Sequence[str], tokenised: Callable[[float], None] = lambda seconds: None
) -> list[dict[str, Any] | Exception]:
    """What the batcher's runner calls: one inference, or several where texts are longer than they looked."""
    results: list[dict[str, Any] | Exception] = []
    started = time.perf_counter()
    words = how.model.tokenise_many(texts)
    tokenised(time.perf_counter() - started)
    begin = 0
    while begin < len(words):
        end = begin + 1
        longest = words[begin].length
        while end < len(words):
            longest = max(longest, words[end].length)
            if longest * (end + 1 - begin) > how.budget:
                break
            end += 1
        results += how.model.classify(words[begin:end], how.explain, trajectory=how.trajectory)
        begin = end
    if not how.truncate:
        limit = how.model.max_length
        problem = f"the text has more words than the model reads ({limit}), and truncate is off"
        results = [TooLarge(problem) if w.truncated else r for w, r in zip(words, results, strict=True)]
    return results


async def classify(body: ClassifyRequest) -> ClassifyResponse:
    """Label texts, and say exactly why

    `logit = bias + sum of cluster contributions = bias + sum of word contributions`: this is how the model
    decides, not an approximation. Spans are character offsets into the text as sent. Leaders are sorted by
    |contribution|.
    """
    raise NotImplementedError


class Classify:
    def __init__(self, registry: Registry, texts: Batcher[str, dict[str, Any]], settings: Settings) -> None:
        self._registry = registry
        self._texts = texts
        self._settings = settings
        self._payload = settings.payload_limit_bytes
        self._reader = TextReader(settings)

    async def __call__(self, exchange: Exchange) -> Reply:
        require_json(exchange)
        body = await exchange.read(self._payload)
        request = await self._reader.read(ClassifyRequest, body)
        if len(body) <= WHOLE:
            model, how, texts = choose(request, self._registry, self._settings)
        else:  # to see that a text is not blank may mean to read it to its end
            model, how, texts = await asyncio.to_thread(choose, request, self._registry, self._settings)
        del body  # the run may take long
        began = time.perf_counter()
        results = await self._texts.submit(how, [(text, size_of(text)) for text in texts])
        exchange.stages.append(("queue and inference", began, time.perf_counter()))
        answer = answer_of(exchange.text_id, model, results, single=texts is not request.input)
        if answer["usage"]["tokens"] <= AT_ONCE:
            return Reply(orjson.dumps(answer))
        blocks = await write_blocks(answer)
        return Reply(blocks[0] if len(blocks) == 1 else each_in_turn(blocks))


def choose(
    request: ClassifyRequest, registry: Registry, settings: Settings
) -> tuple[str, How, Sequence[str]]:
    """The name of the model that is asked, how it is to run, and the texts."""
    if request.trajectory and request.explain != "full":
        raise InvalidInput('trajectory needs "explain": "full"', param="trajectory")
    name = request.model or settings.default_model
    model = registry.find(name, "sentiment")
    given = request.input
    texts = [given] if isinstance(given, str) else given
    check_texts(texts, settings, "input", single=given is not texts)
    how = How(model, request.explain, request.trajectory, request.truncate, settings.max_batch_tokens)
    return name, how, texts


def check_texts(texts: Sequence[str], settings: Settings, param: str, *, single: bool) -> None:
    """Refuse what is too many, too long or empty, by name."""
    if not texts:
        raise InvalidInput(f"{param} is empty", param=param)
    if len(texts) > settings.max_client_batch_size:
        problem = f"more than {settings.max_client_batch_size} texts (MAX_CLIENT_BATCH_SIZE)"
        raise TooLarge(problem, param=param)
    for index, text in enumerate(texts):
        if not text or text.isspace():
            raise InvalidInput("the text is empty", param=_place(param, index, single))
        if len(text) > settings.max_text_chars:
            problem = (
                f"the text has {len(text)} characters, more than {settings.max_text_chars} (MAX_TEXT_CHARS)"
            )
            raise TooLarge(problem, param=_place(param, index, single))


def answer_of(
    request_id: str, model: str, results: Sequence[dict[str, Any] | Exception], *, single: bool
) -> dict[str, Any]:
    data: list[dict[str, Any]] = []
    for index, result in enumerate(results):
        if isinstance(result, TooLarge):
            raise TooLarge(result.message, param=_place("input", index, single))
        if isinstance(result, Exception):
            raise result
        data.append({"index": index, **result})
    tokens = sum([each["tokens"] for each in data])
    return {
        "id": request_id,
        "model": model,
        "usage": {"texts": len(data), "tokens": tokens},
        "data": data,
    }


async def write_blocks(answer: dict[str, Any]) -> list[bytes]:
    """The answer text by text, each let go of once it is written: others have their turn in between.

    Writing all words of a hundred long texts in one step takes a second, and so does freeing them.
    """
    data = answer.pop("data")
    blocks: list[bytes] = []
    block = orjson.dumps(answer)[:-1] + b',"data":['
    for entry in data:
        block += orjson.dumps(entry) + b","
        for part in entry.values():
            if isinstance(part, list):
                part.clear()
        if len(block) > PIECE:
            blocks.append(block)
            block = b""
            await asyncio.sleep(0)
    if not block:
        block = blocks.pop()
    return [*blocks, block[:-1] + b"]}"]


def _place(param: str, index: int, single: bool) -> str:
    return param if single else f"{param}[{index}]"
