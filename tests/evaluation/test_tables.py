"""Tables of all formats: columns are kept, the column of texts is found, errors have a location."""

import csv
import json
import re
from datetime import date, datetime
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pyarrow as pa
import pytest
from openpyxl import Workbook, load_workbook
from pyarrow import parquet
from workbooks import save_sheets

from evaluation.tables.columns import find_column
from evaluation.tables.reading import read_table
from evaluation.tables.text import Table
from evaluation.tables.writing import write_rows
from hardmax.dataframe import RESULT_COLUMNS
from service.errors import HardmaxError, TooLarge

NO_ANSWER = dict.fromkeys(RESULT_COLUMNS)
ANSWERS = [
    {**NO_ANSWER, "label": "positive", "score": 0.9, "truncated": False, "leaders": ["good", "film"]},
    NO_ANSWER,
]


def write(folder: Path, name: str, text: str | bytes) -> str:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(folder / name)


@pytest.mark.parametrize(
    ("name", "text", "column", "texts"),
    [
        ("a.csv", "id,review\n1,good\n2,bad\n", "review", ["good", "bad"]),
        ("a.csv", '\ufeffReview Text;stars\r\n"a;\nb";5\r\n;1\r\n', "Review Text", ["a;\nb", ""]),
        ("a.csv", "good film,1\nbad film,0\ngood film,1\n", "column_1",
         ["good film", "bad film", "good film"]),
        ("a.csv", "what they said,mark\nit was rather long,A\nshort and sweet,B\n", "what they said",
         ["it was rather long", "short and sweet"]),
        ("a.csv", "reviews\ngood, really\n\nbad\n", "reviews", ["good, really", "", "bad"]),
        ("a.csv", "a good film\na bad film\n", "column_1", ["a good film", "a bad film"]),
        ("a.csv", "comment,n\nshort\n", "comment", ["short"]),
        ("a.csv", "\r\ncomment;n\r\nshort;1\r\n", "comment", ["short"]),
        ("a.csv", "#,review\n1,good\n2,bad\n", "review", ["good", "bad"]),
        ("a.csv", "評価,Text\n1,good\n2,bad\n", "Text", ["good", "bad"]),
        ("a.csv", ",review\n0,good film\n1,bad film\n", "review", ["good film", "bad film"]),
        ("a.tsv", "sentence\tlabel\ngood, really\t1\n", "sentence", ["good, really"]),
        ("a.jsonl", '{"text": "good", "n": 1}\n\n{"text": null}\n', "text", ["good", None]),
        ("a.json", '[{"review": "good"}, {"review": "bad"}]', "review", ["good", "bad"]),
        ("a.txt", "good\u2028film\r\n\nbad", "text", ["good\u2028film", "", "bad"]),
        ("notes", "good\n", "text", ["good"]),
        ("a.csv", "review,n\nbon café,1\n".encode("utf-16"), "review", ["bon café"]),
    ],
)  # fmt: skip
def test_rows_are_read_and_their_texts_found(
    tmp_path: Path, name: str, text: str | bytes, column: str, texts: list[str | None]
) -> None:
    table = read_table(write(tmp_path, name, text))
    assert find_column(table, None) == column
    assert table.values(column) == texts


@pytest.mark.parametrize("text", [",good\n,bad\n", "a,,b\n1,2,3\n", ",\ngood\nbad\n"])
def test_first_line_with_empty_cells_is_a_row(tmp_path: Path, text: str) -> None:
    assert len(read_table(write(tmp_path, "a.csv", text))) == 2


