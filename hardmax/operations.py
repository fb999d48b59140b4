"""The requests of the operations in `api.py`, and texts in batches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from hardmax.answers import Answer, Answers
from hardmax.errors import InputError, InvalidInput, TooLarge
from hardmax.models.clouds import Include, Stop
from hardmax.progress import Progress

TEXTS_PER_REQUEST = 256  # texts in one request
SEARCHED_TEXTS_PER_REQUEST = 16  # with flip or sufficient: the maximum of a server
EXPLAINED_TEXTS_PER_REQUEST = 64  # with full explanations or trajectories: the maximum of a server
# Characters in one request: below the 4 MB of JSON that a server accepts, however they are escaped.
BATCH_CHARS = 500_000
SEQUENCES_PER_REQUEST, NUMBERS_PER_REQUEST = 1_024, 100_000
# Options with these values are not sent.
SERVER_DEFAULTS = {
    "trajectory": False,
    "truncate": True,
    "offset_unit": "codepoints",
    "flip": False,
    "sufficient": False,
}

MISSING_TYPES = ("NAType", "NaTType")  # of pandas, which need not be installed

ErrorHandling = Literal["raise", "keep"]
T = TypeVar("T")


@dataclass(frozen=True)
class ApiRequest:
    """A request to a route: POST with a body, GET without."""

    path: str
    body: dict[str, Any] | None = None
    points: NDArray[Any] | None = None  # a cloud, separate from the body
    sweep: tuple[dict[str, Any], ...] = ()  # fields of several runs in place of those of the body


Send = Callable[[ApiRequest], Awaitable[Any]]


def run_sync(operation: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, and return its result."""
    try:
        operation.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("this coroutine suspends")


# ---------------------------------------- texts


async def classify(
    send: Send,
    texts: str | Iterable[Any],
    options: dict[str, Any],
    *,
    errors: ErrorHandling,
    batch_size: int,
    progress: bool | None,
) -> Answer | Answers:
    """Classify one text, or many in batches."""
    if errors not in ("raise", "keep"):
        raise InvalidInput(f'errors should be "raise" or "keep", not {errors!r}', param="errors")
    body = _classify_body(options)
    keep = errors == "keep"
    if isinstance(texts, str):
        return await _classify_one(send, texts, body, keep)
    texts_list = _as_list(texts)
    answered = [i for i, text in enumerate(texts_list) if not is_blank(text)]
    if options["explain"] == "full" or options["trajectory"]:
        batch_size = min(batch_size, EXPLAINED_TEXTS_PER_REQUEST)
    if options["flip"] or options["sufficient"]:
        batch_size = min(batch_size, SEARCHED_TEXTS_PER_REQUEST)
    answers = Answers(offset_unit=options["offset_unit"], series=texts if hasattr(texts, "iloc") else None)
    with Progress(enabled=progress) as progress_line:
        try:
            for batch in _batches([texts_list[i] for i in answered], batch_size):
                await _classify_batch(send, batch, answers, body, keep)
                progress_line.count(len(answers), len(texts_list), "texts")
        except InputError as error:
            index = error.index if str(error.param).startswith("input[") else None
            if index is not None and index < len(answered):
                error.shift_index(answered[index] - index)
            raise
    if len(answered) < len(texts_list):
        answers.insert_empty(texts_list, answered)
    return answers


