"""Classification of a file: opened or dropped, classified with progress, stopped, downloaded as CSV."""

import csv
import io
import json

import httpx
import pytest
from page_actions import OpenPage, RunScript, add_models, expect_accessible_layout, wait_until_ready
from playwright.sync_api import Page, Route, expect
from sample_answers import Answer, make_answer, word

ROWS = ["A superb film.", 'He said "awful", twice.', "", "A mess,\nin two lines"]


def upload_file(page: Page, name: str, content: str | bytes) -> None:
    raw = content if isinstance(content, bytes) else content.encode()
    file = {"name": name, "mimeType": "text/plain", "buffer": raw}
    page.locator("#rows-file").set_input_files(file)


def to_csv(rows: list[list[str]], delimiter: str = ",") -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows(rows)
    return text.getvalue()


def download_rows(page: Page) -> list[dict[str, str]]:
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    assert download.value.suggested_filename == "reviews-classified.csv"
    return list(csv.DictReader(io.StringIO(download.value.path().read_text())))


def test_rows_get_the_labels_of_the_service(open_review: OpenPage, server: str) -> None:
    page = open_review()
    table = [["stars", "review", "label"], *([str(k), text, "mine"] for k, text in enumerate(ROWS))]
    upload_file(page, "reviews.csv", to_csv(table))
    expect(page.locator("#rows-state")).to_contain_text("4 of 4 rows: ")
    expect(page.locator("#rows-state")).to_contain_text("1 failed")
    expect(page.locator("#rows-column")).to_have_value("review")
    expect(page.locator("#rows-stop")).to_be_hidden()
    texts = [text for text in ROWS if text]
    answers = httpx.post(f"{server}/classify", json={"input": texts}).json()["data"]
    rows = download_rows(page)
    assert [row["review"] for row in rows] == ROWS
    assert [row["label"] for row in rows] == ["mine"] * 4  # a column of the file stays
    labelled_rows = [row for row in rows if not row["hardmax_error"]]
    for row, answer in zip(labelled_rows, answers, strict=True):
        assert row["hardmax_label"] == answer["label"]
        assert row["score"] == str(answer["score"])
        assert row["abstain_reason"] == (answer["abstain_reason"] or "")
        weights = [(leader["word"], leader["contribution"]) for leader in answer["leaders"]]
        assert row["leaders"] == "; ".join(f"{name} {x:+.2f}" for name, x in weights if abs(x) >= 0.05)
    assert rows[2]["hardmax_error"] == "the text is empty"
    expect_accessible_layout(page)


def test_row_is_readable_on_a_narrow_screen(open_review: OpenPage) -> None:
    page = open_review(width=390)
    upload_file(page, "reviews.csv", to_csv([["text"], ["A superb film. " * 9], ["x" * 300]]))
    expect(page.locator("#rows-state")).to_contain_text("2 of 2 rows: ")
    box = page.locator("#rows-body td").first.bounding_box()
    assert box is not None
    assert box["width"] > 120  # four words a line


def test_texts_are_found_in_any_file(run_script: RunScript) -> None:
    files = [
        ("reviews.csv", to_csv([["text"], *([text] for text in ROWS)])),
        ("reviews.csv", to_csv([["a", "body"], *(["x", text] for text in ROWS)], ";")),
        ("reviews.csv", "\r\n" + to_csv([["a", "body"], *(["x", text] for text in ROWS)])),
        ("reviews.csv", to_csv([["a long comment", "Review_Text"], *(["x" * 90, text] for text in ROWS)])),
        ("reviews.csv", to_csv([["", "評価", "review"], *([str(k), "x", t] for k, t in enumerate(ROWS))])),
        ("reviews.tsv", to_csv([["1", text] for text in ROWS], "\t")),
        ("reviews.jsonl", "\n".join(json.dumps({"id": 1, "Review": text}) for text in ROWS)),
        ("reviews.jsonl", "\n".join(json.dumps(text) for text in ROWS) + "\n"),
        ("reviews.txt", "\r\n".join(text.replace("\n", " ") for text in ROWS)),
    ]
    rows = run_script(
        """async (files) => {
            const { parseTable, findTextColumn } = await import("/web/review/table.js");
            const tables = files.map(([name, content]) => parseTable(content, name));
            return tables.map((table) => table.rows.map((row) => row[findTextColumn(table)]));
        }""",
        files,
    )
    for file, texts in zip(files, rows, strict=True):
        assert [text.replace("\n", " ") for text in texts] == [text.replace("\n", " ") for text in ROWS], file


