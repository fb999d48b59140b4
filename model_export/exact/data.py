"""Labelled sequences for an exact classifier, and their empirical measures.

Attention without positions sees a sequence as an empirical measure: its tokens and their shares. A data set
is therefore stored as the distinct tokens of each sequence with their multiplicities.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.tables.text import parse_json, read_text
from service.errors import InvalidInput

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]
Label = str | int | float | bool


class ImpossibleData(InvalidInput):
    """No transformer of this kind can represent the data; the message names the lines."""


@dataclass(frozen=True)
class Examples:
    """The examples of a file. Sequence j is `points[j]` [n_j, d], with the outputs `outputs[j]` [m_j, e].

    A label is the output (0, its code): `labels[code]` is its name. `labels` is empty for vector targets.
    """

    points: list[Floats]
    outputs: list[Floats]
    labels: tuple[Label, ...]
    names: tuple[str, ...]  # for messages: "line 3"

    @property
    def dimension(self) -> int:
        return int(self.points[0].shape[1])

    @property
    def has_token_outputs(self) -> bool:
        """Whether some sequence has several outputs, so that tokens are mapped to outputs, not sequences."""
        return any(len(output) > 1 for output in self.outputs)


@dataclass(frozen=True)
class Measures:
    """The distinct empirical measures of a data set, as sparse rows over its V distinct tokens.

    Row j holds the token numbers `token[start[j]:start[j + 1]]`, ascending, with multiplicities `count`;
    `target[j]` numbers its output, `example[j]` an example that has this measure.
    """

    tokens: Floats  # [V, d]
    start: Ints
    token: Ints
    count: Ints
    target: Ints
    example: Ints
    names: tuple[str, ...]  # of the examples

    def name(self, j: int) -> str:
        """Return the name of the example that has measure j."""
        return self.names[int(self.example[j])]

    def __len__(self) -> int:
        return len(self.target)

    def row(self, j: int) -> slice:
        """Return the slice of the entries of measure j."""
        return slice(int(self.start[j]), int(self.start[j + 1]))

    def gather(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return the position in `rows` and the token of every entry of these rows."""
        lengths = self.start[rows + 1] - self.start[rows]
        owner = np.repeat(np.arange(len(rows)), lengths)
        entry = np.arange(len(owner)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return owner, self.token[np.repeat(self.start[rows], lengths) + entry]


def read_examples(path: Path, dtype: str = "float64") -> Examples:
    """Read JSON lines {"sequence": [[..],..]} with "label", "target": [..] or "targets": [[..],..]."""
    lines = {f"line {n}": line for n, line in enumerate(read_text(str(path)).split("\n"), 1) if line.strip()}
    rows = [_parse(line, name) for name, line in lines.items()]
    return make_examples(rows, list(lines), dtype)


def make_examples(
    rows: Sequence[dict[str, Any]], names: Sequence[str] | None = None, dtype: str = "float64"
) -> Examples:
    """Validate the rows of a data set and convert them to arrays."""
    names = [f"sequence {j}" for j in range(len(rows))] if names is None else names
    if not rows:
        raise ImpossibleData("there are no sequences in this file")
    key = next((key for key in ("target", "targets") if key in rows[0]), "label")
    for name, row in zip(names, rows, strict=True):
        if key not in row or "sequence" not in row:
            raise ImpossibleData(f'{name} needs "sequence" and "{key}", like every line of its file')
    points = [_matrix(row["sequence"], name, dtype) for name, row in zip(names, rows, strict=True)]
    _check_widths(points, names, "a token")
    labels: tuple[Label, ...] = ()
    if key == "label":
        labels, outputs = _code_labels([row["label"] for row in rows], names)
    else:
        outputs = [
            _matrix([row[key]] if key == "target" else row[key], f"{name}: {key}", "float64")
            for name, row in zip(names, rows, strict=True)
        ]
        _check_widths(outputs, names, "a target")
    return Examples(points, outputs, labels, tuple(names))


def with_positions(points: Iterable[Floats]) -> list[Floats]:
    """Return each token with its position in the sequence as an additional coordinate."""
    return [np.column_stack([rows, np.arange(len(rows), dtype=rows.dtype)]) for rows in points]


def compute_measures(examples: Examples, points: Sequence[Floats]) -> Measures:
    """Return the distinct measures.

    Raises:
        ImpossibleData: Two examples have equal measures and different outputs.
    """
    tokens, inverse = np.unique(np.concatenate(points) + 0.0, axis=0, return_inverse=True)
    ends = np.cumsum([len(rows) for rows in points])
    outputs = [
        np.unique(output, axis=0).tobytes() for output in examples.outputs
    ]  # a set, whatever the order
    first_index: dict[bytes, int] = {}
    distinct = []
    for j, ids in enumerate(np.split(inverse.reshape(-1), ends[:-1])):
        token, count = np.unique(ids, return_counts=True)
        key = token.tobytes() + (count // np.gcd.reduce(count)).tobytes()
        first = first_index.setdefault(key, j)
        if outputs[first] != outputs[j]:
            raise ImpossibleData(_describe_conflict(examples, first, j))
        if first == j:
            distinct.append((token, count, j))
        if examples.has_token_outputs and len(examples.outputs[j]) > len(token):
            m, n = len(examples.outputs[j]), len(token)
            raise ImpossibleData(f"{examples.names[j]} has {n} distinct tokens and cannot have {m} outputs")
    # A sequence with several outputs maps its tokens to them, so it shares its class with no other sequence.
    distinct_outputs = [examples.outputs[j] for _, _, j in distinct]
    return Measures(
        tokens=tokens,
        start=np.cumsum([0, *(len(token) for token, _, _ in distinct)]),
        token=np.concatenate([token for token, _, _ in distinct]).astype(np.int64),
        count=np.concatenate([count for _, count, _ in distinct]).astype(np.int64),
        target=np.arange(len(distinct)) if examples.has_token_outputs else _number_outputs(distinct_outputs),
        example=np.array([j for _, _, j in distinct], np.int64),
        names=examples.names,
    )


def _describe_conflict(examples: Examples, i: int, j: int) -> str:
    names = f"{examples.names[i]} and {examples.names[j]}"
    return (
        f"{names} hold the same tokens in the same proportions but have different outputs: attention without "
        "positions cannot tell them apart (--positions makes order count)"
    )


def _number_outputs(outputs: list[Floats]) -> Ints:
    """List the distinct outputs in lexicographic order, in which the numbers of labels are their codes."""
    flat = sorted({tuple(map(tuple, output.tolist())) for output in outputs})
    numbers = {value: number for number, value in enumerate(flat)}
    return np.array([numbers[tuple(map(tuple, output.tolist()))] for output in outputs], np.int64)


def _code_labels(values: list[Any], names: Sequence[str]) -> tuple[tuple[Label, ...], list[Floats]]:
    for value, name in zip(values, names, strict=True):
        if not isinstance(value, str | int | float) or value != value:
            raise ImpossibleData(f"{name}: a label is a string or a number, not {json.dumps(value)}")
    # subtle: true and 1 are one value in Python, and two in JSON
    keys = [(isinstance(value, str), isinstance(value, bool), value) for value in values]
    codes = {key: code for code, key in enumerate(sorted(set(keys)))}
    return tuple(value for *_, value in codes), [np.array([[0.0, codes[key]]]) for key in keys]


def _parse(line: str, name: str) -> dict[str, Any]:
    row = parse_json(line, name)
    if not isinstance(row, dict):
        raise ImpossibleData(f"{name} is not an object")
    return row


def _matrix(value: Any, name: str, dtype: str) -> Floats:
    try:
        matrix: Floats = np.array(value, dtype=dtype)
    except (TypeError, ValueError):
        raise ImpossibleData(f"{name} is not a list of equally long lists of numbers") from None
    if matrix.ndim != 2 or matrix.size == 0:
        raise ImpossibleData(f"{name} is not a non-empty list of equally long lists of numbers")
    if not np.isfinite(matrix).all():
        raise ImpossibleData(f"{name} holds a number that is not finite in {dtype}")
    return matrix


def _check_widths(matrices: list[Floats], names: Sequence[str], item: str) -> None:
    for matrix, name in zip(matrices, names, strict=True):
        if matrix.shape[1] != matrices[0].shape[1]:
            width, expected = matrix.shape[1], matrices[0].shape[1]
            raise ImpossibleData(f"{name}: {item} has {width} numbers where {names[0]} has {expected}")