def _classify_body(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that differ from the server's defaults, as JSON values."""
    body = {name: value for name, value in options.items() if value is not None}
    if not isinstance(body.get("model", ""), str):
        body["model"] = list(body["model"])
    if "without" in body:
        body["without"] = [_as_python(span) for span in body["without"]]
    return {name: value for name, value in body.items() if value != SERVER_DEFAULTS.get(name)}


async def _classify_one(send: Send, text: str, body: dict[str, Any], keep: bool) -> Answer:
    if is_blank(text):
        return Answer.of_empty(text, 0)
    answers = Answers(offset_unit=body.get("offset_unit", "codepoints"))
    try:
        _check_text(text, "input")
        answers.add(await send(ApiRequest("classify", {"input": text, **body})), [text])
    except InputError as error:
        if not keep or _failed_text_index(error, 1) is None:
            raise
        return Answer.of_error(error, text, 0)
    return answers[0]


async def _classify_batch(
    send: Send, texts: list[Any], answers: Answers, body: dict[str, Any], keep: bool
) -> None:
    """Append the answers to these texts. If one is refused, send the others again."""
    while texts:
        try:
            for i, text in enumerate(texts):
                _check_text(text, f"input[{i}]")
            answers.add(await send(ApiRequest("classify", {"input": texts, **body})), texts)
            return
        except InputError as error:
            index = _failed_text_index(error, len(texts))
            if index is not None and index < len(texts) and keep:
                await _classify_batch(send, texts[:index], answers, body, keep)
                error.shift_index(len(answers) - index)
                answers.append(Answer.of_error(error, texts[index], len(answers)))
                texts = texts[index + 1 :]
            elif index is None and len(texts) > 1 and isinstance(error, TooLarge):
                half = len(texts) // 2
                await _classify_batch(send, texts[:half], answers, body, keep)
                texts = texts[half:]
            else:
                if index is not None:
                    error.shift_index(len(answers))
                raise


def _failed_text_index(error: InputError, count: int) -> int | None:
    """Return the index of the text that caused the error; None for any other part of the request."""
    if str(error.param).startswith("input["):
        return error.index
    body_too_large = isinstance(error, TooLarge) and error.param is None
    return 0 if count == 1 and (error.param == "input" or body_too_large) else None


def is_blank(text: Any) -> bool:
    """Return whether a value is a text without a letter or mark, or a missing value of a table."""
    if isinstance(text, str):
        return not text.strip()
    return text is None or (isinstance(text, float) and text != text) or type(text).__name__ in MISSING_TYPES


def _check_text(text: Any, param: str) -> None:
    """Refuse a value that is not a text, which is common in tables, before it is sent."""
    if not isinstance(text, str):
        raise InvalidInput(f"this should be a string, not {type(text).__name__}", param=param)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput("the text contains half a character: a lone surrogate", param=param) from None


def _as_list(texts: Any) -> list[Any]:
    if isinstance(texts, Mapping | bytes) or hasattr(texts, "columns") or not isinstance(texts, Iterable):
        kind = type(texts).__name__
        raise InvalidInput(f"expected a text or many, not {kind}; of a table give one column", param="input")
    return texts.to_pylist() if hasattr(texts, "to_pylist") else list(texts)  # a column of pyarrow


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


def dynamics_request(
    points: Any,
    *,
    alpha: float | Sequence[float] = 1.0,
    A: Any = None,
    max_layers: int | None = None,
    stop: Stop | None = None,
    tolerance: float = 1e-9,
    include: Sequence[Include] = ("assignment",),
    trajectory_every: int = 1,
    temperature: float | None = None,
) -> ApiRequest:
    """Return the request that runs a cloud to its limits; several runs if alpha or A is a list of them."""
    steps = _as_python(_as_list_of(alpha, 1, "alpha"))
    matrices = [None if M is None else _as_numbers(M, "A").tolist() for M in _as_list_of(A, 3, "A")]
    fields = {
        "alpha": steps[0],
        "A": matrices[0],
        "max_layers": max_layers,
        "stop": stop,
        "tolerance": tolerance,
        "include": list(include),
        "trajectory_every": trajectory_every,
        "temperature": temperature,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    body = dict(zip(given, _as_python(given.values()), strict=True))
    runs = [{"alpha": a} | ({} if M is None else {"A": M}) for a in steps for M in matrices]
    is_sweep = _has_dimension(alpha, 1) or _has_dimension(A, 3)
    return ApiRequest("dynamics", body, _as_numbers(points, "points"), tuple(runs) if is_sweep else ())


def _as_list_of(value: Any, ndim: int, name: str) -> list[Any]:
    """Return the values of a sweep, an array of so many dimensions; one value as a list of one."""
    values = list(value) if _has_dimension(value, ndim) else [value]
    if not values:
        raise InvalidInput(f"{name} is an empty list", param=name)
    return values


def _has_dimension(value: Any, ndim: int) -> bool:
    try:
        return np.ndim(value) == ndim
    except ValueError:  # rows of several lengths
        return False


def control_request(
    points: Any,
    *,
    assignment: Mapping[int, int] | None = None,
    leaders: Sequence[int] | None = None,
) -> ApiRequest:
    """Return the request for a matrix A under which the requested leaders or assignment hold."""
    body: dict[str, Any] = {"points": _as_numbers(points, "points").tolist()}
    if assignment is not None:
        body["assignment"] = dict(zip(map(str, assignment), _as_python(assignment.values()), strict=True))
    if leaders is not None:
        body["leaders"] = _as_python(leaders)
    return ApiRequest("control", body)


def sequences_request(model: str, sequences: Iterable[Any]) -> ApiRequest:
    """Return the request that classifies sequences of points with an exact model."""
    points = [_as_numbers(rows, f"sequences[{i}]").tolist() for i, rows in enumerate(sequences)]
    return ApiRequest("sequences/classify", {"model": model, "sequences": points})


def split_sequences(request: ApiRequest) -> Iterator[ApiRequest]:
    """Split a request into requests of a size that a server accepts."""
    body = request.body or {}
    batch: list[Any] = []
    numbers = 0
    for points in body["sequences"]:
        size = np.size(points)
        if batch and (len(batch) == SEQUENCES_PER_REQUEST or numbers + size > NUMBERS_PER_REQUEST):
            yield ApiRequest(request.path, {**body, "sequences": batch})
            batch, numbers = [], 0
        batch.append(points)
        numbers += size
    yield ApiRequest(request.path, {**body, "sequences": batch})


def _as_python(values: Iterable[Any]) -> list[Any]:
    """Return numpy numbers as Python numbers, for JSON."""
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def _as_numbers(values: Any, name: str) -> NDArray[Any]:
    """Return an array of finite float32 or float64 numbers; float32 stays float32."""
    try:
        array = np.asarray(values)
        if array.dtype.kind == "c" or (array.dtype.kind == "f" and array.dtype.itemsize > 8):
            raise TypeError(f"these are of type {array.dtype}")
        numbers = array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"{name}: rows of numbers, as many in each: {error}", param=name) from None
    finite = np.isfinite(numbers)
    if not finite.all():
        param = name + "".join(f"[{i}]" for i in np.argwhere(~finite)[0])
        raise InvalidInput(f"{param} is not a finite number", param=param)
    for index in np.argwhere(np.abs(numbers) >= 2.0**53) if array.dtype.kind in "iuO" else ():
        if int(array[tuple(index)]) != int(numbers[tuple(index)]):
            param = name + "".join(f"[{i}]" for i in index)
            raise InvalidInput(f"{param} has more digits than double precision holds", param=param)
    return numbers