def test_unreadable_file_is_rejected_with_its_line(open_review: OpenPage) -> None:
    page = open_review()
    for name, content, problem in [
        ("a.csv", 'a,b\n1,"open', "row 2 has an unclosed quote"),
        ("a.csv", "a,b\n1,2,3", "row 2 has 3 cells, the first 2"),
        ("a.csv", "a,review,review\n1,x,y", "it has two columns \u201creview\u201d"),
        ("a.csv", "a,b\nfine,1\ncaf\u00e9,2".encode("latin-1"), "line 3 is not UTF-8; save the file"),
        ("a.xlsx", b"PK\x03\x04\x00\xe9", "it is not a text file; save it as csv first"),
        ("a.jsonl", '"fine"\n{oops', "line 2 is not JSON: {oops"),
        ("a.txt", "", "the file has no rows"),
        ("a.xlsx", "PK\x03\x04\x00", "it is not a text file; save it as csv first"),
    ]:
        upload_file(page, name, content)
        expect(page.locator("#review-error")).to_contain_text(f"{name} cannot be read: {problem}")
        expect(page.locator("#rows")).to_be_hidden()


def make_answers(count: int) -> Answer:
    """Return `count` answers to the text "fine"."""
    answer = make_answer("fine", [word("fine", 1.0, leader=True)])
    return {**answer, "data": answer["data"] * count}


def test_dropped_file_is_stopped_and_continued(open_review: OpenPage) -> None:
    """Requests are sent one by one; the second is not answered before the user stops."""
    sizes: list[int] = []

    def fulfil(route: Route) -> None:
        texts = json.loads(route.request.post_data or "{}")["input"]
        if isinstance(texts, str):  # the text on the page, not a file's
            route.continue_()
            return
        sizes.append(len(texts))
        if len(sizes) != 2:
            route.fulfill(json=make_answers(len(texts)))

    page = open_review()
    page.route("**/classify", fulfil)
    page.evaluate(
        """() => {
            const data = new DataTransfer();
            const rows = Array.from({ length: 150 }, (_, k) => `fine ${k}`);
            data.items.add(new File([rows.join("\\n")], "reviews.txt"));
            const drop = new DragEvent("drop", { dataTransfer: data, cancelable: true, bubbles: true });
            document.getElementById("review-text").dispatchEvent(drop);
        }"""
    )
    expect(page.locator("#rows-state")).to_have_text("64 of 150 rows: 64 positive.")
    assert page.locator("#rows-progress").evaluate("bar => bar.value / bar.max") == pytest.approx(64 / 150)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#rows-state")).to_have_text("64 of 150 rows: 64 positive. Stopped.")
    assert len(download_rows(page)) == 64
    page.get_by_role("button", name="Continue").click()
    expect(page.locator("#rows-state")).to_have_text("150 of 150 rows: 150 positive.")
    assert sizes == [64, 64, 64, 22]
    expect(page.locator("#rows-body tr")).to_have_count(100)
    page.get_by_role("button", name="Close").click()
    expect(page.locator("#rows")).to_be_hidden()


def test_busy_server_is_retried_and_a_rejected_row_fails_alone(open_review: OpenPage) -> None:
    is_busy = [True]

    def fulfil(route: Route) -> None:
        texts = json.loads(route.request.post_data or "{}")["input"]
        texts = [texts] if isinstance(texts, str) else texts
        if is_busy[0]:
            is_busy[0] = False
            refusal = {"error": {"message": "too many requests"}}
            route.fulfill(status=429, headers={"retry-after": "1"}, json=refusal)
        elif "bad row" in texts:
            route.fulfill(status=413, json={"error": {"message": "this text is too long"}})
        else:
            route.fulfill(json=make_answers(len(texts)))

    page = open_review()
    page.route("**/classify", fulfil)
    upload_file(page, "reviews.txt", "\n".join(["fine"] * 5 + ["bad row"] + ["fine"] * 3))
    expect(page.locator("#rows-state")).to_have_text("9 of 9 rows: 8 positive, 1 failed.")
    assert [row["hardmax_error"] for row in download_rows(page)] == [""] * 5 + ["this text is too long"] + [
        ""
    ] * 3


