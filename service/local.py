"""`hardmax.Local`: every call of `hardmax.Client`, answered in this process. Models load when first needed.

For the command line and for notebooks. It runs one thing at a time; the service runs many.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from hardmax.calls import Calls, Question
from service.clouds.dynamics import Dynamics, Parameters, Run
from service.control.control import control
from service.engine.bundle import HEAD, find_bundles, read_bundle
from service.engine.lane import result_of
from service.engine.registry import Registry, settle_default
from service.engine.runtime import Runtime
from service.errors import NotFound
from service.http.documents import write_document
from service.http.problems import validate
from service.http.routes.classify import answer_of, raise_first, texts_to
from service.http.routes.control import answer as control_answer
from service.http.routes.dynamics import answer as dynamics_answer
from service.http.routes.dynamics import parameters_of
from service.lifecycle import domain_loaders
from service.schemas.texts import ClassifyRequest
from service.sequences.classifier import Sequences
from service.settings import Settings, load_settings
from service.texts.flip import find_flip
from service.texts.work import Text, run_all


class Local(Calls):
    """Answers in this process: `Local(models_dir="models")`, with the settings of the service as names.

    `on_progress` is told in words how long work goes on.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        on_progress: Callable[[str], None] = lambda message: None,
        **flags: Any,
    ) -> None:
        self._settings = settle_default(settings or load_settings(**flags))
        self._runtime = Runtime(self._settings.provider, self._settings.intra_op_threads)
        loaders = domain_loaders(self._runtime, self._settings)
        self._registry = Registry(self._settings.model_folders, loaders)
        self._on_progress = on_progress
        self._answers = {
            "classify": self._classify,
            "dynamics": self._dynamics,
            "control": self._control,
            "sequences/classify": self._sequences,
            "models": self._cards,
            "info": self._info,
        }

    def close(self) -> None:
        self._registry.entries = {}

    def answer(self, question: Question) -> Any:
        return self._answers[question.path](question)

    def _classify(self, question: Question) -> dict[str, Any]:
        body = validate(ClassifyRequest, question.body or {})
        asked = body.model if body.model is not None else self._settings.default_model
        names = [asked] if isinstance(asked, str) else asked
        heads = tuple(self._model(name, HEAD) for name in names)
        texts = texts_to(body, heads, self._settings)
        results = raise_first(run_all(texts), "input", single=isinstance(body.input, str))
        if body.flip:
            for text, answers in zip(texts, results, strict=True):
                _tell_flips(text, answers)
        return {"id": uuid4().hex, **answer_of(asked, results)}

    def _dynamics(self, question: Question) -> Any:
        parameters = parameters_of(question.body or {}, self._settings, strict=False)
        run = self._start(np.asarray(question.points, np.float64), parameters)
        for progress in run:
            self._on_progress(f"layer {progress.layer}, {progress.leaders} leaders")
        return _as_written(dynamics_answer(run.result, parameters.include))

    def _control(self, question: Question) -> Any:
        asked = question.body or {}
        assignment = asked.get("assignment")
        wish = None if assignment is None else {int(token): leader for token, leader in assignment.items()}

        def run(points: NDArray[np.float64], A: NDArray[np.float64]) -> Run:
            return self._start(points, Parameters(A=A, tie_tolerance=0))

        points = np.array(asked["points"], np.float64)
        found = control(points, wish, asked.get("leaders"), run, self._settings.request_timeout_s)
        return _as_written(control_answer(result_of(found)))

    def _sequences(self, question: Question) -> dict[str, Any]:
        asked = question.body or {}
        classifier: Sequences = self._model(asked["model"], "sequences")
        labels = classifier.classify([np.array(each, np.float64) for each in asked["sequences"]])
        data = [{"index": i, **label} for i, label in enumerate(labels)]
        return {"id": uuid4().hex, "model": asked["model"], "data": data}

    def _cards(self, question: Question) -> dict[str, Any]:
        """The cards of the models, bundled and of MODELS_DIR."""
        default = self._settings.default_model
        bundles = find_bundles(self._settings.model_folders)
        cards = (read_bundle(folder).card for folder in bundles.values())
        return {"models": [{**card, "default": card["name"] == default} for card in cards]}

    def _info(self, question: Question) -> Any:
        raise NotFound("info is of a server; there is none in this process")

    def _start(self, points: NDArray[np.float64], parameters: Parameters) -> Run:
        dynamics: Dynamics = self._model("dynamics", "dynamics")
        return dynamics.start(points, parameters)

    def _model(self, name: str, kind: str) -> Any:
        self._registry.load(name)
        return self._registry.find(name, kind)


def _tell_flips(text: Text, answers: Sequence[dict[str, Any]]) -> None:
    for head, answer in zip(text.how.heads, answers, strict=True):
        search = find_flip(Text(text.source, replace(text.how, heads=(head,)), text.without))
        asked = next(search)
        while "flip" not in answer:
            found = raise_first(run_all(asked), "input")
            try:
                asked = search.send([each[0] for each in found])
            except StopIteration as end:
                answer["flip"] = end.value


def _as_written(answer: dict[str, Any]) -> Any:
    """An answer as a client of a server reads it."""
    return json.loads(b"".join(write_document({"id": uuid4().hex, **answer})))
