"""Classify a large parquet data set with Ray Data: `hardmax classify --ray reviews.parquet answers`.

Ray distributes the rows; each actor classifies them with its own client, over HTTP or in its process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import ray

from hardmax.api import Api
from hardmax.dataframe import append_columns
from hardmax.errors import InvalidInput

BATCH_ROWS = 4096  # rows of one task of an actor


@dataclass(frozen=True)
class Summary:
    """The number of rows, and of rows without an answer."""

    texts: int
    refused: int


def classify_parquet(
    source: str,
    destination: str,
    open_client: Callable[[], Api],
    *,
    column: str = "text",
    model: str | None = None,
    gpus: float = 0,
) -> Summary:
    """Classify the rows of `source`, and write them with their answers as parquet to `destination`.

    Args:
        source: A parquet file or folder.
        destination: The folder to write; it must not exist.
        open_client: Opens the client of one actor.
        column: The column of texts.
        model: The name of the model; the default model if None.
        gpus: GPUs of one actor, which also takes one CPU.

    Returns:
        The number of rows, and of rows that have a reason in `hardmax_error` instead of an answer.

    Raises:
        InvalidInput: The destination exists, or there is no such column.
    """
    with open_client() as client:
        client.classify("a text", model=model)  # an error is raised now, not in an actor
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
        batch_size=BATCH_ROWS,
        batch_format="pyarrow",
        num_cpus=1,
        num_gpus=gpus,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=max(1, int(ray.cluster_resources()["CPU"]))),
    )
    answers.write_parquet(destination, mode=ray.data.SaveMode.CREATE)
    return count_results(destination)


def count_results(destination: str) -> Summary:
    """Count the rows of the files that were written."""
    errors = ray.data.read_parquet(destination, columns=["hardmax_error"])
    counts = [
        (len(batch), len(batch) - batch.column(0).null_count)
        for batch in errors.iter_batches(batch_format="pyarrow", batch_size=None)
    ]
    return Summary(sum(texts for texts, _ in counts), sum(refused for _, refused in counts))


class Actor:
    """One actor of the job, with its own client."""

    def __init__(self, open_client: Callable[[], Api], model: str | None, column: str) -> None:
        self._client = open_client()
        self._model = model
        self._column = column

    def __call__(self, table: pa.Table) -> pa.Table:
        texts = table.column(self._column).to_pylist()
        answers = self._client.classify(texts, model=self._model, errors="keep")
        return append_columns(table, (answer.row for answer in answers))
