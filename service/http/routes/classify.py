"""POST /classify: labels of texts, with exact explanations."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Request
from starlette.responses import Response

from hardmax.models.texts import ClassifyResponse
from service.http import openapi
from service.http.bodies import json_body, reply, write_answers
from service.http.dependencies import LabelOptions, OnEmpty, ServiceDep, record_models
from service.state import AppState
from service.text.decision import abstain_as_neutral
from service.text.pipeline import Answer, ClassificationTask, ClassifyOptions, make_tasks
from service.wire.documents import check_answer, write_entries
from service.wire.prices import check_answers, check_searches, is_large
from service.wire.requests import ClassifyRequest
from service.wire.texts import add_searches, build_document, raise_first, read_tasks, select_searches

router = APIRouter(tags=["inference"])


@router.post(
    "/classify",
    **openapi.route("classify", ClassifyRequest, ClassifyResponse),
    summary="Classify texts with exact explanations",
)
async def classify(
    body: Annotated[ClassifyRequest, json_body(ClassifyRequest)],
    request: Request,
    service: ServiceDep,
    on_empty: OnEmpty = "error",
) -> Response:
    """Return the label of each text with its exact explanation.

    `logit = bias + sum of cluster contributions = bias + sum of word contributions`. This is how the model
    decides, not an approximation, and the numbers as printed add up. A word counts at the position of the
    leader that it ends with, so a leader's contribution is that of its cluster. Spans are offsets into the
    text as sent, in code points or in UTF-16 units (`offset_unit`). Clusters and their leaders are sorted by
    the size of their contribution.
    """
    heads = await service.find_heads(body.model)
    tasks = read_tasks(body, heads, service.settings, accept_blank=on_empty == "abstain")
    record_models(request, heads, len(tasks))
    searches = select_searches(body)
    if searches:
        await asyncio.to_thread(check_searches, tasks, searches, service.settings)
    if large := is_large(tasks):
        await service.large_texts.take(request.state.held)
    results = await queue_tasks(service, tasks)
    submit = partial(service.texts.submit, tasks[0].options.encoder, admitted=True)
    for task, answers in zip(tasks, results, strict=True) if searches else ():  # one after the other
        await add_searches(task, answers, searches, submit)
    model = body.model or service.settings.default_model
    document = {"id": request.state.request_id, **build_document(model, heads, results)}
    written = await write_answers(partial(write_entries, document), len(tasks), is_long=large)
    return reply(check_answer(written))


async def queue_tasks(service: AppState, tasks: Sequence[ClassificationTask]) -> list[list[Answer]]:
    """Queue the tasks, wait for the answers to each, and count the labels."""
    results = raise_first(await service.texts.submit(tasks[0].options.encoder, tasks))
    for task, answers in zip(tasks, results, strict=True):
        for head, answer in zip(task.options.heads, answers, strict=True):
            service.metrics.count_verdict(head.name, answer)
    return results


async def label_texts(
    service: AppState,
    inputs: str | Sequence[str],
    options: ClassifyOptions,
    param: str,
    query: LabelOptions,
    *,
    neutral: bool = True,
) -> list[Answer]:
    """Return one head's answers, for protocols that know only labels; `neutral` permits the query's."""
    max_texts, max_chars = service.settings.max_client_batch_size, service.settings.max_text_chars
    options = replace(options, accept_blank=query.accept_blank)
    tasks = make_tasks(inputs, options, param, max_texts=max_texts, max_chars=max_chars)
    check_answers(tasks, param)
    record_models(query.request, options.heads, len(tasks))
    answers = [answer for (answer,) in await queue_tasks(service, tasks)]
    return [abstain_as_neutral(answer) if neutral and query.neutral else answer for answer in answers]
