"""The operations of the API, written once for blocking programs and for asyncio.

`AsyncApi` has them as coroutines, independent of the transport: they send with `_send`. `Api` has the same
methods, blocking: its `_send` never suspends, so each coroutine runs to its end in one step.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypedDict, TypeVar, Unpack, overload

from hardmax import operations
from hardmax.answers import Answer, Answers, CloudRun
from hardmax.errors import InputError, UnexpectedAnswer
from hardmax.models.clouds import ControlResponse
from hardmax.models.document import parse_document
from hardmax.models.sequences import SequenceLabel, SequencesResponse
from hardmax.models.service import Info, ModelCard, ModelList
from hardmax.models.texts import Explain, OffsetUnit
from hardmax.operations import TEXTS_PER_REQUEST, ApiRequest, ErrorHandling, run_sync

P = ParamSpec("P")
T = TypeVar("T")


class ClassifyOptions(TypedDict, total=False):
    """The options of `classify`, for the type signatures of its two forms."""

    model: str | Sequence[str] | None
    explain: Explain
    trajectory: bool
    truncate: bool
    offset_unit: OffsetUnit
    without: Sequence[tuple[int, int]] | None
    flip: bool
    sufficient: bool
    errors: ErrorHandling
    batch_size: int
    progress: bool | None


def takes_parameters_of(
    build: Callable[P, ApiRequest],
) -> Callable[[Callable[[Any, ApiRequest], T]], Callable[Concatenate[Any, P], T]]:
    """Give a method, which sends a request, the parameters of the function that builds the request."""

    def decorate(send: Callable[[Any, ApiRequest], T]) -> Callable[Concatenate[Any, P], T]:
        @wraps(send)
        def method(self: Any, /, *args: P.args, **options: P.kwargs) -> T:
            return send(self, build(*args, **options))

        signature, built = inspect.signature(send), inspect.signature(build)
        parameters = [signature.parameters["self"], *built.parameters.values()]
        method.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return method

    return decorate


def make_blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Return a method of `AsyncApi` as a blocking method."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **options: P.kwargs) -> T:
        return run_sync(method(self, *args, **options))

    return call


class AsyncApi(ABC):
    """Every operation as a coroutine."""

    @abstractmethod
    async def _send(self, request: ApiRequest) -> Any:
        """Send one request and return the JSON document of its answer."""

    @overload
    async def classify(self, texts: str, **options: Unpack[ClassifyOptions]) -> Answer: ...
    @overload
    async def classify(self, texts: Iterable[Any], **options: Unpack[ClassifyOptions]) -> Answers: ...
    async def classify(
        self,
        texts: str | Iterable[Any],
        *,
        model: str | Sequence[str] | None = None,
        explain: Explain = "leaders",
        trajectory: bool = False,
        truncate: bool = True,
        offset_unit: OffsetUnit = "codepoints",
        without: Sequence[tuple[int, int]] | None = None,
        flip: bool = False,
        sufficient: bool = False,
        errors: ErrorHandling = "raise",
        batch_size: int = TEXTS_PER_REQUEST,
        progress: bool | None = None,
    ) -> Answer | Answers:
        """Classify one text, or many, with the exact reason for each label.

        Many texts may be a list, a column of a table or a generator. They are sent in batches. A blank text
        or a missing value is not sent: its answer has no label, and the `abstain_reason` "empty".

        Args:
            texts: One text, or an iterable of texts.
            model: The name of a model, or several names; the server's default model if None.
            explain: How much of the reason to return: "none", "leaders" or "full".
            trajectory: Return the position of every word at every layer.
            truncate: Cut texts that are too long instead of refusing them.
            offset_unit: The unit of character offsets: "codepoints" or "utf16".
            without: Character spans of one text to leave out.
            flip: Search for a small set of words whose removal changes the label.
            sufficient: Search for a small set of words that alone gives the same label.
            errors: "raise" stops at the first text without an answer; "keep" stores the error in its
                `Answer` and classifies the others. Errors of an option are raised in either case.
            batch_size: Texts in one request.
            progress: Show progress; by default in terminals and notebooks, after the first second.

        Returns:
            An `Answer` for one text, `Answers` for many, in the order of the texts.

        Raises:
            InputError: A text or an option is wrong; `index` says which text.
            CapacityError: The server is overloaded, not ready, or out of time.
            RemoteError: The server failed, or did not answer.
        """
        options: dict[str, Any] = {
            "model": model, "explain": explain, "trajectory": trajectory, "truncate": truncate,
            "offset_unit": offset_unit, "without": without, "flip": flip,
            "sufficient": sufficient,
        }  # fmt: skip
        return await operations.classify(
            self._send, texts, options, errors=errors, batch_size=batch_size, progress=progress
        )

    @takes_parameters_of(operations.dynamics_request)
    async def dynamics(self, request: ApiRequest) -> Any:
        """Run a cloud of points through hardmax attention layers to its limits.

        Args:
            points: The cloud, an array of shape (n, d) of finite numbers.
            alpha: The step size, above 0; of a list of them each is run.
            A: A symmetric positive definite matrix of shape (d, d); the identity if None. Of a list of them,
                an array of shape (k, d, d), each is run with each alpha.
            max_layers: Layers to run at most; 1000, or the server's limit, if None.
            stop: When to stop: "certified", "converged" or "never". None is "certified", or with a
                trajectory "converged".
            tolerance: The distance to its target, relative to the longest point, at which a point counts as
                converged.
            include: Further parts of the answer, such as "limits" or "trajectory".
            trajectory_every: Keep every n-th layer of the trajectory.
            temperature: With "softmax" in include, the temperature of softmax attention.

        Returns:
            The `CloudRun` with its leaders, clusters and, if it was proved, its certificate. For a list a
            list of them: for the first alpha with each A, then the next.

        Raises:
            InputError: The points or an option are wrong; `param` names the field.
            CapacityError: The server is overloaded, not ready, or out of time.
            RemoteError: The server failed, or did not answer.
        """
        if not request.sweep:
            return parse_document(CloudRun, await self._send(request), points=request.points)
        bodies = [{**(request.body or {}), **fields} for fields in request.sweep]
        requests = [replace(request, body=body, sweep=()) for body in bodies]
        return [parse_document(CloudRun, await self._send(one), points=one.points) for one in requests]

    @takes_parameters_of(operations.control_request)
    async def control(self, request: ApiRequest) -> ControlResponse:
        """Find a matrix A under which chosen points lead, or prove that there is none.

        Args:
            points: The cloud, an array of shape (n, d) of finite numbers.
            assignment: The leader requested for each token, by index.
            leaders: The points requested as leaders, by index.

        Returns:
            The matrix with its margin, or the certificate that no matrix exists.

        Raises:
            InputError: The points or the request are wrong; `param` names the field.
            CapacityError: The server is overloaded, not ready, or out of time.
            RemoteError: The server failed, or did not answer.
        """
        return parse_document(ControlResponse, await self._send(request))

    @takes_parameters_of(operations.sequences_request)
    async def classify_sequences(self, request: ApiRequest) -> list[SequenceLabel]:
        """Classify sequences of points with an exact model.

        Args:
            model: The name of a model of kind "sequences".
            sequences: The sequences, each an array of shape (n, d) of finite numbers.

        Returns:
            The label, margin and leader of each sequence.

        Raises:
            InputError: The model or a sequence is wrong; `index` says which sequence.
            CapacityError: The server is overloaded, not ready, or out of time.
            RemoteError: The server failed, or did not answer.
        """
        labels: list[SequenceLabel] = []
        for part in operations.split_sequences(request):
            try:
                data = parse_document(SequencesResponse, await self._send(part)).data
            except InputError as error:
                error.shift_index(len(labels))
                raise
            if len(data) != len((part.body or {})["sequences"]):
                problem = "not a response of hardmax: data should have an entry for each sequence"
                raise UnexpectedAnswer(problem)
            labels += [label.model_copy(update={"index": label.index + len(labels)}) for label in data]
        return labels

    async def models(self) -> list[ModelCard]:
        """List the models with their cards.

        Returns:
            One card for each model.

        Raises:
            RemoteError: The server failed, or did not answer.
        """
        return parse_document(ModelList, await self._send(ApiRequest("models"))).models

    async def info(self) -> Info:
        """Return version, provider and limits of the service.

        Returns:
            The description of the service.

        Raises:
            RemoteError: The server failed, or did not answer.
        """
        return parse_document(Info, await self._send(ApiRequest("info")))


class Api(ABC):
    """Every operation, blocking. A context manager that releases its resources on exit."""

    @abstractmethod
    def send(self, request: ApiRequest) -> Any:
        """Send one request and return the JSON document of its answer.

        Raises:
            HardmaxError: The request was refused, or no answer came.
        """

    @abstractmethod
    def close(self) -> None:
        """Release connections and models."""

    async def _send(self, request: ApiRequest) -> Any:
        return self.send(request)

    if TYPE_CHECKING:  # a decorated method cannot have overloads

        @overload
        def classify(self, texts: str, **options: Unpack[ClassifyOptions]) -> Answer: ...
        @overload
        def classify(self, texts: Iterable[Any], **options: Unpack[ClassifyOptions]) -> Answers: ...
        def classify(self, texts: Any, **options: Any) -> Any: ...
    else:
        classify = make_blocking(AsyncApi.classify)
    dynamics = make_blocking(AsyncApi.dynamics)
    control = make_blocking(AsyncApi.control)
    classify_sequences = make_blocking(AsyncApi.classify_sequences)
    models = make_blocking(AsyncApi.models)
    info = make_blocking(AsyncApi.info)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