def test_rows_of_a_pipe_are_csv_or_jsonl_if_a_column_is_requested(tmp_path: Path) -> None:
    assert read_table(write(tmp_path, "a", "x,y\n1,2\n"), column="y").values("y") == ["2"]
    assert read_table(write(tmp_path, "b", '{"y": "2"}\n'), column="y").values("y") == ["2"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"a,b\n1,2\n3,4,5\n", "a.csv, row 3: 3 cells, the first has 2 (texts with ',' need"),
        ("a.csv", b'a,b\n1,2\n"3,4\n5,6\n', "a.csv, row 3: has a quote that does not end"),
        ("a.csv", b"a,b,a\n1,2,3\n", "a.csv has two columns 'a'"),
        ("a.csv", b"a\ngood\n\x81\xe9\n", "a.csv, line 3: is not UTF-8 text; save it so (iconv"),
        ("a.xls", b"old", "a.xls: .xls is not read; save the sheet as .xlsx or .csv"),
        ("a.jsonl", b'{"a": 1}\n{\n', "a.jsonl, line 2: is not JSON"),
        ("a.jsonl", b'"caf\xe9"\n', "a.jsonl, line 1: is not UTF-8 text"),
        ("a.jsonl", b"[1]\n", "a.jsonl, line 1: expected an object or a text"),
        ("a.json", b'{"a": 1}', "a.json: expected a list of objects or of texts"),
        ("a.parquet", b"no parquet", "a.parquet is not a parquet file"),
        (
            "a.xlsx",
            b"no workbook",
            "a.xlsx is not an xlsx file: File is not a zip file. Save it as .xlsx or .csv",
        ),
        ("a.json", b"[" * 100_000, "a.json: is nested too deeply"),
        ("a.jsonl", b'{"n": ' + b"1" * 5000 + b"}", "a.jsonl, line 1: is not JSON"),
    ],
)
def test_rows_that_cannot_be_read_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content)
    with pytest.raises(HardmaxError) as error:
        read_table(name)
    assert error.value.message.startswith(message)


@pytest.mark.parametrize(
    ("name", "content"), [("a.csv", ""), ("a.csv", "\n\n"), ("a.jsonl", ""), ("a.json", "[]")]
)
def test_empty_file_is_called_empty(tmp_path: Path, name: str, content: str) -> None:
    file = write(tmp_path, name, content)
    with pytest.raises(HardmaxError, match="is empty: it needs a line of names, and a row for each text"):
        find_column(read_table(file), None)


def test_find_column_lists_the_columns_if_it_cannot_choose(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "a.csv", "one,two\ngood film,bad film\n"))
    with pytest.raises(HardmaxError, match=r"which column holds the texts\? Say --column; it has one, two"):
        find_column(table, None)
    with pytest.raises(HardmaxError, match="has no column 'three'; it has one, two"):
        find_column(table, "three")


def test_rows_are_written_with_their_own_columns_first(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "in.csv", 'n,review\n007,"a ""good"", film"\n8,\n'))
    write_rows(str(tmp_path / "out.csv"), table, ANSWERS)
    assert list(csv.reader((tmp_path / "out.csv").read_text().splitlines())) == [
        ["n", "review", *RESULT_COLUMNS],
        ["007", 'a "good", film', "positive", "0.9", "", "false", "good; film", ""],
        ["8", "", "", "", "", "", "", ""],
    ]
    write_rows(str(tmp_path / "out.jsonl"), table, ANSWERS)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert lines == [
        {"n": "007", "review": 'a "good", film', **ANSWERS[0]},
        {"n": "8", "review": "", **ANSWERS[1]},
    ]


def test_rows_of_parquet_keep_their_types(tmp_path: Path) -> None:
    table = pa.table({"n": pa.array([1, 2], pa.int8()), "review": ["good", "bad"], "label": ["?", "?"]})
    parquet.write_table(table, tmp_path / "in.parquet")
    write_rows(str(tmp_path / "out.parquet"), read_table(str(tmp_path / "in.parquet")), ANSWERS)
    written = parquet.read_table(tmp_path / "out.parquet")
    assert written.schema.field("n").type == pa.int8()
    rows = written.to_pylist()
    assert [(row["n"], row["review"], row["label"]) for row in rows] == [(1, "good", "?"), (2, "bad", "?")]
    assert [row["hardmax_label"] for row in rows] == ["positive", None]
    assert [row["leaders"] for row in rows] == [["good", "film"], None]


