"""Read clouds from csv, npy or json, and sequences of points from JSON lines."""

import csv
import sys
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from evaluation.tables.text import (
    STDIN,
    detect_delimiter,
    is_number,
    parse_json,
    read_error,
    read_text,
    source_name,
)
from service.errors import InvalidInput, MalformedInput
from service.wire.arrays import as_array


def read_cloud(path: str) -> NDArray[np.float64]:
    """Read points from a csv (with or without a header), npy or json file; `-` is csv on standard input."""
    suffix = Path(path).suffix.lower()
    if path == STDIN or suffix == ".csv":
        return _cloud_from_csv(read_text(path), source_name(path))
    if suffix == ".npy":
        return _cloud_from_npy(path)
    if suffix == ".json":
        return _cloud_from_json(parse_json(read_text(path), path), "points", path)
    raise InvalidInput(f"{path}: a cloud is a .csv, .npy or .json file", param="FILE")


def read_sequences(path: str) -> tuple[list[NDArray[np.float64]], list[Any]]:
    """Read sequences from a file of JSON lines; return them with their labels, None where there is none."""
    lines = read_text(path).split("\n")
    sequences, labels = [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        location = f"{source_name(path)}, line {number}"
        entry = parse_json(line, location)
        sequences.append(_cloud_from_json(entry, "sequence", location))
        labels.append(entry.get("label") if isinstance(entry, dict) else None)
    if not sequences:
        raise InvalidInput(f"{source_name(path)} holds no sequences", param="FILE")
    return sequences, labels


def _cloud_from_npy(path: str) -> NDArray[np.float64]:
    try:
        with open(path, "rb") as file:
            array = np.load(file, allow_pickle=False)
    except OSError as error:
        raise read_error(path, error, "FILE") from None
    except (ValueError, EOFError, MemoryError, SyntaxError, TokenError, BadZipFile) as error:
        # numpy would read objects, and files of unknown formats, by pickle
        reason = "it holds no array of numbers" if "pickle" in str(error) else error
        raise MalformedInput(f"{path} is not an npy file: {reason}", param="FILE") from None
    if not isinstance(array, np.ndarray):
        raise MalformedInput(f"{path} is not an npy file but an npz file: save one array", param="FILE")
    if array.dtype.kind not in "fiu":
        raise InvalidInput(f"{path} holds {array.dtype}, not numbers", param="FILE")
    points = np.asarray(array, dtype=np.float64)
    if array.dtype != points.dtype and not np.array_equal(points.astype(array.dtype), array, equal_nan=True):
        raise InvalidInput(f"{path} has numbers with more digits than double precision holds", param="FILE")
    return points


def _cloud_from_json(entry: Any, name: str, source: str) -> NDArray[np.float64]:
    """Return the cloud in a list of rows, or in an object with the field `name`."""
    rows = entry.get(name) if isinstance(entry, dict) else entry
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        problem = f'{source}: expected [[..], ..] or {{"{name}": [[..], ..]}}'
        raise InvalidInput(problem, param="FILE")
    return _cloud(rows, source)


def _cloud_from_csv(text: str, source: str) -> NDArray[np.float64]:
    """Return the rows without a heading: a first row without numbers."""
    points: list[list[float]] = []
    for number, row in enumerate(csv.reader(text.splitlines(), delimiter=detect_delimiter(text)), 1):
        numbers = [_number(cell) for cell in row if is_number(cell)]
        if number == 1 and row and not numbers:
            if row[0] == "" and len(row) > 1:
                problem = "the first column has no name, as an index has none: leave it out (index=False)"
                raise InvalidInput(f"{source}: {problem}", param="FILE")
        elif len(numbers) < len(row):
            raise InvalidInput(f"{source}, row {number}: not numbers: {row}", param="FILE")
        elif row:
            points.append(numbers)
    return _cloud(points, source)


def _number(cell: str) -> float:
    """Return the number in a cell; a large integer as it is, so that it is refused rather than rounded."""
    number = float(cell)
    is_large_integer = (
        number.is_integer() and abs(number) >= 2.0**53 and cell.strip().lstrip("+-").isdecimal()
    )
    return int(cell) if is_large_integer else number


def _cloud(points: list[Any], source: str) -> NDArray[np.float64]:
    """Return rows of numbers as one array, with the checks of the API."""
    if not points:
        raise InvalidInput(f"{source} holds no points", param="FILE")
    try:
        return as_array(points, "points", max_rows=sys.maxsize, max_columns=sys.maxsize)
    except InvalidInput as error:
        raise InvalidInput(f"{source}: {error.message}", param=error.param) from None
