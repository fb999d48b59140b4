"""Every call of the API, written once: what is asked, and what becomes of the answers.

A call is a coroutine that asks questions by the function it is given. So it does not know how they travel:
`AsyncClient` and `Client` send them over HTTP, `Local` answers them in this process. The last two give it a
function that never suspends: then the coroutine ends in one step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypedDict, TypeVar, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from hardmax.answers import Answer, Answers, CloudRun
from hardmax.documents import (
    ControlResponse,
    Explain,
    Include,
    Info,
    ModelCard,
    ModelList,
    SequenceLabel,
    SequencesResponse,
    Spans,
    Stop,
)
from hardmax.errors import InputError, InvalidInput, TooLarge
from hardmax.reading import read

BATCH = 256  # texts in one question
# Characters of these texts: far below the 16 MB of JSON that a server reads, however they are written.
BATCH_CHARS = 2_000_000

Errors = Literal["raise", "keep"]
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Question:
    """To a route: with a body, which is posted, or without."""

    path: str
    body: dict[str, Any] | None = None
    points: NDArray[Any] | None = None  # a cloud, apart from the body


Ask = Callable[[Question], Awaitable[Any]]


# ---------------------------------------- texts


class TextOptions(TypedDict, total=False):
    """The options of `classify`, for type checkers: its two forms have the same."""

    model: str | Sequence[str] | None
    explain: Explain
    trajectory: bool
    truncate: bool
    spans: Spans
    without: Sequence[tuple[int, int]] | None
    flip: bool
    errors: Errors
    batch_size: int


@overload
async def classify(ask: Ask, texts: str, **options: Unpack[TextOptions]) -> Answer: ...
@overload
async def classify(ask: Ask, texts: Iterable[Any], **options: Unpack[TextOptions]) -> Answers: ...
async def classify(
    ask: Ask,
    texts: str | Iterable[Any],
    *,
    model: str | Sequence[str] | None = None,
    explain: Explain = "leaders",
    trajectory: bool = False,
    truncate: bool = True,
    spans: Spans = "codepoints",
    without: Sequence[tuple[int, int]] | None = None,
    flip: bool = False,
    errors: Errors = "raise",
    batch_size: int = BATCH,
) -> Answer | Answers:
    """The label of each text with its exact reason: an Answer to one text, Answers to many.

    Many may be a list, a column of a table or a generator. They travel in batches. One that has no answer
    raises its error, which says which it is; with errors="keep" its Answer has the error, and the others have
    their labels. What is wrong with an option is raised all the same. `without` leaves out these spans of one
    text; `flip` asks for the words without which the label would change.
    """
    if errors not in ("raise", "keep"):
        raise InvalidInput(f'errors should be "raise" or "keep", not {errors!r}', param="errors")
    given: dict[str, Any] = {
        "model": model if model is None or isinstance(model, str) else list(model),
        "explain": explain,
        "trajectory": trajectory or None,
        "truncate": None if truncate else False,
        "spans": None if spans == "codepoints" else spans,
        "without": None if without is None else [list(span) for span in without],
        "flip": flip or None,
    }
    options = {name: value for name, value in given.items() if value is not None}
    if isinstance(texts, str):
        return await _one(ask, texts, options, errors == "keep")
    answers = Answers(spans=spans)
    for batch in _batches(_listed(texts), batch_size):
        await _add(ask, batch, answers, options, errors == "keep")
    return answers


async def _one(ask: Ask, text: str, options: dict[str, Any], keep: bool) -> Answer:
    answers = Answers(spans=options.get("spans", "codepoints"))
    try:
        _check(text, "input")
        answers.add(await ask(Question("classify", {"input": text, **options})), [text])
    except InputError as refused:
        if not keep or _text_at_fault(refused, 1) is None:
            raise
        return Answer.refused(refused, text, 0)
    return answers[0]


async def _add(ask: Ask, texts: list[Any], answers: Answers, options: dict[str, Any], keep: bool) -> None:
    """Ask for these texts. Where one is at fault the others are asked again without it."""
    while texts:
        try:
            for place, text in enumerate(texts):
                _check(text, f"input[{place}]")
            answers.add(await ask(Question("classify", {"input": texts, **options})), texts)
            return
        except InputError as refused:
            at = _text_at_fault(refused, len(texts))
            if at is not None and at < len(texts) and keep:
                await _add(ask, texts[:at], answers, options, keep)
                refused.count_from(len(answers) - at)
                answers.append(Answer.refused(refused, texts[at], len(answers)))
                texts = texts[at + 1 :]
            elif at is None and len(texts) > 1 and isinstance(refused, TooLarge):
                half = len(texts) // 2
                await _add(ask, texts[:half], answers, options, keep)
                texts = texts[half:]
            else:
                if at is not None:
                    refused.count_from(len(answers))
                raise


def _text_at_fault(refused: InputError, number: int) -> int | None:
    """Which of so many texts it is; None where an option is at fault, or no text alone."""
    if str(refused.param).startswith("input["):
        return refused.index
    too_long = isinstance(refused, TooLarge) and refused.param is None  # its body is over a limit
    return 0 if number == 1 and (refused.param == "input" or too_long) else None


def _check(text: Any, place: str) -> None:
    """Refuse what is no text before it travels: it is common in tables, and not worth a request."""
    if text is None or (isinstance(text, float) and text != text):
        raise InvalidInput("there is no text", param=place)
    if not isinstance(text, str):
        raise InvalidInput(f"this is no text but {type(text).__name__}", param=place)
    if not text.strip():
        raise InvalidInput("the text is empty", param=place)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput("the text holds half a character (a lone surrogate)", param=place) from None


def _listed(texts: Any) -> list[Any]:
    if isinstance(texts, Mapping | bytes) or hasattr(texts, "columns") or not isinstance(texts, Iterable):
        kind = type(texts).__name__
        raise InvalidInput(f"expected a text or many, not {kind}; of a table give one column", param="input")
    return list(texts)


def _batches(texts: list[Any], size: int) -> Iterator[list[Any]]:
    batch: list[Any] = []
    chars = 0
    for text in texts:
        length = len(text) if isinstance(text, str) else 0
        if batch and (len(batch) >= size or chars + length > BATCH_CHARS):
            yield batch
            batch, chars = [], 0
        batch.append(text)
        chars += length
    if batch:
        yield batch


# ---------------------------------------- clouds and sequences


def cloud(
    points: Any,
    *,
    alpha: float = 1.0,
    A: Any = None,
    max_layers: int | None = None,
    stop: Stop = "certified",
    tolerance: float = 1e-9,
    tie_tolerance: float = 0.0,
    include: Sequence[Include] = ("assignment",),
    trajectory_every: int = 1,
) -> Question:
    """A cloud run to its limits. Without A, a symmetric positive definite matrix, it is the identity; without
    `max_layers` there are 1000, or as many as the server allows.
    """
    body = {
        "alpha": alpha,
        "A": None if A is None else _numbers(A, "A").tolist(),
        "max_layers": max_layers,
        "stop": stop,
        "tolerance": tolerance,
        "tie_tolerance": tie_tolerance,
        "include": list(include),
        "trajectory_every": trajectory_every,
    }
    given = {name: value for name, value in body.items() if value is not None}
    return Question("dynamics", given, _numbers(points, "points"))


def _run(question: Callable[P, Question]) -> Callable[Concatenate[Ask, P], Coroutine[Any, Any, CloudRun]]:
    """The call that asks it, with its words and parameters."""

    @wraps(question)
    async def dynamics(ask: Ask, /, *arguments: P.args, **options: P.kwargs) -> CloudRun:
        asked = question(*arguments, **options)
        return read(CloudRun, await ask(asked), points=asked.points)

    return dynamics


dynamics = _run(cloud)


async def control(
    ask: Ask,
    points: Any,
    *,
    assignment: Mapping[int, int] | None = None,
    leaders: Sequence[int] | None = None,
) -> ControlResponse:
    """A matrix A under which the wish comes true, or why none does."""
    body: dict[str, Any] = {"points": _numbers(points, "points").tolist()}
    if assignment is not None:
        body["assignment"] = dict(zip(map(str, assignment), _plain(assignment.values()), strict=True))
    if leaders is not None:
        body["leaders"] = _plain(leaders)
    return read(ControlResponse, await ask(Question("control", body)))


async def classify_sequences(ask: Ask, model: str, sequences: Iterable[Any]) -> list[SequenceLabel]:
    """The label, margin and leader of each sequence by an exact model."""
    listed = [_numbers(each, f"sequences[{i}]").tolist() for i, each in enumerate(sequences)]
    document = await ask(Question("sequences/classify", {"model": model, "sequences": listed}))
    return read(SequencesResponse, document).data


def _plain(indices: Iterable[Any]) -> list[Any]:
    """Numbers of numpy as Python's own, which JSON can hold."""
    return [each.item() if isinstance(each, np.generic) else each for each in indices]


