"""A file of rows: opened or dropped, classified with progress, stopped, taken away as CSV."""

import csv
import io
import json

import httpx
import pytest
from answers import Answer, explained, word
from playwright.sync_api import Page, Route, expect
from visiting import Visit, expect_fit_for_everybody, settle

ROWS = ["A superb film.", 'He said "awful", twice.', "", "A mess,\nin two lines"]


def give(page: Page, name: str, content: str | bytes) -> None:
    raw = content if isinstance(content, bytes) else content.encode()
    file = {"name": name, "mimeType": "text/plain", "buffer": raw}
    page.locator("#rows-file").set_input_files(file)


def separated(rows: list[list[str]], mark: str = ",") -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=mark).writerows(rows)
    return text.getvalue()


def saved(page: Page) -> list[dict[str, str]]:
    with page.expect_download() as download:
        page.get_by_role("button", name="Take away as CSV").click()
    assert download.value.suggested_filename == "reviews-classified.csv"
    return list(csv.DictReader(io.StringIO(download.value.path().read_text())))


def test_rows_get_the_labels_of_the_service(review: Visit, server: str) -> None:
    page = review()
    table = [["stars", "review", "label"], *([str(k), text, "mine"] for k, text in enumerate(ROWS))]
    give(page, "reviews.csv", separated(table))
    expect(page.locator("#rows-state")).to_contain_text("4 of 4 rows: ")
    expect(page.locator("#rows-state")).to_contain_text("1 not answered")
    expect(page.locator("#rows-column")).to_have_value("review")
    expect(page.locator("#rows-stop")).to_be_hidden()
    texts = [text for text in ROWS if text]
    answers = httpx.post(f"{server}/classify", json={"input": texts}).json()["data"]
    found = saved(page)
    assert [row["review"] for row in found] == ROWS
    assert [row["label"] for row in found] == ["mine"] * 4  # a column of one's own stays
    told = [row for row in found if not row["hardmax_error"]]
    for row, answer in zip(told, answers, strict=True):
        assert row["hardmax_label"] == answer["label"]
        assert row["score"] == str(answer["score"])
        assert row["abstain_reason"] == (answer["abstain_reason"] or "")
        weights = [(leader["word"], leader["contribution"]) for leader in answer["leaders"]]
        assert row["leaders"] == "; ".join(f"{name} {x:+.2f}" for name, x in weights if abs(x) >= 0.05)
    assert found[2]["hardmax_error"] == "the text is empty"
    expect_fit_for_everybody(page)


def test_row_is_read_on_a_narrow_screen(review: Visit) -> None:
    page = review(width=390)
    give(page, "reviews.csv", separated([["text"], ["A superb film. " * 9], ["x" * 300]]))
    expect(page.locator("#rows-state")).to_contain_text("2 of 2 rows: ")
    box = page.locator("#rows-body td").first.bounding_box()
    assert box is not None
    assert box["width"] > 120  # four words a line


def test_texts_are_found_in_any_file(visit: Visit) -> None:
    files = [
        ("reviews.csv", separated([["text"], *([text] for text in ROWS)])),
        ("reviews.csv", separated([["a", "body"], *(["x", text] for text in ROWS)], ";")),
        ("reviews.csv", "\r\n" + separated([["a", "body"], *(["x", text] for text in ROWS)])),
        ("reviews.csv", separated([["a long comment", "Review_Text"], *(["x" * 90, text] for text in ROWS)])),
        ("reviews.csv", separated([["", "評価", "review"], *([str(k), "x", t] for k, t in enumerate(ROWS))])),
        ("reviews.tsv", separated([["1", text] for text in ROWS], "\t")),
        ("reviews.jsonl", "\n".join(json.dumps({"id": 1, "Review": text}) for text in ROWS)),
        ("reviews.jsonl", "\n".join(json.dumps(text) for text in ROWS) + "\n"),
        ("reviews.txt", "\r\n".join(text.replace("\n", " ") for text in ROWS)),
    ]
    found = visit("#model").evaluate(
        """async (files) => {
            const { readTable, columnOf } = await import("/web/review/table.js");
            const tables = files.map(([name, content]) => readTable(content, name));
            return tables.map((table) => table.rows.map((row) => row[columnOf(table)]));
        }""",
        files,
    )
    for file, texts in zip(files, found, strict=True):
        assert [text.replace("\n", " ") for text in texts] == [text.replace("\n", " ") for text in ROWS], file


