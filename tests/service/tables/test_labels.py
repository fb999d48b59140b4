"""Rows of a file as texts with labels."""

import pytest

from service.errors import InvalidInput
from service.tables.labels import read_rows


def test_labels_have_a_column_each(tmp_path):
    file = tmp_path / "two.csv"
    file.write_text("text,late,rude\nx y,1,0\nz w,yes,x\nu v,,0\na b,0,1\n")
    rows = read_rows(str(file), label=["late", "rude"])
    assert (rows.labels, rows.several) == (("late", "rude"), True)
    assert rows.truth == [("late",), ("late", "rude"), (), ("rude",)]
    assert rows.targets.tolist() == [[1, 0], [1, 1], [0, 0], [0, 1]]


def test_file_with_a_column_for_each_label_is_told_how_to_name_them(tmp_path):
    file = tmp_path / "two.csv"
    file.write_text("text,late,rude\nx y,1,0\nz w,0,1\n")
    with pytest.raises(InvalidInput, match=r"--label a b where a and b have a column each.*text, late, rude"):
        read_rows(str(file))


def test_rows_without_a_text_are_counted_where_labels_have_a_column_each(tmp_path):
    file = tmp_path / "two.csv"
    file.write_text("text,late,rude\nx y,1,0\n,1,1\nz w,1,1\nNaN,0,1\nu v,0,1\n")
    rows = read_rows(str(file), label=["late", "rude"])
    assert rows.texts == ["x y", "z w", "u v"]
    assert "left out: 2 without a text" in rows.told


def test_column_of_a_label_that_holds_something_else_is_named(tmp_path):
    file = tmp_path / "two.csv"
    file.write_text("text,late,rude\nx y,1,0\nz w,maybe,1\n")
    with pytest.raises(InvalidInput, match="row 2: late is 'maybe'; one column a label holds 1 or 0"):
        read_rows(str(file), label=["late", "rude"])


@pytest.mark.parametrize("as_is", [False, True])
def test_ratings_become_two_labels_unless_kept_as_they_are(tmp_path, as_is):
    file = tmp_path / "stars.csv"
    file.write_text("text,rating\n" + "".join(f"some text {i},{1 + i % 5}\n" for i in range(10)))
    rows = read_rows(str(file), as_is=as_is)
    assert rows.labels == (("1", "2", "3", "4", "5") if as_is else ("negative", "positive"))
    assert len(rows.texts) == (10 if as_is else 8)


def test_what_is_missing_is_left_out_and_lists_are_several_labels(tmp_path):
    file = tmp_path / "rows.jsonl"
    lines = ['{"text": "a b", "tags": ["late", "rude"]}', '{"text": "NaN", "tags": ["late"]}']
    file.write_text("\n".join([*lines, '{"text": "c d", "tags": NaN}', '{"text": "e f", "tags": ["late"]}']))
    rows = read_rows(str(file), least=1)
    assert rows.texts == ["a b", "e f"]
    assert rows.truth == [("late", "rude"), ("late",)]
    assert "left out: 2 without a text or a label" in rows.told


def test_labels_of_a_single_row_are_all_named(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("text,label\na b,x\nc d,x\ne f,y\ng h,z\ni j,nan\n")
    with pytest.raises(InvalidInput, match=r"the label .y., .z.; each needs 2 or more\. Add rows, or take"):
        read_rows(str(file))
