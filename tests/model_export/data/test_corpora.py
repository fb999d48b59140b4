"""Corpora: reading their files, splits without common texts, removal of near-duplicates."""

import gzip
import io
import tarfile

import pytest

from model_export.data.corpora import Row, clean, drop_near_duplicates, read_reviews, read_table
from service.errors import InvalidInput, NotFound

WORDS = "one two three four five six seven eight nine ten eleven twelve".split()


def archive(path, members):
    with tarfile.open(path, "w:gz") as file:
        for name, text in members.items():
            member = tarfile.TarInfo(f"aclImdb/{name}")
            member.size = len(text.encode())
            file.addfile(member, io.BytesIO(text.encode()))
    return path


def test_reviews_are_read_in_order_with_their_labels(tmp_path):
    members = {
        "train/pos/2_10.txt": "I loved it &amp; more",
        "train/pos/0_9.txt": "A delight",
        "train/neg/0_1.txt": "Dull",
        "train/unsup/0_0.txt": "It runs two hours",
        "test/pos/0_7.txt": "not read",
    }
    rows = read_reviews(archive(tmp_path / "a.tar.gz", members))
    assert [(row.text, row.target) for row in rows] == [
        ("Dull", 0.0), ("A delight", 1.0), ("I loved it & more", 1.0), ("It runs two hours", None),
    ]  # fmt: skip
    assert rows[-1].split == "train"


def test_neighbouring_reviews_stay_in_one_split(tmp_path):
    members = {f"train/{part}/{i}_9.txt": f"{part} {i}" for part in ("pos", "neg") for i in range(400)}
    rows = read_reviews(archive(tmp_path / "a.tar.gz", members))
    blocks = {}
    for row in rows:
        part, number = row.text.split()
        blocks.setdefault((part, int(number) // 50), set()).add(row.split)
    assert len(blocks) == 16
    assert all(len(splits) == 1 for splits in blocks.values())


def test_a_table_maps_three_labels_and_keeps_equal_texts_together(tmp_path):
    path = tmp_path / "t.tsv.gz"
    content = "text\tlabel\ngood\tpositive\nso so\tneutral\nbad\tnegative\ngood\tpositive\nno label\t7\n"
    path.write_bytes(gzip.compress(content.encode()))
    rows = read_table(path, "salt")
    expected = [("good", 1.0), ("so so", 0.5), ("bad", 0.0), ("good", 1.0)]
    assert [(row.text, row.target) for row in rows] == expected
    assert rows[0].split == rows[3].split
    assert {row.split for row in read_table(path, "")} == {"train"}


def test_held_out_near_duplicates_of_training_texts_are_dropped():
    text = " ".join(WORDS)
    rows = [
        Row(text, 1.0),
        Row(text + " and more", 1.0, "test"),  # four of its seven runs of eight words are known
        Row("Short one!", 0.0),
        Row("short ONE", 0.0, "validation"),  # shorter than a run: the whole text counts
        Row("quite another text of more than eight words, all new", 0.0, "test"),
    ]
    assert [row.text for row in drop_near_duplicates(rows)] == [rows[0].text, rows[2].text, rows[4].text]
    held_out = [Row("same words", 1.0, "validation"), Row("same words", 1.0, "test")]
    assert [row.split for row in drop_near_duplicates(held_out)] == ["validation"]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("it is n't good", "it isn't good"),
        ("we 've", "we've"),
        ("$ _num_", "$ 5"),
        ("a &quot;b&quot;", 'a "b"'),
    ],
)
def test_clean_removes_the_marks_of_data_sets(raw, text):
    assert clean(raw) == text


def test_a_missing_file_and_an_archive_without_reviews_are_refused(tmp_path):
    with pytest.raises(NotFound, match=r"a\.tar\.gz"):
        read_reviews(tmp_path / "a.tar.gz")
    with pytest.raises(NotFound, match=r"t\.tsv"):
        read_table(tmp_path / "t.tsv", "")
    with pytest.raises(InvalidInput, match="no reviews"):
        read_reviews(archive(tmp_path / "a.tar.gz", {"test/pos/0_7.txt": "x"}))
