"""POST /classify: texts in, labels and their exact reasons out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, cast

from fastapi import APIRouter, Request
from starlette.responses import Response

from service.engine.bundle import HEAD
from service.errors import InvalidInput, TooLarge
from service.http import examples
from service.http.bodies import json_body
from service.http.dependencies import ReservationOf, ServiceOf
from service.http.documents import reply_document
from service.lifecycle import Service
from service.schemas.texts import ClassifyRequest, ClassifyResponse
from service.settings import Settings
from service.texts.flip import MOST_TEXTS, find_flip
from service.texts.heads import Head
from service.texts.work import Answer, How, Text, codepoints, texts_of

router = APIRouter(tags=["inference"])


@router.post(
    "/classify",
    response_model=ClassifyResponse,
    responses=examples.answers(examples.CLASSIFIED),
    openapi_extra=examples.body(examples.CLASSIFY, ClassifyRequest),
    summary="Label texts, and say exactly why",
)
async def classify(
    body: Annotated[ClassifyRequest, json_body(ClassifyRequest)],
    request: Request,
    service: ServiceOf,
    reservation: ReservationOf,
) -> Response:
    """`logit = bias + sum of cluster contributions = bias + sum of word contributions`: this is how the model
    decides, not an approximation, and the numbers as printed add up. Words count at the place of the leader
    that they end with, so a leader's contribution is its cluster's. Spans are offsets into the text as sent,
    in code points or in UTF-16 units (`spans`). Clusters and their leaders are sorted by |contribution|.
    """
    asked = body.model if body.model is not None else service.settings.default_model
    names = [asked] if isinstance(asked, str) else asked
    texts = texts_to(body, heads_of(service, names), service.settings)
    reservation.expect(texts[0].how.bytes_of([text.source for text in texts]))
    began = time.perf_counter()
    results = await run(service, texts, single=isinstance(body.input, str))
    if body.flip:
        await asyncio.gather(*(_tell_flips(service, *each) for each in zip(texts, results, strict=True)))
    request.state.stages = [("queue and inference", began, time.perf_counter())]
    answered = {"id": request.state.request_id, **answer_of(asked, results)}
    return await reply_document(answered, reservation)


def answer_of(asked: str | list[str], results: Sequence[list[Answer]]) -> Answer:
    """The document, without its id. `asked` is the model, or those that answer each text."""
    data: list[Answer] = [
        {"index": i, **answers[0]}
        if isinstance(asked, str)
        else {"index": i, "answers": dict(zip(asked, answers, strict=True))}
        for i, answers in enumerate(results)
    ]
    tokens = sum([answers[0]["tokens"] for answers in results])
    return {"model": asked, "usage": {"texts": len(data), "tokens": tokens}, "data": data}


def heads_of(service: Service, names: Sequence[str]) -> tuple[Head, ...]:
    """The models of those names; one reading must do for all."""
    heads = tuple(service.registry.find(name, HEAD) for name in names)
    if len({id(head.reader) for head in heads}) > 1:
        raise InvalidInput("these models stand on several readers: ask for each alone", param="model")
    return heads


def texts_to(body: ClassifyRequest, heads: tuple[Head, ...], settings: Settings) -> list[Text]:
    """What is to be read, and how it is to be answered."""
    if body.trajectory and body.explain != "full":
        raise InvalidInput('trajectory needs "explain": "full"', param="trajectory")
    sources = [body.input] if isinstance(body.input, str) else body.input
    if body.without and len(sources) != 1:
        raise InvalidInput("without goes with one text", param="without")
    if body.flip and len(sources) > MOST_TEXTS:
        raise InvalidInput(f"flip goes with {MOST_TEXTS} texts at most", param="flip")
    check_size(sources, settings, "input", single=sources is not body.input)
    how = How(heads, body.explain, body.trajectory, body.truncate, body.spans)
    texts = texts_of(sources, how, "input", single=sources is not body.input)
    if body.without:
        texts[0].without = codepoints(sources[0], [(begin, end) for begin, end in body.without], body.spans)
    return texts


def check_size(texts: Sequence[str], settings: Settings, param: str, *, single: bool) -> None:
    """Refuse what is too many or too long, by name."""
    if not texts:
        raise InvalidInput(f"{param} is empty", param=param)
    if len(texts) > settings.max_client_batch_size:
        problem = f"more than {settings.max_client_batch_size} texts (MAX_CLIENT_BATCH_SIZE)"
        raise TooLarge(problem, param=param)
    for index, text in enumerate(texts):
        if len(text) > settings.max_text_chars:
            most = f"{settings.max_text_chars} (MAX_TEXT_CHARS)"
            problem = f"the text has {len(text)} characters, more than {most}"
            raise TooLarge(problem, param=param if single else f"{param}[{index}]")


async def run(
    service: Service, texts: Sequence[Text], param: str = "input", *, single: bool = False
) -> list[list[Answer]]:
    """Queue the texts, and wait for the answers to each; count what they say."""
    results = raise_first(await service.texts.submit(texts[0].how.reader, texts), param, single=single)
    for text, answers in zip(texts, results, strict=True):
        for head, answer in zip(text.how.heads, answers, strict=True):
            service.metrics.judged(head.name, answer)
    return results


def raise_first(
    results: Sequence[list[Answer] | Exception], param: str, *, single: bool = False
) -> list[list[Answer]]:
    """The results, unless one is an error; a text that is too long is named by its place."""
    for index, result in enumerate(results):
        if isinstance(result, TooLarge):
            raise TooLarge(result.message, param=param if single else f"{param}[{index}]")
        if isinstance(result, Exception):
            raise result
    return cast("list[list[Answer]]", results)


async def _tell_flips(service: Service, text: Text, answers: Sequence[Answer]) -> None:
    """Adds `flip` to each model's answer. The search runs as any other texts do, in turn with theirs."""
    for head, answer in zip(text.how.heads, answers, strict=True):
        search = find_flip(Text(text.source, replace(text.how, heads=(head,)), text.without))
        asked = next(search)
        while "flip" not in answer:
            found = raise_first(await service.texts.submit(head.reader, asked), "input")
            try:
                asked = search.send([each[0] for each in found])
            except StopIteration as end:
                answer["flip"] = end.value
