"""The same face as `client.Client`, without a server: models are loaded into this process when first needed.

For the command line and for notebooks. It runs one thing at a time; many at once is what the service is for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from service.api.control import answer as control_answer
from service.api.documents import Records
from service.api.dynamics import answer as dynamics_answer
from service.bundle import Bundle, list_bundles, read_bundle
from service.dynamics import Dynamics, Limits, Parameters, Result
from service.errors import InvalidInput, NotFound
from service.runtime import Runtime
from service.schemas import (
    Classification,
    ControlResponse,
    DynamicsResult,
    Explain,
    ModelCard,
    SequenceLabel,
)
from service.sentiment import Sentiment
from service.sequences import Sequences
from service.settings import Settings, load_settings

TEXTS_AT_ONCE = 32


class Local:
    """Answers in this process. `on_progress` is told in words how long work goes on."""

    def __init__(
        self, settings: Settings | None = None, *, on_progress: Callable[[str], None] = lambda message: None
    ) -> None:
        self._settings = settings or load_settings()
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
    ) -> list[Classification]:
        """The sentiment of each text with its exact reason."""
        texts = [texts] if isinstance(texts, str) else texts
        sentiment: Sentiment = self._model(model or self._settings.default_model, "sentiment")
        results: list[Classification] = []
        for first in range(0, len(texts), TEXTS_AT_ONCE):
            words = sentiment.tokenise_many(texts[first : first + TEXTS_AT_ONCE], truncate=truncate)
            for answer in sentiment.classify(words, explain, trajectory=trajectory):
                results.append(Classification.model_validate({"index": len(results), **answer}))
            self._on_progress(f"{len(results)} of {len(texts)} texts")
        return results

    def dynamics(
        self, points: Any, *, include: Sequence[str] = ("assignment",), **options: Any
    ) -> DynamicsResult:
        """A cloud run to its limits; options as in the API: alpha, A, max_layers, stop, ..."""
        A = options.pop("A", None)
        matrix = None if A is None else np.asarray(A, dtype=np.float64)
        parameters = Parameters(A=matrix, include=frozenset(include), **options)
        result = self._run(np.asarray(points, dtype=np.float64), parameters)
        return DynamicsResult.model_validate(_plain(dynamics_answer(result, include)))

    def control(
        self,
        points: Any,
        *,
        assignment: Mapping[int, int] | None = None,
        leaders: Sequence[int] | None = None,
    ) -> ControlResponse:
        """A matrix A under which the wish comes true, or why none does."""
        from service.control import control

        if (assignment is None) == (leaders is None):
            raise InvalidInput("give either assignment or leaders", param="assignment")

        def run(points: NDArray[np.float64], A: NDArray[np.float64]) -> Result:
            return self._run(points, Parameters(A=A))

        cloud = np.asarray(points, dtype=np.float64)
        found = control(cloud, assignment, leaders, run, self._settings.request_timeout_s)
        return ControlResponse.model_validate({"id": "", **_plain(control_answer(found))})

    def classify_sequences(self, model: str, sequences: Sequence[Any]) -> list[SequenceLabel]:
        """The label, margin and leader of each sequence by an exact model."""
        classifier: Sequences = self._model(model, "sequences")
        arrays = [np.asarray(sequence, dtype=np.float64) for sequence in sequences]
        labels = classifier.classify(arrays)
        return [SequenceLabel.model_validate({"index": i, **label}) for i, label in enumerate(labels)]

    def models(self) -> list[ModelCard]:
        """The cards of the models in MODELS_DIR."""
        default = self._settings.default_model
        cards = (read_bundle(folder).card for folder in list_bundles(self._settings.models_dir))
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
        folders = {folder.name: folder for folder in list_bundles(self._settings.models_dir)}
        if name not in folders:
            raise NotFound(f"no model {name!r} here; there are {', '.join(folders) or 'none'}", param="model")
        return folders[name]


def _plain(value: Any) -> Any:
    """Arrays as lists, all the way down."""
    if isinstance(value, np.ndarray | Records):
        return value.tolist()
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value