def test_rows_of_other_files_become_parquet_with_every_column(tmp_path: Path) -> None:
    """Columns of several types, or of one that parquet lacks, become strings."""
    first = {"text": "good", "n": 1, "mixed": 5, "long": 10**30, "tags": ["a", "b"], "none": {}}
    second = {"text": "bad", "n": 2.5, "mixed": "five", "late": True, "tags": "a \ud83d", "none": {}}
    text = "\n".join(map(json.dumps, [first, second]))
    write_rows(str(tmp_path / "out.parquet"), read_table(write(tmp_path, "in.jsonl", text)), ANSWERS)
    assert parquet.read_table(tmp_path / "out.parquet").drop_columns(list(RESULT_COLUMNS)).to_pydict() == {
        "text": ["good", "bad"],
        "n": [1.0, 2.5],
        "mixed": ["5", "five"],
        "long": [f"1{'0' * 30}", None],
        "tags": ["a; b", "a ?"],
        "none": ["{}", "{}"],
        "late": [None, True],
    }


def test_rows_with_half_a_character_are_written(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "in.jsonl", '{"text": "good \\ud83d"}\n{"text": "bad"}\n'))
    assert table.values("text") == ["good \ud83d", "bad"]
    for name in ("out.csv", "out.tsv", "out.jsonl", "out.parquet"):
        write_rows(str(tmp_path / name), table, ANSWERS)
    assert (tmp_path / "out.csv").read_text().splitlines()[1].startswith("good ?,positive")
    assert read_table(str(tmp_path / "out.jsonl")).values("text") == ["good \ud83d", "bad"]
    assert parquet.read_table(tmp_path / "out.parquet").column("text").to_pylist() == ["good ?", "bad"]


def test_nested_values_of_parquet_are_written_as_text(tmp_path: Path) -> None:
    rows = [{"text": text, "seen": {"on": date(2026, 11, 27)}, "days": [date(2026, 11, 27)]} for text in "ab"]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet")
    table = read_table(str(tmp_path / "in.parquet"))
    for name in ("out.csv", "out.xlsx"):
        write_rows(str(tmp_path / name), table, ANSWERS)
        first = read_table(str(tmp_path / name)).rows[0]
        assert (first["seen"], first["days"]) == ('{"on": "2026-11-27"}', '["2026-11-27"]')


def save_workbook(path: Path, cells: dict[str, object]) -> None:
    workbook = Workbook()
    for cell, value in cells.items():
        workbook.active[cell] = value
    workbook.save(path)


@pytest.mark.parametrize("cells", [["XFD1048576"], ["A1", "XFD1048576"], ["XFD1", "A1048576"]])
def test_workbook_with_a_cell_at_the_end_of_its_sheet_is_refused(tmp_path: Path, cells: list[str]) -> None:
    save_workbook(tmp_path / "a.xlsx", dict.fromkeys(cells, 1))
    assert (tmp_path / "a.xlsx").stat().st_size < 6000
    with pytest.raises(TooLarge, match="16,384 columns, more than 20,000,000 cells; delete what lies"):
        read_table(str(tmp_path / "a.xlsx"))


@pytest.mark.parametrize("damage", ["data", "encryption", "style"])
def test_damaged_workbook_is_named(tmp_path: Path, damage: str) -> None:
    file, name = tmp_path / "a.xlsx", b"xl/worksheets/sheet1.xml"
    save_workbook(file, {"A1": "review"})
    content = bytearray(file.read_bytes())
    if damage == "data":  # it follows the name
        content[content.index(name) + len(name) + 3] ^= 0xFF
    elif damage == "encryption":  # a flag in the directory at the end
        content[content.rindex(name) - 38] |= 1
    file.write_bytes(content)
    if damage == "style":
        with ZipFile(file) as source:
            parts = {part: source.read(part) for part in source.namelist()}
        with ZipFile(file, "w") as changed:
            for part, data in parts.items():
                changed.writestr(part, re.sub(rb"<fill>.*?</fill>", b"<fill/>", data))
    with pytest.raises(HardmaxError, match=r"a\.xlsx is not an xlsx file"):
        read_table(str(file))


def test_json_has_null_where_there_is_no_number(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"text": ["good"], "x": [[float("nan"), 1.0]]}), tmp_path / "a.parquet")
    for name in ("a.json", "a.jsonl"):
        write_rows(str(tmp_path / name), read_table(str(tmp_path / "a.parquet")), ANSWERS[:1])
        assert "NaN" not in (tmp_path / name).read_text()
        assert read_table(str(tmp_path / name)).values("x") == [[None, 1.0]]


