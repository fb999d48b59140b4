"""Files of messages: what is read from csv, tsv, jsonl, xlsx and txt, and csv in the format of the input."""

import csv
import datetime
import io
import json
import zipfile

import pytest
from messages_page import download, make_answers, open_messages, upload_file, wait_for_rows
from page_actions import OpenPage, RunScript
from playwright.sync_api import Page, expect
from workbooks import save_sheets

TEXTS = ["A superb film.", 'He said "awful", twice.', "", "A mess,\nin two lines"]


def to_csv(rows: list[list[str]], delimiter: str = ",") -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows(rows)
    return text.getvalue()


def to_xlsx(sheets: dict[str, list[list[object]]]) -> bytes:
    content = io.BytesIO()
    save_sheets(content, sheets)
    return content.getvalue()


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    """The mode for many messages, where every text is positive with a score of .731."""
    return open_messages(open_page, answer=lambda request: make_answers(_count(request["input"])))


def _count(texts: str | list[str]) -> int:
    return 1 if isinstance(texts, str) else len(texts)


def test_texts_are_found_in_any_file(run_script: RunScript) -> None:
    files = [
        ("reviews.csv", to_csv([["text"], *([text] for text in TEXTS)])),
        ("reviews.csv", to_csv([["a", "body"], *(["x", text] for text in TEXTS)], ";")),
        ("reviews.csv", "\r\n" + to_csv([["a", "body"], *(["x", text] for text in TEXTS)])),
        ("reviews.csv", to_csv([["a long comment", "Review_Text"], *(["x" * 90, text] for text in TEXTS)])),
        ("reviews.csv", to_csv([["", "評価", "review"], *([str(k), "x", t] for k, t in enumerate(TEXTS))])),
        ("reviews.tsv", to_csv([["1", text] for text in TEXTS], "\t")),
        ("reviews.jsonl", "\n".join(json.dumps({"id": 1, "Review": text}) for text in TEXTS)),
        ("reviews.jsonl", "\n".join(json.dumps(text) for text in TEXTS) + "\n"),
        ("reviews.txt", "\r\n".join(text.replace("\n", " ") for text in TEXTS)),
    ]
    rows = run_script(
        """async (files) => {
            const { parseTable, findTextColumn } = await import("/web/messages/table.js");
            const tables = files.map(([name, content]) => parseTable(content, name));
            return tables.map((table) => table.rows.map((row) => row[findTextColumn(table)]));
        }""",
        files,
    )
    for file, texts in zip(files, rows, strict=True):
        assert [text.replace("\n", " ") for text in texts] == [text.replace("\n", " ") for text in TEXTS], (
            file
        )


def test_pasted_cells_of_a_spreadsheet_are_columns(page: Page) -> None:
    page.get_by_label("Paste messages").fill("id\treview\n7\tfine\n\n8\twell done")
    page.get_by_role("button", name="Classify", exact=True).click()
    wait_for_rows(page, 2)
    expect(page.locator("#rows-column")).to_have_value("review")
    expect(page.locator("#rows-body td:nth-child(2)")).to_have_text(["fine", "well done"])


def test_unreadable_file_is_rejected_with_its_line(page: Page) -> None:
    cut = to_xlsx({"a": [["fine"]]})[:-30]
    for name, content, problem in [
        ("a.csv", 'a,b\n1,"open', "row 2 has an unclosed quote"),
        ("a.csv", "a,b\n1,2,3", "row 2 has 3 cells, the first 2"),
        ("a.csv", "a,review,review\n1,x,y", "it has two columns \u201creview\u201d"),
        ("a.csv", "\ufeffa,b\nfine,1\n".encode() + b"caf\xe9,2", "line 3 is not UTF-8"),
        ("a.csv", "a,b\nnaïve ö\n".encode() + b"caf\xe9,2", "line 3 is not UTF-8"),  # damaged UTF-8
        ("a.xls", b"\xd0\xcf\x00\xe9", "it is not a text file; save it as csv or xlsx first"),
        ("a.xlsx", b"PK\x03\x04\x00\xe9", "it is not an xlsx file"),
        ("a.xlsx", cut, "it is not an xlsx file"),
        ("a.jsonl", '"fine"\n{oops', "line 2 is not JSON: {oops"),
        ("a.txt", "", "the file has no rows"),
        ("a.xlsx", to_xlsx({"a": [], "b": []}), "the file has no rows"),
    ]:
        upload_file(page, name, content)
        expect(page.locator("#messages-error")).to_contain_text(f"{name} cannot be read: {problem}")
        expect(page.locator("#rows")).to_be_hidden()