def test_file_that_cannot_be_read_is_refused_with_its_line(review: Visit) -> None:
    page = review()
    for name, content, problem in [
        ("a.csv", 'a,b\n1,"open', "row 2 has a quote that does not end"),
        ("a.csv", "a,b\n1,2,3", "row 2 has 3 cells, the first has 2"),
        ("a.csv", "a,review,review\n1,x,y", "it has two columns \u201creview\u201d"),
        ("a.csv", "a,b\nfine,1\ncaf\u00e9,2".encode("latin-1"), "line 3 is not UTF-8 text; save it so"),
        ("a.xlsx", b"PK\x03\x04\x00\xe9", "it is no text; save it as csv first"),
        ("a.jsonl", '"fine"\n{oops', "line 2 is not JSON: {oops"),
        ("a.txt", "", "there are no rows in it"),
        ("a.xlsx", "PK\x03\x04\x00", "it is no text; save it as csv first"),
    ]:
        give(page, name, content)
        expect(page.locator("#review-problem")).to_contain_text(f"{name} cannot be read: {problem}")
        expect(page.locator("#rows")).to_be_hidden()


def fine(count: int) -> Answer:
    """So many answers to the text "fine"."""
    one = explained("fine", [word("fine", 1.0, leader=True)])
    return {**one, "data": one["data"] * count}


def test_dropped_file_is_stopped_and_gone_on_with(review: Visit) -> None:
    """One request at a time; the second is not answered before somebody stops."""
    sizes: list[int] = []

    def fulfil(route: Route) -> None:
        texts = json.loads(route.request.post_data or "{}")["input"]
        if isinstance(texts, str):  # the text on the page, not a file's
            route.continue_()
            return
        sizes.append(len(texts))
        if len(sizes) != 2:
            route.fulfill(json=fine(len(texts)))

    page = review()
    page.route("**/classify", fulfil)
    page.evaluate(
        """() => {
            const data = new DataTransfer();
            const rows = Array.from({ length: 150 }, (_, k) => `fine ${k}`);
            data.items.add(new File([rows.join("\\n")], "reviews.txt"));
            const drop = new DragEvent("drop", { dataTransfer: data, cancelable: true, bubbles: true });
            document.getElementById("review").dispatchEvent(drop);
        }"""
    )
    expect(page.locator("#rows-state")).to_have_text("64 of 150 rows: 64 positive.")
    assert page.locator("#rows-progress").evaluate("bar => bar.value / bar.max") == pytest.approx(64 / 150)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#rows-state")).to_have_text("64 of 150 rows: 64 positive. Stopped.")
    assert len(saved(page)) == 64
    page.get_by_role("button", name="Go on").click()
    expect(page.locator("#rows-state")).to_have_text("150 of 150 rows: 150 positive.")
    assert sizes == [64, 64, 64, 22]
    expect(page.locator("#rows-body tr")).to_have_count(100)
    page.get_by_role("button", name="Close").click()
    expect(page.locator("#rows")).to_be_hidden()


def test_busy_server_is_asked_again_and_a_refused_row_stands_alone(review: Visit) -> None:
    busy = [True]

    def fulfil(route: Route) -> None:
        texts = json.loads(route.request.post_data or "{}")["input"]
        texts = [texts] if isinstance(texts, str) else texts
        if busy[0]:
            busy[0] = False
            refusal = {"error": {"message": "too many requests"}}
            route.fulfill(status=429, headers={"retry-after": "1"}, json=refusal)
        elif "bad row" in texts:
            route.fulfill(status=413, json={"error": {"message": "this text is too long"}})
        else:
            route.fulfill(json=fine(len(texts)))

    page = review()
    page.route("**/classify", fulfil)
    give(page, "reviews.txt", "\n".join(["fine"] * 5 + ["bad row"] + ["fine"] * 3))
    expect(page.locator("#rows-state")).to_have_text("9 of 9 rows: 8 positive, 1 not answered.")
    assert [row["hardmax_error"] for row in saved(page)] == [""] * 5 + ["this text is too long"] + [""] * 3


