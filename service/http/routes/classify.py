"""POST /classify: texts in, labels and their exact reasons out."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Request
from starlette.responses import Response

from hardmax.models.texts import ClassifyResponse
from service.answers.texts import (
    RunTasks,
    add_searches,
    classification,
    raise_first,
    searches_of,
    tasks_of_request,
)
from service.http import examples
from service.http.bodies import RequestSize, json_body, reply_document
from service.http.dependencies import ServiceOf, SizeOf
from service.schemas.requests import ClassifyRequest
from service.state import AppState
from service.text.counterfactual import Search
from service.text.decision import abstain_as_neutral
from service.text.pipeline import Answer, ClassificationTask, ClassifyOptions, make_tasks

router = APIRouter(tags=["inference"])


@router.post(
    "/classify",
    **examples.route(ClassifyRequest, examples.CLASSIFY, ClassifyResponse, examples.CLASSIFIED),
    summary="Classify texts with exact explanations",
)
async def classify(
    body: Annotated[ClassifyRequest, json_body(ClassifyRequest)],
    request: Request,
    service: ServiceOf,
    size: SizeOf,
) -> Response:
    """Return the label of each text with its exact explanation.

    `logit = bias + sum of cluster contributions = bias + sum of word contributions`. This is how the model
    decides, not an approximation, and the numbers as printed add up. A word counts at the position of the
    leader that it ends with, so a leader's contribution is that of its cluster. Spans are offsets into the
    text as sent, in code points or in UTF-16 units (`offset_unit`). Clusters and their leaders are sorted by
    the size of their contribution.
    """
    texts = tasks_of_request(body, service.registry.find, service.settings)
    await size.expect_response(texts[0].options.estimated_response_bytes([text.text for text in texts]))
    results = await run(service, texts)
    if body.flip or body.sufficient:
        submit = partial(service.texts.submit, texts[0].options.encoder)  # in turn with other requests
        await search(texts, results, searches_of(body), submit)
    document = classification(body.model or service.settings.default_model, results)
    return await reply_document({"id": request.state.request_id, **document}, size)


async def search(
    texts: Sequence[ClassificationTask],
    results: Sequence[list[Answer]],
    searches: Mapping[str, Callable[[ClassificationTask], Search]],
    run: RunTasks,
) -> None:
    """Add the results of searches to all answers. Where one search is refused, the others end too."""
    pairs = zip(texts, results, strict=True)
    running = [asyncio.create_task(add_searches(*each, searches, run)) for each in pairs]
    try:
        await asyncio.gather(*running)
    finally:
        for each in running:
            each.cancel()


async def run(service: AppState, texts: Sequence[ClassificationTask]) -> list[list[Answer]]:
    """Queue the texts, and wait for the answers to each; count what they say."""
    results = raise_first(await service.texts.submit(texts[0].options.encoder, texts))
    for text, answers in zip(texts, results, strict=True):
        for head, answer in zip(text.options.heads, answers, strict=True):
            service.metrics.count_verdict(head.name, answer)
    return results


async def label(
    service: AppState,
    inputs: str | Sequence[str],
    how: ClassifyOptions,
    param: str,
    neutral: bool,
    size: RequestSize,
) -> list[Answer]:
    """One head's answers, for protocols that know labels alone. With `neutral`, abstaining is one of them."""
    max_texts, max_chars = service.settings.max_client_batch_size, service.settings.max_text_chars
    texts = make_tasks(inputs, how, param, max_texts=max_texts, max_chars=max_chars)
    await size.expect_response(how.estimated_response_bytes([text.text for text in texts]))
    answers = [each for (each,) in await run(service, texts)]
    return [abstain_as_neutral(answer) if neutral else answer for answer in answers]
