"""POST /classify: texts in, labels and their exact reasons out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any, cast

from fastapi import APIRouter, Request
from starlette.responses import Response

from service.engine.registry import Registry
from service.errors import InvalidInput, TooLarge
from service.http import examples
from service.http.bodies import json_body
from service.http.dependencies import HoldingOf, ServiceOf
from service.http.documents import reply_document
from service.lifecycle import Service
from service.schemas.texts import ClassifyRequest, ClassifyResponse
from service.settings import Settings
from service.texts.runs import How, bytes_of, size_of

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
    holding: HoldingOf,
) -> Response:
    """`logit = bias + sum of cluster contributions = bias + sum of word contributions`: this is how the model
    decides, not an approximation, and the numbers as printed add up. Spans are offsets into the text as
    sent, in code points or in UTF-16 units (`spans`). Clusters and their leaders are sorted by the cluster's
    |contribution|.
    """
    name, how, texts = choose(body, service.registry, service.settings)
    holding.expect(bytes_of(how, texts))
    answered = await answer(service, request.scope["state"], body, name, how, texts)
    return await reply_document(answered, holding)


async def answer(
    service: Service, state: dict[str, Any], asked: ClassifyRequest, name: str, how: How, texts: Sequence[str]
) -> dict[str, Any]:
    """Queue the texts and put the results together. The request's `state` has its id and takes its stages."""
    began = time.perf_counter()
    results = await run(service, how, texts, single=texts is not asked.input)
    state["stages"] = [("queue and inference", began, time.perf_counter())]
    return answer_of(state["request_id"], name, results)


async def run(
    service: Service, how: How, texts: Sequence[str], param: str = "input", *, single: bool = False
) -> list[dict[str, Any]]:
    """Queue texts that were checked, and wait for the result of each."""
    results = await service.texts.submit(how, [(text, size_of(text)) for text in texts])
    return raise_first(results, param, single=single)


def raise_first(
    results: Sequence[dict[str, Any] | Exception], param: str, *, single: bool
) -> list[dict[str, Any]]:
    """The results, unless one is an error; a text that is too long is named by its place."""
    for index, result in enumerate(results):
        if isinstance(result, TooLarge):
            raise TooLarge(result.message, param=_place(param, index, single))
        if isinstance(result, Exception):
            raise result
    return cast("list[dict[str, Any]]", results)


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
    how = How(model, request.explain, request.trajectory, request.truncate, request.spans)
    return name, how, texts


def check_texts(texts: Sequence[str], settings: Settings, param: str, *, single: bool) -> None:
    """Refuse what is too many, too long or empty, by name."""
    if not texts:
        raise InvalidInput(f"{param} is empty", param=param)
    if len(texts) > settings.max_client_batch_size:
        problem = f"more than {settings.max_client_batch_size} texts (MAX_CLIENT_BATCH_SIZE)"
        raise TooLarge(problem, param=param)
    for index, text in enumerate(texts):
        if len(text) > settings.max_text_chars:
            problem = (
                f"the text has {len(text)} characters, more than {settings.max_text_chars} (MAX_TEXT_CHARS)"
            )
            raise TooLarge(problem, param=_place(param, index, single))
        if not text or text.isspace():
            raise InvalidInput("the text is empty", param=_place(param, index, single))


def answer_of(request_id: str, model: str, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    data = [{"index": index, **result} for index, result in enumerate(results)]
    tokens = sum([each["tokens"] for each in data])
    return {
        "id": request_id,
        "model": model,
        "usage": {"texts": len(data), "tokens": tokens},
        "data": data,
    }


def _place(param: str, index: int, single: bool) -> str:
    return param if single else f"{param}[{index}]"
