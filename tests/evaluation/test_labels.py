"""Rows of a file as texts with labels."""

import pytest

from evaluation.labels import read_rows
from service.errors import InvalidInput


@pytest.fixture
def read(tmp_path):
    """Return a function that reads the rows of a file with some content."""

    def read(content, name="rows.csv", **options):
        (tmp_path / name).write_text(content)
        return read_rows(str(tmp_path / name), **options)

    return read


def test_labels_have_a_column_each(read):
    rows = read("text,late,rude\nx y,1,0\nz w,yes,x\nu v,,0\na b,0,1\n", label=["late", "rude"])
    assert (rows.labels, rows.multi_label) == (("late", "rude"), True)
    assert rows.truth == [("late",), ("late", "rude"), (), ("rude",)]
    assert rows.targets.tolist() == [[1, 0], [1, 1], [0, 0], [0, 1]]


def test_note_lists_the_first_of_many_labels(read):
    rows = "".join(f"row {i},{i % 20:02}\n" for i in range(40))
    (note,) = (line for line in read(f"text,label\n{rows}").notes if line.startswith("labels: "))
    assert note.startswith("labels: 00 (2), 01 (2), ")
    assert note.endswith(", 11 (2) and 8 more")


def test_labels_predicted_by_a_model_are_noted(read):
    predicted = "text,label,score,hardmax_error\nx y,a,0.9,\nx z,a,0.9,\nz w,b,0.9,\nz v,b,0.9,\n"
    assert sum("what a model answered" in line for line in read(predicted).notes) == 1
    own_labels = predicted.replace("label,score", "label,hardmax_label")
    assert not any("what a model answered" in line for line in read(own_labels).notes)


@pytest.mark.parametrize(
    ("content", "label", "message"),
    [
        ("text,late,rude\nx y,1,0\nz w,0,1\n", (),
         r"--label a b where a and b have a column each.*text, late, rude"),
        ("text,late,rude\nx y,1,0\nz w,maybe,1\n", ("late", "rude"),
         "row 3: late is 'maybe'; one column a label holds 1 or 0"),
        ("text,label\na b,x\nc d,x\ne f,y\ng h,z\ni j,nan\n", (),
         r"the label .y., .z.; each needs 2 or more\. Add rows, take"),
        ("text,label\na b,x\nc d,y\n", ("text",), "column 'text' holds the texts and cannot hold the labels"),
    ],
)  # fmt: skip
def test_labels_that_cannot_be_trained_are_named_with_a_remedy(read, content, label, message):
    with pytest.raises(InvalidInput, match=message):
        read(content, label=label)


def test_rows_without_a_text_are_counted_where_labels_have_a_column_each(read):
    rows = read("text,late,rude\nx y,1,0\n,1,1\nz w,1,1\nNaN,0,1\nu v,0,1\n", label=["late", "rude"])
    assert rows.texts == ["x y", "z w", "u v"]
    assert "left out: 2 without a text" in rows.notes


@pytest.mark.parametrize("keep_labels", [False, True])
def test_ratings_become_two_labels_unless_kept_as_they_are(read, keep_labels):
    rows = read(
        "text,rating\n" + "".join(f"some text {i},{1 + i % 5}\n" for i in range(10)), keep_labels=keep_labels
    )
    assert rows.labels == (("1", "2", "3", "4", "5") if keep_labels else ("negative", "positive"))
    assert len(rows.texts) == (10 if keep_labels else 8)


def test_what_is_missing_is_left_out_and_lists_are_several_labels(read):
    lines = ['{"text": "a b", "tags": ["late", "rude"]}', '{"text": "NaN", "tags": ["late"]}']
    lines += ['{"text": "c d", "tags": NaN}', '{"text": "e f", "tags": ["late"]}']
    rows = read("\n".join(lines), "rows.jsonl", min_rows=1)
    assert rows.texts == ["a b", "e f"]
    assert rows.truth == [("late", "rude"), ("late",)]
    assert "left out: 2 without a text or a label" in rows.notes
