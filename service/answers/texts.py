"""POST /classify as documents: what a request asks for, and how answers to texts are put together."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from hardmax.models import OffsetUnit
from service.errors import InvalidInput, TooLarge
from service.runtime.bundle import HEAD
from service.schemas.requests import ClassifyRequest
from service.settings import Settings
from service.text.counterfactual import MAX_SEARCHED_TEXTS, Search, find_counterfactual, find_sufficient
from service.text.head import Head
from service.text.pipeline import (
    Answer,
    ClassificationTask,
    ClassifyOptions,
    Span,
    make_tasks,
    merge_spans,
    to_codepoints,
)

Find = Callable[[str, str], Any]  # the model of a name and a kind
UNIT_NAMES = {"codepoints": "code points", "utf16": "UTF-16 units"}
Results = Sequence[list[Answer] | Exception]
Read = Callable[[Sequence[ClassificationTask]], Awaitable[Results]]  # what comes of texts that are read


def texts_asked(body: ClassifyRequest, find: Find, settings: Settings) -> list[ClassificationTask]:
    """The texts to read, and how to answer them."""
    if body.trajectory and body.explain != "full":
        raise InvalidInput('trajectory needs "explain": "full"', param="trajectory")
    count = 1 if isinstance(body.input, str) else len(body.input)
    if body.without and count != 1:
        raise InvalidInput("without goes with one text", param="without")
    for place, (begin, end) in enumerate(body.without):
        if begin >= end:
            problem = f"without[{place}] should be [from, to], and to the larger"
            raise InvalidInput(problem, param=f"without[{place}]")
    if count > MAX_SEARCHED_TEXTS and (searches := searches_of(body)):
        name = next(iter(searches))
        raise InvalidInput(f"{name} goes with {MAX_SEARCHED_TEXTS} texts at most", param=name)
    names = body.model or settings.default_model
    heads = heads_of(find, [names] if isinstance(names, str) else names)
    how = ClassifyOptions(heads, body.explain, body.trajectory, body.truncate, body.offset_unit)
    texts = texts_within(body.input, how, settings)
    if body.without:
        spans = [(begin, end) for begin, end in body.without]
        check_spans(spans, texts[0].text, body.offset_unit)
        texts[0].without = merge_spans(to_codepoints(texts[0].text, spans, body.offset_unit))
    return texts


def check_spans(spans: Sequence[Span], text: str, unit: OffsetUnit) -> None:
    """Refuse spans that end after the text.

    Raises:
        InvalidInput: It names the span and the length of the text.
    """
    length = len(text) if unit == "codepoints" else len(text.encode("utf-16-le")) // 2
    for place, (_, end) in enumerate(spans):
        if end > length:
            problem = f"without[{place}] ends at {end}; the text has {length} {UNIT_NAMES[unit]}"
            raise InvalidInput(problem, param=f"without[{place}]")


def heads_of(find: Find, names: Sequence[str]) -> tuple[Head, ...]:
    """The models of those names, which must all stand on one reader."""
    heads = tuple(find(name, HEAD) for name in names)
    if len(set(heads)) < len(heads):
        raise InvalidInput("a model is named twice", param="model")
    if len({id(head.encoder) for head in heads}) > 1:
        raise InvalidInput("these models stand on several readers: ask for each alone", param="model")
    return heads


def texts_within(
    inputs: str | Sequence[str], how: ClassifyOptions, settings: Settings, param: str = "input"
) -> list[ClassificationTask]:
    """The texts of a request, unless they are too many or one is too long."""
    if not isinstance(inputs, str) and len(inputs) > settings.max_client_batch_size:
        problem = f"more than {settings.max_client_batch_size} texts (MAX_CLIENT_BATCH_SIZE)"
        raise TooLarge(problem, param=param)
    texts = make_tasks(inputs, how, param, settings.max_text_chars)
    if not texts:
        raise InvalidInput(f"{param} is empty", param=param)
    return texts


def raise_first(results: Results) -> list[list[Answer]]:
    """The results, unless one is an error."""
    for result in results:
        if isinstance(result, Exception):
            try:
                raise result
            finally:  # subtle: it holds this function, which would hold it, and with it the whole request
                del result, results
    return cast("list[list[Answer]]", results)


def searches_of(body: ClassifyRequest) -> dict[str, Callable[[ClassificationTask], Search]]:
    """The searches that a request asks for, by the field of the answer."""
    searches = {"flip": find_counterfactual, "sufficient": find_sufficient}
    return {name: find for name, find in searches.items() if getattr(body, name)}


async def add_searches(
    task: ClassificationTask,
    answers: Sequence[Answer],
    searches: Mapping[str, Callable[[ClassificationTask], Search]],
    read: Read,
) -> None:
    """Add the result of each search to each model's answer."""
    for head, answer in zip(task.options.heads, answers, strict=True):
        alone = ClassificationTask(task.text, replace(task.options, heads=(head,)), task.without)
        for name, find in searches.items():
            search = find(alone)
            tasks = next(search)
            while name not in answer:
                try:
                    tasks = search.send([each for (each,) in raise_first(await read(tasks))])
                except StopIteration as end:
                    answer[name] = end.value


def classification(asked: str | list[str], results: Sequence[list[Answer]]) -> Answer:
    """The document, without its id. `asked` is the model, or those that answer each text."""
    data: list[Answer] = [
        {"index": i, **answers[0]}
        if isinstance(asked, str)
        else {"index": i, "answers": dict(zip(asked, answers, strict=True))}
        for i, answers in enumerate(results)
    ]
    tokens = sum([answers[0]["n_tokens"] for answers in results])
    return {"model": asked, "usage": {"texts": len(data), "tokens": tokens}, "data": data}
