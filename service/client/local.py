"""The same methods as `hardmax.Client`, without a server: models are loaded here when first needed.

For the command line and for notebooks. It runs one thing at a time; the service runs many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, Unpack
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from service.client.answers import Answer, Answers, CloudRun, DynamicsOptions
from service.clouds.dynamics import Dynamics, Parameters, Result, Run
from service.engine.bundle import HEAD, READER, Bundle, find_bundles, kind_of, newest, read_bundle
from service.engine.lane import result_of
from service.engine.registry import settle_default
from service.engine.runtime import Runtime
from service.errors import InputError, NotFound
from service.http.documents import write_document
from service.http.routes.classify import raise_first
from service.http.routes.control import answer as control_answer
from service.http.routes.dynamics import answer as dynamics_answer
from service.http.routes.dynamics import parameters_of
from service.lifecycle import domain_loaders
from service.schemas.clouds import ControlResponse
from service.schemas.operations import ModelCard
from service.schemas.sequences import SequenceLabel
from service.schemas.texts import Classification, Explain
from service.sequences.classifier import Sequences
from service.settings import Settings, load_settings
from service.texts.work import How, run_all, texts_of

TEXTS_AT_ONCE = 256


class Local:
    """Answers in this process. `on_progress` is told in words how long work goes on."""

    def __init__(
        self, settings: Settings | None = None, *, on_progress: Callable[[str], None] = lambda message: None
    ) -> None:
        self._settings = settle_default(settings or load_settings())
        self._runtime = Runtime(self._settings.provider, self._settings.intra_op_threads)
        self._loaders = domain_loaders(self._runtime, self._settings)
        self._models: dict[str, Any] = {}
        self._on_progress = on_progress

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
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
        how = How((self._model(name, HEAD),), explain, trajectory, truncate)
        many = [texts] if isinstance(texts, str) else texts
        answers = Answers(name)
        for first in range(0, len(many), TEXTS_AT_ONCE):
            some = many[first : first + TEXTS_AT_ONCE]
            for text, answer in zip(some, _run(how, some, None if many is not texts else first), strict=True):
                checked = Classification.model_validate({"index": 0, **answer})
                answers.append(Answer.to(text, checked, len(answers)))
        return answers

    def dynamics(self, points: Any, **options: Unpack[DynamicsOptions]) -> CloudRun:
        """A cloud run to its limits."""
        given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        if "A" in given:
            given["A"] = np.asarray(given["A"], dtype=np.float64).tolist()
        parameters = parameters_of(given, self._settings, strict=False)
        result = self._run(np.asarray(points, dtype=np.float64), parameters)
        return CloudRun.model_validate_json(_written(dynamics_answer(result, parameters.include))).model_copy(
            update={"points": points}
        )

    def control(
        self,
        points: Any,
        *,
        assignment: Mapping[int, int] | None = None,
        leaders: Sequence[int] | None = None,
    ) -> ControlResponse:
        """A matrix A under which the wish comes true, or why none does."""
        from service.clouds.control import control

        def run(points: NDArray[np.float64], A: NDArray[np.float64]) -> Run:
            dynamics: Dynamics = self._model("dynamics", "dynamics")
            return dynamics.start(points, Parameters(A=A, tie_tolerance=0))

        cloud = np.asarray(points, dtype=np.float64)
        found = result_of(control(cloud, assignment, leaders, run, self._settings.request_timeout_s))
        return ControlResponse.model_validate_json(_written(control_answer(found)))

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
        folders = find_bundles(self._settings.model_folders)
        name = newest(name, folders)
        if name not in self._models:
            if name not in folders:
                have = ", ".join(folders) or "none"
                raise NotFound(f"no model {name!r} here; there are {have}", param="model")
            bundle = read_bundle(folders[name])
            if bundle.kind != kind:
                raise NotFound(f"{name} is a model of kind {bundle.kind}, not {kind}", param="model")
            if kind == HEAD:
                self._read_with(bundle)
            self._models[name] = self._loaders[kind](bundle)
        return self._models[name]

    def _read_with(self, head: Bundle) -> None:
        """Load the reader that a head stands on."""
        wanted = head.card["reader"]
        for name, folder in find_bundles(self._settings.model_folders).items():
            if kind_of(folder) == READER and name not in self._models:
                bundle = read_bundle(folder)
                if bundle.card["model_sha256"] == wanted["sha256"]:
                    self._models[name] = self._loaders[READER](bundle)


def _run(how: How, texts: Sequence[str], first: int | None) -> list[dict[str, Any]]:
    """The answers. What is refused is named by its place in the whole list, where `first` says ours."""
    try:
        return [each for (each,) in raise_first(run_all(texts_of(texts, how)), "input")]
    except InputError as refused:
        if first is not None:
            refused.count_from(first)
        raise


def _written(answer: dict[str, Any]) -> bytes:
    """An answer as a server writes it."""
    return b"".join(write_document({"id": uuid4().hex, **answer}))