def test_rows_are_written_as_a_workbook_and_as_json(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "in.csv", 'n,review\n007,"=1+1\nfilm"\n8,bell\a\n'))
    for name in ("out.xlsx", "out.json"):
        write_rows(str(tmp_path / name), table, ANSWERS)
    sheet = load_workbook(tmp_path / "out.xlsx").active
    assert list(sheet.values) == [
        ("n", "review", *RESULT_COLUMNS),
        ("007", "=1+1\nfilm", "positive", 0.9, None, False, "good; film", None),
        ("8", "bell?", *[None] * 6),
    ]
    assert sheet["B2"].data_type == "s"  # not a formula
    written = read_table(str(tmp_path / "out.xlsx"))
    assert (written.values("n"), written.values("label")) == (["007", "8"], ["positive", None])
    assert json.loads((tmp_path / "out.json").read_text())[0] == {
        "n": "007",
        "review": "=1+1\nfilm",
        **ANSWERS[0],
    }


def test_rows_that_cannot_all_be_written_leave_the_old_file(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "in.csv", "review\ngood\nbad\n"))
    out = write(tmp_path, "out.csv", "what was there")

    def interrupted() -> object:
        yield ANSWERS[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_rows(out, table, interrupted())  # type: ignore[arg-type]
    assert Path(out).read_text() == "what was there"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.csv"]


@pytest.mark.parametrize(
    ("content", "name", "lines"),
    [
        ("Text;n\r\nCafé;4,5\r\n".encode("cp1252"), "out.csv", ["Text;n;label;", "Café;4,5;good;0,9;"]),
        ("Text;n\r\nCafé;4\r\n".encode("utf-8-sig"), "out.csv", ["Text;n;label;", "Café;4;good;0,9;"]),
        ("Text;n\nCafé;4.5\n".encode("utf-16"), "out.csv", ["Text;n;label;", "Café;4.5;good;0.9;"]),
        (b"Text|n\nno|4\n", "out.csv", ["Text|n|label|", "no|4|good|0.9|"]),
        (b"Text,n\nno,4\n", "out.tsv", ["Text\tn\tlabel\t", "no\t4\tgood\t0.9\t"]),
        (b"Text;n\nno;4\n", "out.tsv", ["Text\tn\tlabel\t", "no\t4\tgood\t0,9\t"]),
    ],
)
def test_text_file_is_written_as_it_was_read(
    tmp_path: Path, content: bytes, name: str, lines: list[str]
) -> None:
    """Separator, decimal mark, byte order mark, encoding and line ends are those of the input."""
    table = read_table(write(tmp_path, "in.csv", content))
    write_rows(str(tmp_path / name), table, [{**NO_ANSWER, "label": "good", "score": 0.9}])
    written, encoding = (tmp_path / name).read_bytes(), table.text_format.encoding
    is_named = (f"{tmp_path}/in.csv is not UTF-8, and is read as Windows-1252 (cp1252)",)
    assert table.notes == (is_named if encoding == "cp1252" else ())
    assert written.startswith(content[: {"utf-8-sig": 3, "utf-16": 2}.get(encoding, 0)])
    assert (b"\r\n" in written) == (b"\r\n" in content)
    for line, beginning in zip(written.decode(encoding).splitlines(), lines, strict=True):
        assert line.startswith(beginning)


def test_csv_has_no_formulas(tmp_path: Path) -> None:
    """Cells that a spreadsheet would run are texts; numbers and amounts stay as they are."""
    formulas = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "- good", "@ann hello"]
    others = ["-5", "+3.25", "-1.234,56 €", "+49 170 1234567", "-", "'tis good", "1+1", "-1e-9"]
    rows = [{"text": text} for text in formulas + others]
    table = Table("", ("text",), rows, range(len(rows)))
    write_rows(str(tmp_path / "a.csv"), table)
    written = [row[0] for row in csv.reader((tmp_path / "a.csv").read_text().splitlines())][1:]
    assert written == [f"'{text}" for text in formulas] + [*others[:4], "'-", *others[5:]]
    assert read_table(str(tmp_path / "a.csv")).rows == rows  # the mark is not a part of the text


