"""POST /classify: make tasks of a request, and the document of the response from their results."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from hardmax.models.texts import OffsetUnit
from service.errors import InvalidInput
from service.settings import Settings
from service.text.counterfactual import MAX_SEARCHED_TEXTS, Search, find_counterfactual, find_sufficient
from service.text.head import Head
from service.text.pipeline import Answer, ClassificationTask, ClassifyOptions, make_tasks
from service.text.spans import Span, merge_spans, to_codepoints
from service.wire.prices import check_answers
from service.wire.requests import ClassifyRequest

UNIT_NAMES = {"codepoints": "code points", "utf16": "UTF-16 units"}
Results = Sequence[list[Answer] | Exception]
RunTasks = Callable[[Sequence[ClassificationTask]], Awaitable[Results]]


def read_tasks(
    body: ClassifyRequest, heads: tuple[Head, ...], settings: Settings, *, accept_blank: bool = False
) -> list[ClassificationTask]:
    """Return the tasks of a request, one for each text.

    Raises:
        InvalidInput: Fields contradict each other; `param` names one.
        TooLarge: There are too many texts, or one is too long.
    """
    count = 1 if isinstance(body.input, str) else len(body.input)
    if body.without and count != 1:
        raise InvalidInput("without needs a single text", param="without")
    for i, (begin, end) in enumerate(body.without):
        if begin >= end:
            problem = f"without[{i}] should be [from, to], and to the larger"
            raise InvalidInput(problem, param=f"without[{i}]")
    if count > MAX_SEARCHED_TEXTS and (searches := select_searches(body)):
        name = next(iter(searches))
        raise InvalidInput(f"{name} goes with {MAX_SEARCHED_TEXTS} texts at most", param=name)
    check_heads(heads)
    options = ClassifyOptions(
        heads, body.explain, body.trajectory, body.truncate, body.offset_unit, accept_blank
    )
    max_texts, max_chars = settings.max_client_batch_size, settings.max_text_chars
    tasks = make_tasks(body.input, options, max_texts=max_texts, max_chars=max_chars)
    check_answers(tasks)
    if body.without:
        spans = [(begin, end) for begin, end in body.without]
        check_spans(spans, tasks[0].text, body.offset_unit)
        tasks[0].without = merge_spans(to_codepoints(tasks[0].text, spans, body.offset_unit))
    return tasks


def check_spans(spans: Sequence[Span], text: str, unit: OffsetUnit) -> None:
    """Refuse spans that end after the text.

    Raises:
        InvalidInput: It names the span and the length of the text.
    """
    length = len(text) if unit == "codepoints" else len(text.encode("utf-16-le")) // 2
    for i, (_, end) in enumerate(spans):
        if end > length:
            problem = f"without[{i}] ends at {end}; the text has {length} {UNIT_NAMES[unit]}"
            raise InvalidInput(problem, param=f"without[{i}]")


def check_heads(heads: Sequence[Head]) -> None:
    """Refuse heads that do not read texts with the same encoder in the same way."""
    if len(set(heads)) < len(heads):
        raise InvalidInput("a model is named twice", param="model")
    if len({head.encoder for head in heads}) > 1:
        raise InvalidInput("these models have different encoders: send a request for each", param="model")
    if len({head.fold_names for head in heads}) > 1:
        raise InvalidInput("these models read names differently: send a request for each", param="model")


def raise_first(results: Results) -> list[list[Answer]]:
    """Return the results; raise the first error among them."""
    for result in results:
        if isinstance(result, Exception):
            try:
                raise result
            finally:  # subtle: breaks a cycle of the error and this function, which holds the whole request
                del result, results
    return cast("list[list[Answer]]", results)


def select_searches(body: ClassifyRequest) -> dict[str, Callable[[ClassificationTask], Search]]:
    """Return the requested searches, by the field of the answer."""
    searches = {"flip": find_counterfactual, "sufficient": find_sufficient}
    return {name: find for name, find in searches.items() if getattr(body, name)}


async def add_searches(
    task: ClassificationTask,
    answers: Sequence[Answer],
    searches: Mapping[str, Callable[[ClassificationTask], Search]],
    run: RunTasks,
) -> None:
    """Add the result of each search to each model's answer."""
    for head, answer in zip(task.options.heads, answers, strict=True):
        single = ClassificationTask(task.text, replace(task.options, heads=(head,)), task.without)
        for name, find in searches.items():
            search = find(single)
            tasks = next(search)
            while name not in answer:
                try:
                    tasks = search.send([result for (result,) in raise_first(await run(tasks))])
                except StopIteration as stop:
                    answer[name] = stop.value


def build_document(model: str | list[str], heads: Sequence[Head], results: Sequence[list[Answer]]) -> Answer:
    """Return the document without its id; `model` is the model, or the list of models, of the request."""
    versions = [head.version for head in heads]
    data: list[Answer] = [
        {"index": i, **answers[0]}
        if isinstance(model, str)
        else {"index": i, "answers": dict(zip(model, answers, strict=True))}
        for i, answers in enumerate(results)
    ]
    tokens = sum([answers[0]["n_tokens"] for answers in results])
    return {
        "model": model,
        "model_version": versions[0] if isinstance(model, str) else versions,
        "usage": {"texts": len(data), "tokens": tokens},
        "data": data,
    }
