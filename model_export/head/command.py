"""`hardmax-export train rows.csv --name mine`: the flags, and the rows of the file."""

import argparse
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from evaluation.labels import read_rows
from evaluation.plot import check_matplotlib
from evaluation.tables.writing import check_folder
from hardmax.formatting import printable
from service.errors import InvalidInput
from service.runtime.bundle import PRETRAINED_ENCODER
from service.settings import PRETRAINED_FOLDER

MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
PRETRAINED_NAMES = ("dynamics", "encoder", "encoder-small", "sentiment", "sentiment-small")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of the command."""
    parser.add_argument("file", help="texts with labels: csv, tsv, jsonl, json, parquet, xlsx")
    parser.add_argument("--name", help="name of the model (default: that of the file)")
    parser.add_argument(
        "--models-dir", type=Path, default=Path("models"), help="folder of models (default: models)"
    )
    parser.add_argument("--column", help="column of texts (default: found by its name or its content)")
    parser.add_argument("--sheet", help="sheet of an xlsx file (default: all with the columns of the first)")
    parser.add_argument(
        "--label",
        nargs="+",
        default=[],
        help="column of labels (default: found likewise); or several columns of 0 and 1, one for each label",
    )
    parser.add_argument(
        "--keep-labels", action="store_true", help="keep stars, 0/1 and a|b as labels of their own"
    )
    parser.add_argument(
        "--multi-label",
        action="store_true",
        help="a text may have several labels, written a|b (default: if some row has several)",
    )
    parser.add_argument(
        "--fold-names",
        action="store_true",
        help="read names and groups of people as one token each, so that they cannot change an answer",
    )
    parser.add_argument("--description", help="description of the model, for its card")
    parser.add_argument(
        "--license", default="not stated", help="license of the model, for its card (default: not stated)"
    )
    parser.add_argument(
        "--encoder",
        type=Path,
        default=PRETRAINED_FOLDER / PRETRAINED_ENCODER,
        help="folder of the encoder's bundle (default: the pretrained encoder)",
    )
    parser.add_argument("--html", type=Path, help="write the report as an HTML page to this file")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random numbers (default: 0)")


def run(arguments: argparse.Namespace) -> int:
    """Train and export a model; return 0. Check flags and file before torch is imported."""
    name = _model_name(arguments)
    if arguments.html:
        check_folder(arguments.html)
        check_matplotlib("--html")
    rows = read_rows(
        arguments.file,
        column=arguments.column,
        label=arguments.label,
        sheet=arguments.sheet,
        keep_labels=arguments.keep_labels,
        multi_label=arguments.multi_label,
    )

    def log(line: str) -> None:
        print(printable(line), file=sys.stderr if arguments.json else None, flush=True)

    for line in rows.notes:
        log(line)
    from model_export.head.train import train_model  # torch takes seconds to import

    with reserve_name(arguments.models_dir, name):
        train_model(arguments, name, rows, log)
    return 0


@contextmanager
def reserve_name(models_dir: Path, name: str) -> Iterator[None]:
    """Hold a lock on a model's name: of two runs at once the first to end would lose its version's number.

    Raises:
        InvalidInput: Another run trains a model of this name.
    """
    path = models_dir / f".{name}.lock"
    try:
        models_dir.mkdir(parents=True, exist_ok=True)
        lock = path.open("w")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}", param="--models-dir") from None
    with lock:
        try:
            flock(lock, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            problem = f"another run trains {name} in {models_dir}: wait for it, or choose another name"
            raise InvalidInput(problem, param="--name") from None
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _model_name(arguments: argparse.Namespace) -> str:
    name = arguments.name or re.sub(r"[^A-Za-z0-9._-]+", "-", Path(arguments.file).stem).strip("-._")
    if not MODEL_NAME.fullmatch(name) or name in PRETRAINED_NAMES:
        raise InvalidInput(
            f"--name: {name!r} cannot name a model: letters, digits, dots and hyphens, and not the name of "
            "a pretrained model"
        )
    if arguments.models_dir.exists() and not arguments.models_dir.is_dir():
        raise InvalidInput(f"{arguments.models_dir} is not a folder", param="--models-dir")
    if (arguments.models_dir / name).exists():
        problem = f"{arguments.models_dir / name} already exists"
        raise InvalidInput(f"{problem}: a model's versions are {name}@1, {name}@2, ..; move it")
    return str(name)