def test_row_of_a_model_that_abstains_has_its_label_and_the_reason(open_review: OpenPage) -> None:
    answer = make_answer("fine", [word("fine", 1.0, leader=True)], abstain_reason="out_of_distribution")
    page = open_review()
    page.route("**/classify", lambda route: route.fulfill(json=answer))
    upload_file(page, "reviews.txt", "fine")
    expect(page.locator("#rows-body td")).to_have_text(
        ["fine", "positive out of distribution", "73.1 %", "fine +1.00"]
    )
    expect(page.locator("#rows-state")).to_have_text("1 of 1 row: 1 positive (1 abstained).")
    row = download_rows(page)[0]  # as the CLI writes it
    assert (row["label"], row["abstain_reason"]) == ("positive", "out_of_distribution")


def test_unreachable_server_leaves_the_classified_rows(open_review: OpenPage) -> None:
    page = open_review()
    page.route("**/classify", lambda route: route.abort())
    upload_file(page, "reviews.txt", "fine\nwell")
    expect(page.locator("#rows-state")).to_have_text(
        "0 of 2 rows. The server does not answer. Is it still running?"
    )
    page.unroute("**/classify")
    page.get_by_role("button", name="Continue").click()
    expect(page.locator("#rows-state")).to_contain_text("2 of 2 rows: ")


def test_rows_are_all_classified_by_the_model_selected_at_the_start(open_page: OpenPage) -> None:
    models: list[str] = []

    def fulfil(route: Route) -> None:
        body = json.loads(route.request.post_data or "{}")
        if isinstance(body["input"], str):  # the text on the page, not a file's
            route.fulfill(json=make_answers(1))
            return
        models.append(body["model"])
        if len(models) == 1:
            page.evaluate("document.getElementById('review-model').value = 'mine'")
            page.locator("#review-model").dispatch_event("change")
        route.fulfill(json=make_answers(len(body["input"])))

    def add_model(page: Page) -> None:
        add_models(page, {"name": "mine"}, like_default=True)

    page = wait_until_ready(open_page("#review", before=add_model))
    page.route("**/classify", fulfil)
    upload_file(page, "reviews.txt", "\n".join(["fine"] * 150))
    expect(page.locator("#rows-state")).to_have_text("150 of 150 rows: 150 positive.")
    assert models == ["sentiment-small"] * 3


def test_file_without_rows_keeps_the_previous_table(open_review: OpenPage) -> None:
    page = open_review()
    page.route("**/classify", lambda route: route.fulfill(json=make_answers(2)))
    upload_file(page, "reviews.csv", "id,review\n1,fine\n2,fine\n")
    expect(page.locator("#rows-state")).to_have_text("2 of 2 rows: 2 positive.")
    upload_file(page, "empty.csv", "stars,text\n")
    expect(page.locator("#review-error")).to_contain_text("the file has no rows")
    assert [(row["id"], row["review"], row["label"]) for row in download_rows(page)] == [
        ("1", "fine", "positive"),
        ("2", "fine", "positive"),
    ]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_file_with_a_byte_order_mark_is_decoded(open_review: OpenPage, encoding: str) -> None:
    page = open_review()
    page.route("**/classify", lambda route: route.fulfill(json=make_answers(1)))
    upload_file(page, "reviews.csv", "id,review\n1,un caf\u00e9\n".encode(encoding))
    expect(page.locator("#rows-body td").first).to_have_text("un caf\u00e9")
    assert download_rows(page)[0]["id"] == "1"


def test_column_without_a_name_gets_its_number(run_script: RunScript) -> None:
    rows = run_script(
        """async () => {
            const { parseTable } = await import("/web/review/table.js");
            const files = [",review\\n0,fine\\n1,well\\n", ",a film\\n,another film\\n", "\\na film\\n"];
            const tables = files.map((text) => parseTable(text, "a.csv"));
            return tables.map(({ columns, rows }) => [columns, rows.length]);
        }"""
    )
    unnamed = ["column_1", "column_2"]
    assert rows == [[["column_1", "review"], 2], [unnamed, 2], [["column_1"], 2]]
