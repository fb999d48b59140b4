"""Readers give what the files say, and one clear sentence for a file that cannot be read."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from model_export import corpus
from service.errors import HardmaxError, InvalidInput, MalformedInput, NotFound

REVIEWS = {
    "train/pos/0_9.txt": "A delight from start to finish.",
    "train/pos/10_8.txt": "Warm and witty.<br />See it!",
    "train/pos/2_10.txt": "I loved it",
    "train/neg/0_1.txt": "Dull, dull, dull.",
    "train/neg/1_3.txt": "A waste of time",
    "train/unsup/0_0.txt": "It runs two hours.",
    "test/pos/0_7.txt": "Fine café scenes",
    "test/neg/0_2.txt": "No.",
}


def _archive(path: Path) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in REVIEWS.items():
            member = tarfile.TarInfo(f"aclImdb/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def _folder(path: Path) -> Path:
    for name, text in REVIEWS.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("make", [lambda p: _archive(p / "reviews.tar.gz"), lambda p: _folder(p / "aclImdb")])
def test_imdb_reads_archive_and_folder_alike_in_numeric_order(make, tmp_path):
    read = corpus.read(make(tmp_path))
    names = ("pos/0_9", "pos/2_10", "pos/10_8", "neg/0_1", "neg/1_3", "unsup/0_0")
    assert read.texts == tuple(REVIEWS[f"train/{name}.txt"] for name in names)
    assert read.labels.tolist() == [1, 1, 1, 0, 0, -1]
    assert read.labelled.tolist() == [0, 1, 2, 3, 4]
    assert read.unlabelled.tolist() == [5]


def test_imdb_reads_the_asked_split_without_unlabelled(tmp_path):
    read = corpus.read(_archive(tmp_path / "a.tar.gz"), "test", unlabelled=False)
    assert read.texts == ("Fine café scenes", "No.")


def test_imdb_without_the_split_says_what_is_missing(tmp_path):
    with pytest.raises(InvalidInput, match="holds no dev/pos and dev/neg"):
        corpus.read(_folder(tmp_path / "aclImdb"), "dev")


def test_a_cut_archive_is_named_as_damaged(tmp_path):
    whole = _archive(tmp_path / "a.tar.gz").read_bytes()
    (tmp_path / "cut.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(MalformedInput, match=r"cut\.tar\.gz is damaged"):
        corpus.read(tmp_path / "cut.tar.gz")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "sentence\tlabel\ngood fun\t1\nno\tfun\t0\n"),
        ("a.csv", 'Review,Sentiment\n"good fun",positive\n"no\tfun",neg\n'),
        ("a.jsonl", '{"text": "good fun", "label": 1}\n{"text": "no\\tfun", "label": "negative"}\n'),
    ],
)
def test_rows_of_each_format_read_the_same(name, content, tmp_path):
    (tmp_path / name).write_text(content, encoding="utf-8")
    read = corpus.read(tmp_path / name)
    assert read.texts == ("good fun", "no\tfun")
    assert read.labels.tolist() == [1, 0]


def test_parquet_reads_text_and_label_columns(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(arrow.table({"text": ["good", "bad"], "label": [1, 0]}), tmp_path / "a.parquet")
    read = corpus.read(tmp_path / "a.parquet")
    assert (read.texts, read.labels.tolist()) == (("good", "bad"), [1, 0])


@pytest.mark.parametrize(
    ("name", "content", "error", "sentence"),
    [
        ("a.csv", "text,label\ngood,1\nmeh,maybe\n", InvalidInput, "row 2: unknown label 'maybe'"),
        ("a.csv", "text,stars\ngood,1\n", InvalidInput, "it has text, stars"),
        ("a.csv", "text,label\ngood,1\n", InvalidInput, "the class negative is empty"),
        ("a.tsv", "good 1\n", MalformedInput, "line 1: no tab"),
        ("a.jsonl", '{"text": "good"', MalformedInput, "is damaged"),
        ("a.jsonl", "[1]\n", MalformedInput, "line 1: not an object"),
        ("a.xml", "<a/>", InvalidInput, "the formats are"),
    ],
)
def test_an_unusable_file_is_refused_in_one_line(name, content, error, sentence, tmp_path):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(error, match=sentence) as refused:
        corpus.read(tmp_path / name)
    assert "\n" not in refused.value.message


def test_a_missing_file_is_not_found(tmp_path):
    with pytest.raises(NotFound, match="no such file"):
        corpus.read(tmp_path / "nothing.csv")


def _blocks(films: int, reviews: int) -> corpus.Corpus:
    n = 2 * films * reviews
    labels = np.repeat([1, 0], n // 2).astype(np.int8)
    return corpus.Corpus(tuple(map(str, range(n))), labels, np.arange(n) // reviews, "films")


def test_split_keeps_films_whole_and_classes_even():
    data = _blocks(films=20, reviews=7)
    train, validation = corpus.split_validation(data)
    assert len(validation) == 56
    assert len(train) == 224
    assert not set(data.blocks[train]) & set(data.blocks[validation])
    assert data.labels[validation].sum() == 28


def test_folds_cover_every_text_once():
    data = _blocks(films=10, reviews=3)
    held = np.concatenate([corpus.split_validation(data, fold=f)[1] for f in range(5)])
    assert sorted(held.tolist()) == list(range(60))


def test_split_never_holds_out_unlabelled_texts():
    data = _blocks(films=10, reviews=1)
    data = corpus.Corpus(
        data.texts, np.where(np.arange(20) % 2, data.labels, -1).astype(np.int8), data.blocks, "x"
    )
    train, validation = corpus.split_validation(data)
    assert set(train) | set(validation) == set(data.labelled)


def test_a_sum_of_corpora_keeps_their_blocks_apart():
    both = _blocks(2, 2) + _blocks(2, 2)
    assert both.blocks.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]
    assert both.source == "films + films"


def test_every_refusal_is_of_the_house(tmp_path):
    with pytest.raises(HardmaxError):
        corpus.read(tmp_path)
