"""A corpus that outgrows one machine, as a job of Ray Data: `hardmax classify --ray reviews.parquet answers`.

Ray moves tables; each actor answers its rows by a client of its own, over HTTP or in its process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import ray

from hardmax.calls import Calls
from hardmax.columns import beside
from hardmax.errors import InvalidInput

ROWS = 4096  # texts that an actor takes at a time


@dataclass(frozen=True)
class Summary:
    texts: int
    refused: int


def classify_parquet(
    source: str,
    destination: str,
    open_client: Callable[[], Calls],
    *,
    column: str = "text",
    model: str | None = None,
    gpus: float = 0,
) -> Summary:
    """The rows of `source` with the model's answers as further columns, written as parquet to `destination`.

    A text that cannot be classified has its reason in `hardmax_error`; its neighbours get their answers. Each
    actor opens its client, and takes one CPU and so many GPUs.
    """
    with open_client() as client:
        client.classify("a text", model=model)  # a mistake is told now, not by an actor
    if "://" not in destination and Path(destination).exists():
        raise InvalidInput(f"{destination} exists already", param="OUT")
    ray.init(ignore_reinit_error=True, log_to_driver=False)
    texts = ray.data.read_parquet(source)
    if column not in texts.schema().names:
        names = ", ".join(texts.schema().names)
        raise InvalidInput(f"{source} has no column {column}; it has {names}", param="--column")
    answers = texts.map_batches(
        Actor,
        fn_constructor_args=(open_client, model, column),
        batch_size=ROWS,
        batch_format="pyarrow",
        num_cpus=1,
        num_gpus=gpus,
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


class Actor:
    """One actor of the job: a client, and tables of texts in, tables of answers out."""

    def __init__(self, open_client: Callable[[], Calls], model: str | None, column: str) -> None:
        self._client = open_client()
        self._model = model
        self._column = column

    def __call__(self, table: pa.Table) -> pa.Table:
        texts = table.column(self._column).to_pylist()
        answers = self._client.classify(texts, model=self._model, errors="keep")
        return beside(table, (answer.row for answer in answers))
