"""`hardmax.Local`: the methods of `hardmax.Client` in this process. Models load when they are first used.

For the command line and for notebooks. It runs one request at a time; the service runs many.
"""

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import numpy as np

from hardmax.api import Api
from hardmax.operations import ApiRequest, run_sync
from service.cloud.dynamics import Dynamics, Progress
from service.errors import BundleError, InvalidInput, NotFound
from service.loaders import domain_loaders
from service.runtime.bundle import find_bundles, newest_version, read_bundle, version_of
from service.runtime.card import HEAD
from service.runtime.registry import Registry, RegistryEntry, with_default_model
from service.runtime.session import Runtime
from service.sequences import SequenceClassifier
from service.settings import Settings, load_settings
from service.text.decision import describe_labels
from service.text.pipeline import ClassificationTask, classify_all
from service.wire.clouds import MODEL, describe_dynamics_result, find_control, read_options
from service.wire.documents import validate, write
from service.wire.requests import ClassifyRequest
from service.wire.texts import (
    Results,
    add_searches,
    build_document,
    raise_first,
    read_tasks,
    select_searches,
)

log = logging.getLogger(__name__)


class Local(Api):
    """Answers in this process: `Local(models_dir="models")`, with the settings of the service as names.

    `on_progress` is called with lines on the progress of long computations.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        on_progress: Callable[[str], None] = lambda message: None,
        **flags: Any,
    ) -> None:
        if settings is not None and (flags or not isinstance(settings, Settings)):
            raise InvalidInput("Local takes Settings, or settings by name: Local(models_dir=...)")
        self._settings = with_default_model(settings or load_settings(**flags))
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
        """Release the models."""
        self._registry.entries = {}

    def send(self, request: ApiRequest) -> Any:
        """Answer a request in this process."""
        return self._answers[request.path](request)

    def _classify(self, request: ApiRequest) -> dict[str, Any]:
        body = validate(request.body or {}, ClassifyRequest)
        names = body.model or self._settings.default_model
        heads = [self._find(name, HEAD).model for name in ([names] if isinstance(names, str) else names)]
        tasks = read_tasks(body, tuple(heads), self._settings)
        results = raise_first(classify_all(tasks))
        for task, answers in zip(tasks, results, strict=True) if (searches := select_searches(body)) else ():
            run_sync(add_searches(task, answers, searches, _run_all))
        return {
            "id": uuid4().hex,
            **build_document(names, tasks[0].options.heads, results),
        }

    def _dynamics(self, request: ApiRequest) -> Any:
        parameters = read_options(request.body or {}, self._settings, strict=False)
        model: Dynamics = self._find(MODEL, "dynamics").model

        def report(progress: Progress) -> None:
            self._on_progress(f"layer {progress.layer}, {progress.leaders} leaders")

        result = model.run(np.asarray(request.points, np.float64), parameters, report)
        return _as_written(describe_dynamics_result(result, parameters.include))

    def _control(self, request: ApiRequest) -> Any:
        body = dict(request.body or {})
        points = np.array(body.pop("points"), np.float64)
        model: Dynamics = self._find(MODEL, "dynamics").model
        deadline_s = self._settings.request_timeout_s
        return _as_written(find_control(points, body, model, self._settings, deadline_s))

    def _sequences(self, request: ApiRequest) -> dict[str, Any]:
        body = request.body or {}
        entry = self._find(body["model"], "sequences")
        classifier: SequenceClassifier = entry.model
        labels = classifier.classify([np.array(points, np.float64) for points in body["sequences"]])
        return {
            "id": uuid4().hex,
            "model": body["model"],
            "model_version": version_of(entry.name),
            "data": [{"index": i, **label} for i, label in enumerate(labels)],
        }

    def _cards(self, request: ApiRequest) -> dict[str, Any]:
        bundles = find_bundles(self._settings.model_folders)
        default = newest_version(self._settings.default_model, bundles)
        cards = []
        for name, folder in bundles.items():
            try:
                bundle = read_bundle(folder)
                added = {"default": name == default, "version": version_of(name), "digest": bundle.digest}
                labels = describe_labels(bundle.card) if bundle.kind == HEAD else {}
                cards.append({**bundle.card, **labels, **added})
            except BundleError as error:
                log.warning("bundle %s refused: %s", name, error.message)
        return {"models": cards}

    def _info(self, request: ApiRequest) -> Any:
        raise NotFound("info() needs a server: hardmax.Client")

    def _find(self, name: str, kind: str) -> RegistryEntry:
        try:
            self._registry.load(name)
        except NotFound as error:
            if self._settings.models_dir:
                raise
            hint = "models of your own are in the folder that --models-dir or models_dir names"
            raise NotFound(f"{error.message}; {hint}", param=error.param) from None
        return self._registry.find(name, kind)


async def _run_all(tasks: Sequence[ClassificationTask]) -> Results:
    return classify_all(tasks)


def _as_written(answer: dict[str, Any]) -> Any:
    """Return an answer as a client of a server parses it."""
    return json.loads(write({"id": uuid4().hex, **answer}))