def test_types_of_a_workbook_survive(tmp_path: Path) -> None:
    moment = datetime(2026, 11, 25, 13, 30)
    cells = {"A1": "text", "B1": "day", "C1": "at", "D1": "paid", "E1": "n", "F1": "id"}
    values = {"A2": "good", "B2": date(2026, 11, 25), "C2": moment, "D2": True, "E2": 2.5, "F2": "007"}
    save_workbook(tmp_path / "in.xlsx", cells | values | {"A3": "NA", "E3": 3})
    table = read_table(str(tmp_path / "in.xlsx"))
    assert (table.columns, table.values("text"), table.numbers) == (
        tuple(cells.values()),
        ["good", "NA"],
        [2, 3],
    )
    for name in ("out.xlsx", "out.parquet"):
        write_rows(str(tmp_path / name), table, ANSWERS)
        row, last = read_table(str(tmp_path / name)).rows
        assert [row[name] for name in table.columns] == list(values.values())
        assert [last[name] for name in table.columns] == ["NA", None, None, None, 3, None]
    sheet = load_workbook(tmp_path / "out.xlsx").active
    assert [sheet[cell].is_date for cell in ("B2", "C2", "E2")] == [True, True, False]
    assert sheet["D2"].data_type == "b"


def test_all_sheets_of_a_workbook_are_read_or_named(tmp_path: Path) -> None:
    month = [["text", "n"], ["good", 1], ["bad", 2]]
    sheets = {
        "May": month,
        "June": [month[0], ["fine", 3]],
        "Prices": [["item", "price"], ["a", 1]],
        "Empty": [],
    }
    path = str(tmp_path / "in.xlsx")
    save_sheets(tmp_path / "in.xlsx", sheets)
    table = read_table(path)
    assert table.values("text") == ["good", "bad", "fine"]
    assert table.values("sheet") == ["May", "May", "June"]
    assert [note.removeprefix(f"{path}: ") for note in table.notes] == [
        "the rows of 2 sheets, with their names in column 'sheet'",
        "left out: sheet 'Prices', which has other columns (--sheet NAME reads it)",
    ]
    write_rows(str(tmp_path / "out.xlsx"), table, [*ANSWERS, ANSWERS[0]])
    written = load_workbook(tmp_path / "out.xlsx")
    assert written.sheetnames == ["May", "June"]
    assert [sheet["A2"].value for sheet in written] == ["good", "fine"]
    assert [sheet.max_row for sheet in written] == [3, 2]
    one = read_table(path, sheet="Prices")
    assert (one.rows, one.notes) == ([{"item": "a", "price": 1}], ())
    with pytest.raises(HardmaxError, match="has no sheet 'July'; it has May, June, Prices, Empty"):
        read_table(path, sheet="July")
    with pytest.raises(HardmaxError, match=r"--sheet is for \.xlsx, not for a\.csv"):
        read_table("a.csv", sheet="May")


def test_workbook_that_unpacks_to_gigabytes_is_refused(tmp_path: Path) -> None:
    """No part is unpacked beyond the size that the archive states."""
    save_workbook(tmp_path / "a.xlsx", {"A1": "text"})
    with ZipFile(tmp_path / "a.xlsx", "a") as archive:
        archive.writestr("xl/large.xml", b"0")
        archive.getinfo("xl/large.xml").file_size = 3 * 2**29
    with pytest.raises(TooLarge, match="1,536 MB once unpacked, more than 1,024 MB: save the sheet as"):
        read_table(str(tmp_path / "a.xlsx"))


REPEATED = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1100, np.int32)), ["x" * 2**20])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (REPEATED, "its values have more than 1,024 MB"),
        (pa.array(np.zeros(21_000_000, np.int8)), "21,000,000 cells"),
        (pa.ListArray.from_arrays([0, 21_000_000], np.zeros(21_000_000, np.int8)), "21,000,000 cells"),
    ],
    ids=["text", "number", "list"],
)
def test_parquet_with_values_that_repeat_too_often_is_refused(
    tmp_path: Path, column: pa.Array, message: str
) -> None:
    parquet.write_table(pa.table({"text": column}), tmp_path / "a.parquet", compression="zstd")
    assert (tmp_path / "a.parquet").stat().st_size < 3_000_000
    before = pa.total_allocated_bytes()
    with pytest.raises(TooLarge, match=message):
        read_table(str(tmp_path / "a.parquet"))
    assert pa.total_allocated_bytes() - before < 2**28