def test_row_of_a_model_that_abstains_has_its_label_and_the_reason(review: Visit) -> None:
    unlike = explained("fine", [word("fine", 1.0, leader=True)], abstain_reason="out_of_distribution")
    page = review()
    page.route("**/classify", lambda route: route.fulfill(json=unlike))
    give(page, "reviews.txt", "fine")
    expect(page.locator("#rows-body td")).to_have_text(
        ["fine", "positive out of distribution", "73.1 %", "fine +1.00"]
    )
    expect(page.locator("#rows-state")).to_have_text("1 of 1 row: 1 positive (1 abstained).")
    row = saved(page)[0]  # as the command line writes it
    assert (row["label"], row["abstain_reason"]) == ("positive", "out_of_distribution")


def test_server_that_is_gone_leaves_what_was_answered(review: Visit) -> None:
    page = review()
    page.route("**/classify", lambda route: route.abort())
    give(page, "reviews.txt", "fine\nwell")
    expect(page.locator("#rows-state")).to_have_text(
        "0 of 2 rows. The server does not answer. Is it still running?"
    )
    page.unroute("**/classify")
    page.get_by_role("button", name="Go on").click()
    expect(page.locator("#rows-state")).to_contain_text("2 of 2 rows: ")


def test_rows_are_all_asked_of_the_model_that_was_chosen_when_they_began(visit: Visit) -> None:
    asked: list[str] = []

    def fulfil(route: Route) -> None:
        body = json.loads(route.request.post_data or "{}")
        if isinstance(body["input"], str):  # the text on the page, not a file's
            route.fulfill(json=fine(1))
            return
        asked.append(body["model"])
        if len(asked) == 1:
            page.evaluate("document.getElementById('review-model').value = 'mine'")
            page.locator("#review-model").dispatch_event("change")
        route.fulfill(json=fine(len(body["input"])))

    def two(route: Route) -> None:
        cards = route.fetch().json()["models"]
        mine = {**next(card for card in cards if card.get("default")), "name": "mine", "default": False}
        route.fulfill(json={"models": [*cards, mine]})

    page = settle(visit("#review", before=lambda page: page.route("**/models", two)))
    page.route("**/classify", fulfil)
    give(page, "reviews.txt", "\n".join(["fine"] * 150))
    expect(page.locator("#rows-state")).to_have_text("150 of 150 rows: 150 positive.")
    assert asked == ["sentiment-small"] * 3


def test_file_without_rows_leaves_the_table_before_it_as_it_was(review: Visit) -> None:
    page = review()
    page.route("**/classify", lambda route: route.fulfill(json=fine(2)))
    give(page, "reviews.csv", "id,review\n1,fine\n2,fine\n")
    expect(page.locator("#rows-state")).to_have_text("2 of 2 rows: 2 positive.")
    give(page, "empty.csv", "stars,text\n")
    expect(page.locator("#review-problem")).to_contain_text("there are no rows in it")
    assert [(row["id"], row["review"], row["label"]) for row in saved(page)] == [
        ("1", "fine", "positive"),
        ("2", "fine", "positive"),
    ]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_file_that_names_its_encoding_is_read_by_it(review: Visit, encoding: str) -> None:
    page = review()
    page.route("**/classify", lambda route: route.fulfill(json=fine(1)))
    give(page, "reviews.csv", "id,review\n1,un caf\u00e9\n".encode(encoding))
    expect(page.locator("#rows-body td").first).to_have_text("un caf\u00e9")
    assert saved(page)[0]["id"] == "1"


def test_column_without_a_name_is_called_by_its_place(visit: Visit) -> None:
    found = visit("#model").evaluate(
        """async () => {
            const { readTable } = await import("/web/review/table.js");
            const files = [",review\\n0,fine\\n1,well\\n", ",a film\\n,another film\\n", "\\na film\\n"];
            const tables = files.map((text) => readTable(text, "a.csv"));
            return tables.map(({ columns, rows }) => [columns, rows.length]);
        }"""
    )
    unnamed = ["column_1", "column_2"]
    assert found == [[["column_1", "review"], 2], [unnamed, 2], [["column_1"], 2]]
