"""The operations of the API as blocking methods: the common interface of `Client` and `Local`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, TypedDict, Unpack, overload

from hardmax import operations
from hardmax.answers import Answer, Answers, CloudRun
from hardmax.models import (
    ControlResponse,
    Explain,
    Include,
    Info,
    ModelCard,
    OffsetUnit,
    SequenceLabel,
    Stop,
)
from hardmax.operations import TEXTS_PER_REQUEST, ApiRequest, ErrorHandling, run_sync


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

    @overload
    def classify(self, texts: str, **options: Unpack[ClassifyOptions]) -> Answer: ...
    @overload
    def classify(self, texts: Iterable[Any], **options: Unpack[ClassifyOptions]) -> Answers: ...
    def classify(
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

        Many texts may be a list, a column of a table or a generator. They are sent in batches.

        Args:
            texts: One text, or an iterable of texts.
            model: The name of a model, or several names; the server's default model if None.
            explain: How much of the reason to return: "none", "leaders" or "full".
            trajectory: Return the position of every word at every layer.
            truncate: Cut texts that are too long instead of refusing them.
            offset_unit: The unit of character offsets: "codepoints" or "utf16".
            without: Character spans of one text to leave out.
            flip: Search for a smallest set of words whose removal changes the label.
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
        operation = operations.classify(
            self._send, texts, options, errors=errors, batch_size=batch_size, progress=progress
        )
        return run_sync(operation)

    def dynamics(
        self,
        points: Any,
        *,
        alpha: float = 1.0,
        A: Any = None,
        max_layers: int | None = None,
        stop: Stop | None = None,
        tolerance: float = 1e-9,
        tie_tolerance: float = 0.0,
        include: Sequence[Include] = ("assignment",),
        trajectory_every: int = 1,
        temperature: float | None = None,
    ) -> CloudRun:
        """Run a cloud of points through hardmax attention layers to its limits.

        Args:
            points: The cloud, an array of shape (n, d) of finite numbers.
            alpha: The step size, above 0.
            A: A symmetric positive definite matrix of shape (d, d); the identity if None.
            max_layers: Layers to run at most; 1000, or the server's limit, if None.
            stop: When to stop: "certified", "converged" or "never". None is "certified", or with a
                trajectory "converged".
            tolerance: The distance to its limit at which a point counts as converged.
            tie_tolerance: The relative gap below which two scores tie.
            include: Further parts of the answer, such as "limits" or "trajectory".
            trajectory_every: Keep every n-th layer of the trajectory.
            temperature: With "softmax" in include, the temperature of softmax attention.

        Returns:
            The run with its leaders, clusters and, if it was proved, its certificate.

        Raises:
            InputError: The points or an option are wrong; `param` names the place.
            CapacityError: The server is overloaded, not ready, or out of time.
            RemoteError: The server failed, or did not answer.
        """
        request = operations.dynamics_request(
            points, alpha=alpha, A=A, max_layers=max_layers, stop=stop, tolerance=tolerance,
            tie_tolerance=tie_tolerance, include=include, trajectory_every=trajectory_every,
            temperature=temperature,
        )  # fmt: skip
        return run_sync(operations.dynamics(self._send, request))

    def control(
        self,
        points: Any,
        *,
        assignment: Mapping[int, int] | None = None,
        leaders: Sequence[int] | None = None,
    ) -> ControlResponse:
        """Find a matrix A under which chosen points lead, or prove that there is none.

        Args:
            points: The cloud, an array of shape (n, d) of finite numbers.
            assignment: The leader requested for each token, by index.
            leaders: The points requested as leaders, by index.

        Returns:
            The matrix with its margin, or the certificate that no matrix exists.

        Raises:
            InputError: The points or the request are wrong; `param` names the place.
            CapacityError: The server is overloaded, not ready, or out of time.
            RemoteError: The server failed, or did not answer.
        """
        return run_sync(operations.control(self._send, points, assignment, leaders))

    def classify_sequences(self, model: str, sequences: Iterable[Any]) -> list[SequenceLabel]:
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
        return run_sync(operations.classify_sequences(self._send, model, sequences))

    def models(self) -> list[ModelCard]:
        """List the models with their cards.

        Returns:
            One card for each model.

        Raises:
            RemoteError: The server failed, or did not answer.
        """
        return run_sync(operations.models(self._send))

    def info(self) -> Info:
        """Return version, provider and limits of the service.

        Returns:
            The description of the service.

        Raises:
            RemoteError: The server failed, or did not answer.
        """
        return run_sync(operations.info(self._send))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