@pytest.mark.parametrize(
    ("encoding", "separator", "newline", "number"),
    [
        ("utf-8", ",", "\n", "1.5"), ("utf-8-sig", ";", "\r\n", "1,5"), ("utf-16", "\t", "\r\n", "1,5"),
        ("cp1252", ";", "\r\n", "1,5"), ("cp1252", ";", "\n", "1.5"),
    ],
)  # fmt: skip
def test_csv_has_the_format_of_its_input(
    page: Page, encoding: str, separator: str, newline: str, number: str
) -> None:
    cells = [["stars", "review"], [number, "un caf\u00e9 \u201cfin\u201d \u20ac"], ["-2", f"a{separator}b"]]
    content = to_csv(cells, separator).replace("\r\n", newline).encode(encoding)
    upload_file(page, "reviews.csv", content)
    wait_for_rows(page, 2)
    expect(page.locator("#rows-body td:nth-child(2)").first).to_have_text(cells[1][1])
    saved = download(page, "Download CSV", "reviews-classified.csv")
    text = saved.decode(encoding)
    assert saved == text.encode(encoding)  # with the mark, and without another
    assert text.count("\r\n") == (text.count("\n") if newline == "\r\n" else 0)
    header, first, second = csv.reader(io.StringIO(text), delimiter=separator)
    assert header == [
        "stars",
        "review",
        "label",
        "score",
        "abstain_reason",
        "truncated",
        "leaders",
        "hardmax_error",
    ]
    assert [first[:2], second[:2]] == cells[1:]
    decimal = "," if "," in number else "."
    assert first[3].startswith(f"0{decimal}731")


def test_label_without_letters_in_the_encoding_of_the_input_makes_utf8(run_script: RunScript) -> None:
    saved = run_script(
        """async () => {
            const { encodeText } = await import("/web/messages/table.js");
            const format = { encoding: "windows-1252", mark: false };
            const texts = ["\\u20ac\\u0081\\u00ff", "\\u8bc4\\ud83d\\ude00"];
            return texts.map((text) => [...encodeText(text, format)]);
        }"""
    )
    assert bytes(saved[0]) == b"\x80\x81\xff"
    assert bytes(saved[1]).decode("utf-8-sig") == "评\U0001f600"


def test_cells_that_look_like_formulas_are_text(page: Page) -> None:
    cells = ["=1+1", "+49 30 123", "-good", "@user", "\tx", "-1.5", "+3", "plain", "1=1"]
    upload_file(page, "reviews.csv", to_csv([["note", "review"], *([cell, "fine"] for cell in cells)]))
    wait_for_rows(page, len(cells))
    text = download(page, "Download CSV", "reviews-classified.csv").decode()
    notes = [row["note"] for row in csv.DictReader(io.StringIO(text))]
    upload_file(page, "reviews.csv", text)  # reading it again removes the apostrophes
    wait_for_rows(page, len(cells))
    assert download(page, "Download CSV", "reviews-classified.csv").decode().count("'=1+1") == 1
    assert notes == ["'=1+1", "+49 30 123", "'-good", "'@user", "'\tx", "-1.5", "+3", "plain", "1=1"]


def test_workbook_keeps_types_and_lists_its_sheets(page: Page) -> None:
    day = datetime.datetime(2026, 11, 28)
    header = ["day", "at", "paid", "stars", "review"]
    rows = [
        header,
        [day, day.replace(hour=10, minute=30), True, 4.5, "fine \u00e9 & <b>"],
        [None, datetime.time(9, 5), False, -2, "two\nlines"],
        [],
        [datetime.date(1999, 12, 31), None, None, 100, "=text"],
    ]
    rows[-1][-1] = "third"
    book = to_xlsx({"Empty": [], "March": rows, "April & May": [["review"], ["only one"]]})
    upload_file(page, "book.xlsx", book)
    wait_for_rows(page, 3)
    expect(page.locator("#rows-sheet")).to_have_value("March")
    assert page.locator("#rows-sheet option").all_inner_texts() == ["Empty", "March", "April & May"]
    saved = download(page, "Download CSV", "book-classified.csv").decode("utf-8-sig")
    table = [row[:5] for row in csv.reader(io.StringIO(saved))]
    assert table == [
        header,
        ["2026-11-28", "2026-11-28 10:30:00", "true", "4.5", "fine \u00e9 & <b>"],
        ["", "09:05:00", "false", "-2", "two\nlines"],
        ["1999-12-31", "", "", "100", "third"],
    ]
    page.locator("#rows-sheet").select_option("April & May")
    wait_for_rows(page, 1)
    expect(page.locator("#rows-body td:nth-child(2)")).to_have_text(["only one"])
    page.locator("#rows-sheet").select_option("Empty")
    expect(page.locator("#messages-error")).to_contain_text("the sheet \u201cEmpty\u201d has no rows")
    expect(page.locator("#rows-body td:nth-child(2)")).to_have_text(["only one"])


def test_workbook_that_unpacks_to_gigabytes_is_refused(page: Page) -> None:
    source = io.BytesIO(to_xlsx({"a": [["review"], ["fine"]]}))
    content = io.BytesIO()
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, b" " * 150_000_000 if "sheet1" in name else old.read(name))
    assert content.tell() < 1_000_000
    upload_file(page, "bomb.xlsx", content.getvalue())
    expect(page.locator("#messages-error")).to_contain_text("larger than 100 MB; save it as csv")


def test_csv_of_pasted_text_has_the_format_of_the_language(run_script: RunScript) -> None:
    formats = run_script(
        """async () => {
            const { localFormat, formatCsv } = await import("/web/messages/table.js");
            const format = (name) => formatCsv(["a", "b"], [{ a: 1.5, b: "x" }], localFormat(name));
            return ["en-US", "de-DE"].map(format);
        }"""
    )
    assert formats == ["a,b\r\n1.5,x\r\n", "a;b\r\n1,5;x\r\n"]
