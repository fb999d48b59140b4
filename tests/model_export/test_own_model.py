"""A model of one's own: what is taken from a file, and what is said of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from model_export.own import read_rows
from service.errors import HardmaxError

ABSENT = (
    "import sys; sys.modules['torch'] = None; from model_export.cli import main; raise SystemExit(main())"
)


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_rows_with_stars_become_negative_and_positive(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "id,review,stars\n1,good,5\n2,bad,1\n3,meh,3\n4,,2\n5,nice,4\n6,dull,\n")
    found = read_rows(path)
    assert found.rows == [("good", "positive"), ("bad", "negative"), ("nice", "positive")]
    assert found.told == [
        f"{path}: 6 rows, texts from column 'review', labels from column 'stars'",
        "left out: 2 without a text or a label",
        "left out: 1 with stars 3, which is neither",
        "labels: negative (1 row, spelt 1), positive (2 rows, spelt 4, 5)",
    ]
    assert read_rows(path, as_is=True).rows == [("good", "5"), ("bad", "1"), ("meh", "3"), ("nice", "4")]


@pytest.mark.parametrize(
    ("name", "text", "labels"),
    [
        ("a.tsv", "sentence\tlabel\ngood one\t1\nbad one\t0\n", ["positive", "negative"]),
        ("a.jsonl", '{"text": "a", "label": 1.0}\n{"text": "b", "label": -1}\n', ["positive", "negative"]),
        ("a.csv", "text,sentiment\na,pos\nb,neg\nc,POS\n", ["positive", "negative", "positive"]),
        ("a.csv", "message,topic\na,sport\nb,food\nc,news\n", ["sport", "food", "news"]),
        ("a.csv", "review,rating\na,10\nb,2\nc,7\nd,5\n", ["positive", "negative", "positive"]),
        ("a.csv", "text,label\na,0\nb,1\nc,2\n", ["0", "1", "2"]),
        ("a.csv", "what was said,kind\nquite long text,x\nanother long text,y\n", ["x", "y"]),
    ],
)
def test_rows_and_labels_are_found(tmp_path: Path, name: str, text: str, labels: list[str]) -> None:
    assert [label for _, label in read_rows(write(tmp_path, name, text)).rows] == labels


def test_rows_take_the_columns_that_are_named(tmp_path: Path) -> None:
    path = write(
        tmp_path, "a.csv", "text,title,label,mood\na long text,a title,0,glad\nanother,b title,1,sad\n"
    )
    assert read_rows(path, column="title", label="mood").rows == [("a title", "glad"), ("b title", "sad")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("text,a,b\nlong,1,2\nlong,3,4\n", "which column holds the labels? Say --label; it has text, a, b"),
        ("text,label\n" + "".join(f"t{i},l{i}\n" for i in range(101)), "column 'label' has 101 values"),
    ],
)  # fmt: skip
def test_rows_whose_labels_are_unclear_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(HardmaxError) as refused:
        read_rows(write(tmp_path, "a.csv", text))
    assert message in refused.value.message


def without_torch(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", ABSENT, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_export_cli_without_torch_shows_help_and_says_what_to_run(tmp_path: Path) -> None:
    told = without_torch("train", "--help")
    assert (told.returncode, told.stderr) == (0, "")
    assert "--name NAME" in told.stdout
    path = write(tmp_path, "a.csv", "text,label\ngood,1\nbad,0\n")
    for refused in (without_torch("train", path), without_torch("verify", "--help")):
        assert refused.returncode == 2
        assert "torch is not installed here: run `make export` in the checkout" in refused.stderr
        assert "Traceback" not in refused.stderr