def _numbers(values: Any, name: str) -> NDArray[Any]:
    """As an array of the numbers' own kind: 32 bits stay 32. All are finite: JSON has no others."""
    try:
        numbers = np.asarray(values)
        if np.iscomplexobj(numbers):
            raise TypeError("these are complex")
        numbers = numbers if numbers.dtype in (np.float32, np.float64) else numbers.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as refused:
        raise InvalidInput(f"{name}: rows of numbers, as many in each: {refused}", param=name) from None
    finite = np.isfinite(numbers)
    if not finite.all():
        place = name + "".join(f"[{i}]" for i in np.argwhere(~finite)[0])
        raise InvalidInput(f"{place} is not a finite number", param=place)
    return numbers


# ---------------------------------------- the service


async def models(ask: Ask) -> list[ModelCard]:
    """The cards of the models being served."""
    return read(ModelList, await ask(Question("models"))).models


async def info(ask: Ask) -> Info:
    """Version, providers and limits of the service."""
    return read(Info, await ask(Question("info")))


# ---------------------------------------- calls that wait


def _waiting(
    call: Callable[Concatenate[Ask, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Calls, P], T]:
    """The call as a method that waits for its answers."""

    def method(self: Calls, /, *arguments: P.args, **options: P.kwargs) -> T:
        async def ask(question: Question) -> Any:
            return self.answer(question)

        return ended(call(ask, *arguments, **options))

    return as_method(call, method)


def ended(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that never suspends."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("this coroutine suspends")


def as_method(call: Callable[..., Any], method: T, doc: str | None = None) -> T:
    """The method with the call's words and parameters, for `help`."""
    own = signature(call)
    asked = [each for name, each in own.parameters.items() if name != "ask"]
    parameters = [Parameter("self", Parameter.POSITIONAL_ONLY), *asked]
    shown = own.replace(parameters=parameters, return_annotation=Signature.empty)
    vars(method).update(__doc__=doc or call.__doc__, __signature__=shown)
    return method


class Calls(ABC):
    """Every call, waiting for its answers. A context manager that closes what it holds."""

    classify = _waiting(classify)
    dynamics = _waiting(dynamics)
    control = _waiting(control)
    classify_sequences = _waiting(classify_sequences)
    models = _waiting(models)
    info = _waiting(info)

    @abstractmethod
    def answer(self, question: Question) -> Any:
        """The document that answers a question; an error is raised."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()
