"""The same service on a Ray cluster: an application for Ray Serve, and a job for Ray Data.

    serve deploy deploy/ray/serve.yaml                    replicas behind Ray's proxies, scaled by load
    hardmax classify --ray reviews.parquet answers        a corpus that outgrows one machine

Ray moves requests, tables and replicas; every answer is computed by the rooms beside this one. The module
is not called ray: Ray puts the folder of a driver's script on its workers' path, and would find that instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.app import create_app
from service.engine.bundle import find_bundles, read_bundle
from service.engine.registry import settle_default
from service.engine.runtime import Runtime
from service.errors import ConfigurationError, InputError, InvalidInput, NotFound, NotReady
from service.settings import Settings, load_settings
from service.texts.reader import Tokens
from service.texts.runs import logit_of
from service.texts.sentiment import Sentiment

try:
    import pyarrow as pa
    import ray
    from ray import serve
except ImportError as missing:
    raise ConfigurationError("Ray is not installed here: pip install 'hardmax[ray]'") from missing

ROWS = 4096  # texts that an actor takes at a time
ANSWER = pa.schema(
    [
        ("hardmax_label", pa.string()),
        ("hardmax_score", pa.float64()),
        ("hardmax_logit", pa.float64()),
        ("hardmax_leaders", pa.list_(pa.string())),
        ("hardmax_error", pa.string()),
    ]
)


def application(flags: dict[str, Any]) -> serve.Application:
    """The service as a Ray Serve application; `flags` are settings, as `args` of the configuration file."""
    load_settings(**flags)  # a mistake is told now, not by a replica
    apps: list[Any] = []

    def build() -> Any:
        apps.append(create_app(load_settings(**{"intra_op_threads": assigned_cpus(), **flags})))
        return apps[0]

    class Replica:
        """Ray replaces a replica whose `check_health` raises."""

        def check_health(self) -> None:
            if apps and not apps[0].state.service.healthy():
                raise NotReady("the inference thread does not answer")

    return serve.deployment(serve.ingress(build)(Replica), name="Hardmax").bind()


def assigned_cpus() -> int:
    """The CPUs that Ray has set aside for this actor: an inference should use no more threads."""
    return max(1, int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1)))


@dataclass(frozen=True)
class Summary:
    texts: int
    refused: int


def classify_parquet(
    source: str, destination: str, *, column: str = "text", model: str | None = None
) -> Summary:
    """The rows of `source` with the model's answers as further columns, written as parquet to `destination`.

    A text that cannot be classified has its reason in `hardmax_error`; its neighbours get their answers.
    """
    settings = settle_default(load_settings())
    name = model or settings.default_model
    load_model(settings, name)  # a mistake is told now, not by an actor
    if "://" not in destination and Path(destination).exists():
        raise InvalidInput(f"{destination} exists already", param="OUT")
    ray.init(ignore_reinit_error=True, log_to_driver=False)
    texts = ray.data.read_parquet(source)
    if column not in texts.schema().names:
        names = ", ".join(texts.schema().names)
        raise InvalidInput(f"{source} has no column {column}; it has {names}", param="--column")
    answers = texts.map_batches(
        Classifier,
        fn_constructor_args=(settings, name, column),
        batch_size=ROWS,
        batch_format="pyarrow",
        num_cpus=1,
        num_gpus=0.25 if settings.provider == "cuda" else 0,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=max(1, int(ray.cluster_resources()["CPU"]))),
    )
    answers.write_parquet(destination, mode=ray.data.SaveMode.CREATE)
    return summarise(destination)


def summarise(destination: str) -> Summary:
    """What was written, counted in what was written."""
    errors = ray.data.read_parquet(destination, columns=["hardmax_error"])
    counts = [
        (len(batch), len(batch) - batch.column(0).null_count)
        for batch in errors.iter_batches(batch_format="pyarrow", batch_size=None)
    ]
    return Summary(sum(texts for texts, _ in counts), sum(refused for _, refused in counts))


class Classifier:
    """One actor of the job: a model, and tables of texts in, tables of answers out."""

    def __init__(self, settings: Settings, name: str, column: str) -> None:
        self._model = load_model(settings, name)
        self._column = column
        self._max_chars = settings.max_text_chars

    def __call__(self, table: pa.Table) -> pa.Table:
        answers = self.classify(table.column(self._column).to_pylist())
        columns = pa.Table.from_pylist(answers, schema=ANSWER)
        for field in ANSWER:
            table = table.append_column(field, columns.column(field.name))
        return table

    def classify(self, texts: Sequence[str | None]) -> list[dict[str, Any]]:
        """One row a text."""
        answers: list[dict[str, Any]] = [{} for _ in texts]
        read: list[tuple[int, Tokens]] = []
        for index, text in enumerate(texts):
            try:
                read.append((index, self._read(text)))
            except InputError as refused:
                answers[index] = {"hardmax_error": refused.message}
        found = self._model.classify([tokens for _, tokens in read])
        for (index, _), answer in zip(read, found, strict=True):
            answers[index] = {
                "hardmax_label": answer["label"],
                "hardmax_score": answer["score"],
                "hardmax_logit": logit_of(answer),
                "hardmax_leaders": [leader["word"] for leader in answer["leaders"]],
            }
        return answers

    def _read(self, text: str | None) -> Tokens:
        if text is None:
            raise InvalidInput("there is no text")
        if len(text) > self._max_chars:
            raise InvalidInput(f"the text has more than {self._max_chars} characters")
        return self._model.tokenise(text)


def load_model(settings: Settings, name: str) -> Sentiment:
    """The bundle of that name, on one thread: actors, not threads, fill the cluster."""
    bundles = find_bundles(settings.model_folders)
    if name not in bundles:
        raise NotFound(f"there is no model {name}; there are {', '.join(bundles)}", param="model")
    bundle = read_bundle(bundles[name])
    if bundle.kind != "sentiment":
        raise InvalidInput(f"{name} is a model of kind {bundle.kind}, not sentiment", param="model")
    return Sentiment.load(bundle, Runtime(settings.provider, intra_op_threads=1))
