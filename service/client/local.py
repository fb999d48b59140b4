"""The same methods as `client.Client`, without a server: models are loaded here when first needed.

For the command line and for notebooks. It runs one thing at a time; many at once is what the service is for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from service.client.answers import Answer, Answers, CloudRun, DynamicsOptions
from service.clouds.dynamics import Dynamics, Limits, Parameters, Result, Run
from service.engine.bundle import Bundle, find_bundles, read_bundle
from service.engine.lane import result_of
from service.engine.registry import settle_default
from service.engine.runtime import Runtime
from service.errors import InputError, InvalidInput, NotFound
from service.http.documents import Records
from service.http.routes.control import answer as control_answer
from service.http.routes.dynamics import answer as dynamics_answer
from service.schemas.clouds import ControlResponse
from service.schemas.operations import ModelCard
from service.schemas.sequences import SequenceLabel
from service.schemas.texts import Classification, Explain
from service.sequences.classifier import Sequences
from service.settings import Settings, load_settings
from service.texts.reader import Tokens
from service.texts.sentiment import Sentiment

TEXTS_AT_ONCE = 32


class Local:
    """Answers in this process. `on_progress` is told in words how long work goes on."""

    def __init__(
        self, settings: Settings | None = None, *, on_progress: Callable[[str], None] = lambda message: None
    ) -> None:
        self._settings = settle_default(settings or load_settings())
        self._runtime = Runtime(self._settings.provider, self._settings.intra_op_threads)
        self._models: dict[str, Any] = {}
        self._on_progress = on_progress

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._models.clear()

    def classify(
        self,
        texts: str | Sequence[str],
        *,
        model: str | None = None,
        explain: Explain = "leaders",
        trajectory: bool = False,
        truncate: bool = True,
    ) -> Answers:
        """The sentiment of each text with its exact reason."""
        name = model or self._settings.default_model
        sentiment: Sentiment = self._model(name, "sentiment")
        many = [texts] if isinstance(texts, str) else texts
        answers = Answers(name)
        for first in range(0, len(many), TEXTS_AT_ONCE):
            some = many[first : first + TEXTS_AT_ONCE]
            words = _read(sentiment, some, None if isinstance(texts, str) else first, truncate=truncate)
            found = sentiment.classify(words, explain, trajectory=trajectory)
            for text, answer in zip(some, found, strict=True):
                checked = Classification.model_validate({"index": 0, **answer})
                answers.append(Answer.to(text, checked, len(answers)))
        return answers

    def dynamics(self, points: Any, **options: Unpack[DynamicsOptions]) -> CloudRun:
        """A cloud run to its limits."""
        given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        A, include = given.pop("A", None), given.pop("include", ("assignment",))
        matrix = None if A is None else np.asarray(A, dtype=np.float64)
        parameters = Parameters(A=matrix, include=frozenset(include), **given)
        result = self._run(np.asarray(points, dtype=np.float64), parameters)
        answer = {"id": uuid4().hex, **_plain(dynamics_answer(result, include))}
        return CloudRun.model_validate(answer).of(points)

    def control(
        self,
        points: Any,
        *,
        assignment: Mapping[int, int] | None = None,
        leaders: Sequence[int] | None = None,
    ) -> ControlResponse:
        """A matrix A under which the wish comes true, or why none does."""
        from service.clouds.control import control

        if (assignment is None) == (leaders is None):
            raise InvalidInput("give either assignment or leaders", param="assignment")

        def run(points: NDArray[np.float64], A: NDArray[np.float64]) -> Run:
            dynamics: Dynamics = self._model("dynamics", "dynamics")
            return dynamics.start(points, Parameters(A=A, tie_tolerance=0))

        cloud = np.asarray(points, dtype=np.float64)
        found = result_of(control(cloud, assignment, leaders, run, self._settings.request_timeout_s))
        return ControlResponse.model_validate({"id": uuid4().hex, **_plain(control_answer(found))})

    def classify_sequences(self, model: str, sequences: Sequence[Any]) -> list[SequenceLabel]:
        """The label, margin and leader of each sequence by an exact model."""
        classifier: Sequences = self._model(model, "sequences")
        arrays = [np.asarray(sequence, dtype=np.float64) for sequence in sequences]
        labels = classifier.classify(arrays)
        return [SequenceLabel.model_validate({"index": i, **label}) for i, label in enumerate(labels)]

    def models(self) -> list[ModelCard]:
        """The cards of the models, bundled and of MODELS_DIR."""
        default = self._settings.default_model
        bundles = find_bundles(self._settings.model_folders)
        cards = (read_bundle(folder).card for folder in bundles.values())
        return [ModelCard.model_validate({**card, "default": card["name"] == default}) for card in cards]

    def _run(self, points: NDArray[np.float64], parameters: Parameters) -> Result:
        dynamics: Dynamics = self._model("dynamics", "dynamics")
        run = dynamics.start(points, parameters)
        for progress in run:
            self._on_progress(f"layer {progress.layer}, {progress.leaders} leaders")
        return run.result

    def _model(self, name: str, kind: str) -> Any:
        if name not in self._models:
            bundle = read_bundle(self._folder(name))
            if bundle.kind != kind:
                raise NotFound(f"{name} is a model of kind {bundle.kind}, not {kind}", param="model")
            self._models[name] = self._load(bundle)
        return self._models[name]

    def _load(self, bundle: Bundle) -> Any:
        if bundle.kind == "sentiment":
            return Sentiment.load(bundle, self._runtime)
        if bundle.kind == "sequences":
            return Sequences.load(bundle, self._runtime)
        limits = {
            name: getattr(self._settings, name) for name in ("max_points", "max_dimension", "max_layers")
        }
        return Dynamics.load(bundle, self._runtime, Limits(**limits))

    def _folder(self, name: str) -> Path:
        bundles = find_bundles(self._settings.model_folders)
        if name not in bundles:
            raise NotFound(f"no model {name!r} here; there are {', '.join(bundles) or 'none'}", param="model")
        return bundles[name]


def _read(sentiment: Sentiment, texts: Sequence[str], first: int | None, *, truncate: bool) -> list[Tokens]:
    """The words of each text. What cannot be read is named by its place in the whole list (`first`: ours)."""
    try:
        return sentiment.tokenise_many(texts, truncate=truncate)
    except InputError:
        if first is None:
            raise
    read: list[Tokens] = []
    for index, text in enumerate(texts, first):
        try:
            read.append(sentiment.tokenise(text, truncate=truncate))
        except InputError as refused:
            place = f"input[{index}]"
            raise type(refused)(f"{place}: {refused.message}", param=place) from None
    return read


def _plain(value: Any) -> Any:
    """Arrays as lists, all the way down."""
    if isinstance(value, np.ndarray | Records):
        return value.tolist()
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value
