"""Files of clouds and sequences: they are read exactly, or refused by the row at fault."""

import io
from pathlib import Path

import numpy as np
import pytest
from raw_http import npy, npy_with_shape

from service.cli.point_files import read_cloud, read_sequences
from service.errors import InputError, InvalidInput, MalformedInput

LONG_HEADER = b"\x93NUMPY\x02\x00" + (10**6).to_bytes(4, "little") + b"(" * 10**6

ZIPPED = io.BytesIO()
np.savez(ZIPPED, a=np.ones((2, 2)))

CLOUD = [[1.0, 0.5], [-2.0, 1e-3]]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b"1,0.5\n-2,1e-3\n"),
        ("a.csv", b"x,y\n1,0.5\n\n-2,1e-3\n"),
        ("a.csv", b"\xef\xbb\xbf1,0.5\r\n-2,0.001\r\n"),
        ("a.csv", b"x;y\n1;0.5\n-2;0.001\n"),
        ("a.csv", b"1\t0.5\n-2\t0.001\n"),
        ("a.json", b"[[1, 0.5], [-2, 0.001]]"),
        ("a.json", b'{"points": [[1, 0.5], [-2, 0.001]], "alpha": 3}'),
    ],
)
def test_read_cloud_reads_its_formats(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert read_cloud(str(tmp_path / name)).tolist() == CLOUD


def test_read_cloud_reads_npy_of_any_number_type(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[1, 2], [3, 4]], dtype=np.int16))
    points = read_cloud(str(tmp_path / "a.npy"))
    assert (points.dtype, points.tolist()) == (np.float64, [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("a.csv", b"1,2\n3\n", InvalidInput, "points[1] has 1 numbers, expected 2"),
        ("a.csv", b"1,2\nx,4\n", InvalidInput, "row 2: not numbers"),
        ("a.csv", b",x,y\n0,1,2\n", InvalidInput, "the first column has no name, as an index has none"),
        ("a.csv", b"1,,2\n", InvalidInput, "row 1: not numbers"),
        ("a.csv", b"1,1_000\n", InvalidInput, "row 1: not numbers: ['1', '1_000']"),
        ("a.csv", b"1,9007199254740993\n", InvalidInput, "points[0][1] has no exact representation"),
        ("a.csv", b"", InvalidInput, "holds no points"),
        ("a.csv", b"\xff\xfe1", MalformedInput, "is not UTF-8"),
        ("a.json", b"{", MalformedInput, "is not JSON"),
        ("a.json", b"[1, 2]", InvalidInput, "expected [[..], ..]"),
        ("a.json", b'[["x", "y"], [1, 2]]', InvalidInput, "a.json: points[0][0] should be a number"),
        ("a.json", b'[[1, 2], ["3", 4]]', InvalidInput, "a.json: points[1][0] should be a number"),
        ("a.json", b"[[1, 1" + b"0" * 400 + b"]]", InvalidInput, "holds an integer too large"),
        ("a.npy", b"no array", MalformedInput, "is not an npy file: it holds no array of numbers"),
        ("a.npy", npy_with_shape("(1000000000000, 1000)"), MalformedInput, "is not an npy file"),
        ("a.npy", LONG_HEADER, MalformedInput, "is not an npy file"),
        ("a.npy", ZIPPED.getvalue(), MalformedInput, "is not an npy file but an npz file: save one array"),
        ("a.npy", npy(np.array([{"a": 1}])), MalformedInput, "is not an npy file"),
        ("a.npy", npy(np.array([[2**53 + 1]])), InvalidInput, "has numbers with more digits than double"),
        ("a.json", b"[" * 100_000, MalformedInput, "is nested too deeply"),
        ("a.json", b"[[" + b"1" * 5000 + b"]]", MalformedInput, "is not JSON"),
        ("a.parquet", b"", InvalidInput, "a cloud is a .csv, .npy or .json file"),
    ],
)
def test_read_cloud_refuses_by_name(
    tmp_path: Path, name: str, content: bytes, error: type[InputError], message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(error) as exc_info:
        read_cloud(str(tmp_path / name))
    assert message in exc_info.value.message


def test_read_cloud_leaves_numbers_that_are_not_finite_to_the_next_check(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[np.nan, 1.0]], np.float32))
    assert np.isnan(read_cloud(str(tmp_path / "a.npy"))[0, 0])


def test_read_sequences_reads_lines_with_and_without_labels(tmp_path: Path) -> None:
    (tmp_path / "s").write_text('[[1, 2], [3, 4]]\n\n{"sequence": [[5, 6]], "label": "a"}\n')
    sequences, labels = read_sequences(str(tmp_path / "s"))
    assert [sequence.tolist() for sequence in sequences] == [[[1, 2], [3, 4]], [[5, 6]]]
    assert labels == [None, "a"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1: is not JSON"),
        ('{"points": [[1]]}', 'line 1: expected [[..], ..] or {"sequence": [[..], ..]}'),
        ("[[1, 2], [3]]", "line 1: points[1] has 1 numbers, expected 2"),
        ("[[1, null]]", "line 1: points[0][1] should be a number"),
        ("", "holds no sequences"),
    ],
)
def test_read_sequences_refuses_by_line(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "s").write_text(line)
    with pytest.raises(InputError) as exc_info:
        read_sequences(str(tmp_path / "s"))
    assert message in exc_info.value.message
