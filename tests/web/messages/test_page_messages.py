"""Many messages: pasted, opened or dropped, classified with progress, filtered, explained, corrected."""

import json
import re
from pathlib import Path

import httpx
import pytest
from messages_page import download_rows, download_text, make_answers, open_messages, paste, upload_file
from page_actions import OpenPage, add_models, expect_accessible_layout
from playwright.sync_api import Page, Route, expect
from sample_answers import Answer, make_answer, word

from evaluation.labels import read_rows

LINES = ["A superb film.", "A dreadful mess.", "Great acting and a lovely script.", "Awful, awful, awful."]
MANY = [f"{LINES[k % 4]} ({k})" for k in range(60)]


def answer_by_words(request: Answer) -> Answer:
    """Return a negative answer to texts with a dreadful or awful word, and a positive one to others."""
    texts = [request["input"]] if isinstance(request["input"], str) else request["input"]
    items = []
    for text in texts:
        first = text.split()[0]
        size = -1.0 if "readful" in text or "wful" in text else 1.0
        words = [word(first, size * (1 + len(items) % 7 / 5), leader=True, read=[])]
        items += make_answer(text, words)["data"]
    return {"id": "x", "model": "sentiment-small", "data": items}


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    """The mode with 60 pasted messages and their labels."""
    return paste(open_messages(open_page, answer=answer_by_words), MANY)


def shown_texts(page: Page) -> list[str]:
    return page.locator("#rows-body tr td:nth-child(2)").all_inner_texts()


@pytest.mark.parametrize("width", [1280, 390])
def test_rows_get_the_labels_of_the_service_on_the_screen(
    open_page: OpenPage, server: str, width: int
) -> None:
    page = paste(open_messages(open_page, width=width), MANY)
    answers = httpx.post(f"{server}/classify", json={"input": MANY}, timeout=60).json()["data"]
    labels = [answer["label"] for answer in answers]
    for part in ("#rows-title", "#rows-state", "#rows-chart", "#rows-body tr >> nth=0"):
        expect(page.locator(part)).to_be_in_viewport()
    expect(page.locator("#rows-state")).to_contain_text("60 of 60 rows classified by sentiment-small")
    shown = page.locator("#rows-body select").evaluate_all("all => all.map(({ value }) => value)")
    decided = [not answer["abstain_reason"] for answer in answers]
    pairs = zip(shown, labels, decided, strict=False)
    assert [value == label for value, label, sure in pairs if sure] == [True] * sum(decided[:50])
    for name in {label for label, sure in zip(labels, decided, strict=True) if sure}:
        count = sum(label == name and sure for label, sure in zip(labels, decided, strict=True))
        expect(page.locator(f'#rows-chart [data-kind="{name}"] b')).to_contain_text(f"{count}, ")
    expect_accessible_layout(page)


def test_every_row_is_on_a_page(page: Page) -> None:
    seen: list[str] = []
    for expected in ("1\u201350 of 60", "51\u201360 of 60"):
        expect(page.locator("#rows-page")).to_have_text(expected)
        seen += shown_texts(page)
        if not expected.startswith("51"):
            page.get_by_role("button", name="Next page").click()
    assert seen == MANY
    expect(page.get_by_role("button", name="Next page")).to_be_disabled()


def test_table_is_sorted_and_filtered_by_label_sureness_and_text(page: Page) -> None:
    def scores() -> list[float]:
        cells = page.locator("#rows-body tr td:nth-child(4)").all_inner_texts()
        return [99.95 if "over" in cell else float(cell.removesuffix(" %")) for cell in cells]

    page.get_by_role("button", name="Sureness").click()
    assert scores() == sorted(scores())
    page.get_by_role("button", name="Sureness").click()
    assert scores() == sorted(scores(), reverse=True)
    expect(page.locator("th", has_text="Sureness")).to_have_attribute("aria-sort", "descending")
    page.get_by_role("button", name="Text", exact=True).click()
    assert shown_texts(page) == sorted(shown_texts(page), key=str.lower)
    page.get_by_role("button", name="Row", exact=True).click()
    page.locator('#rows-chart [data-kind="negative"]').click()
    expect(page.locator("#rows-page")).to_contain_text("that match")
    labels = page.locator("#rows-body select").evaluate_all("all => all.map(({ value }) => value)")
    assert set(labels) == {"negative"}
    page.locator('#rows-chart [data-kind="negative"]').click()
    page.get_by_label("Find").fill("SUPERB")
    assert shown_texts(page) == [text for text in MANY if "superb" in text]
    page.get_by_label("Find").fill("nothing of this kind")
    expect(page.locator("#rows-page")).to_have_text("No rows match.")


def test_unsure_rows_are_counted_named_and_filtered(open_page: OpenPage) -> None:
    def answer(request: Answer) -> Answer:
        reasons = [None, "low_confidence", "out_of_distribution"]
        items = [
            make_answer("fine", [word("fine", 1.0, leader=True)], abstain_reason=reason)["data"][0]
            for reason in reasons
        ]
        return {"id": "x", "model": "sentiment", "data": items}

    page = open_messages(open_page, answer=answer)
    paste(page, ["fine", "hm", "qwertz"])
    expect(page.locator("#rows-state")).to_contain_text("2 unsure, 1 positive")
    page.locator("#rows-chart").get_by_role("button", name="unsure").click()
    expect(page.locator("#rows-body .fine")).to_have_text(["too close to call", "unlike the training texts"])
    expect(page.locator("#rows-body select").first).to_have_value("")  # no label until a person gives one
    page.locator("#rows-chart").get_by_role("button", name="unsure").click()
    page.locator("#rows-sureness").select_option("90 % and more")
    expect(page.locator("#rows-page")).to_have_text("No rows match.")
    page.locator("#rows-sureness").select_option("60 to 90 %")
    expect(page.locator("#rows-page")).to_have_text("1\u20132 of 2 that match")
    page.locator("#rows-sureness").select_option("any")
    sureness = page.locator("#rows-body td:nth-child(4)")  # none where the model has not seen such texts
    expect(sureness).to_have_text(["73.1 %", "73.1 %", ""])


@pytest.mark.parametrize("width", [1280, 390])
def test_row_opens_its_explanation_and_returns_by_keyboard(open_page: OpenPage, width: int) -> None:
    page = paste(open_messages(open_page, answer=answer_by_words, width=width), LINES)
    page.locator("#rows-body button").nth(1).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#review-text")).to_have_value(LINES[1])
    expect(page.locator("#verdict-label")).to_have_text("negative")
    expect(page.locator("#row-name")).to_have_text("Row 2 of 4")
    expect(page.locator("#row-name")).to_be_focused()
    page.get_by_role("button", name="Next row").press("Enter")
    expect(page.locator("#review-text")).to_have_value(LINES[2])
    page.get_by_role("button", name="Previous row").click()
    expect(page.locator("#row-name")).to_have_text("Row 2 of 4")
    page.get_by_role("button", name="Back to the messages").press("Enter")
    expect(page.locator("#rows-body button").nth(1)).to_be_focused()
    page.go_back()
    expect(page.locator("#row-name")).to_have_text("Row 2 of 4")
    page.get_by_label("Write a text").fill("Another text")
    expect(page.locator("#row-bar")).to_be_hidden()


def test_several_short_lines_in_the_first_mode_offer_the_second(open_review: OpenPage) -> None:
    page = open_review(LINES[0], answer_by_words)
    text = page.get_by_label("Write a text")
    for content, is_offered in [
        ("One line.\nAnother.", False), ("\n\n".join(LINES), True), ("x " * 300 + "\na\nb", False),
        ("\n".join(LINES), True),
    ]:  # fmt: skip
        text.fill(content)
        expect(page.locator("#split")).to_be_visible(visible=is_offered)
    expect(page.locator("#split-count")).to_have_text("These are 4 lines.")
    page.get_by_role("button", name="Classify each line").click()
    expect(page.locator("#rows-state")).to_contain_text("4 of 4 rows")
    assert shown_texts(page) == LINES


def test_corrected_and_confirmed_labels_become_a_training_file(page: Page, tmp_path: Path) -> None:
    expect(page.get_by_role("button", name="Training file")).to_be_disabled()
    first = page.get_by_label("Label of row 1", exact=True)
    wrong = "negative" if first.input_value() == "positive" else "positive"
    first.select_option(wrong)
    expect(first).to_be_focused()
    expect(page.locator("#rows-body tr").first).to_contain_text("was ")
    second = page.get_by_label("Label of row 2", exact=True).input_value()
    for k in (1, 2, 3):
        page.locator("#rows-body [type=checkbox]").nth(k).check()
    page.locator("#rows-body [type=checkbox]").nth(3).uncheck()
    page.get_by_label("Show").select_option("checked by you")
    expect(page.locator("#rows-page")).to_have_text("1\u20133 of 3 that match")
    (tmp_path / "training.csv").write_text(
        download_text(page, "Training file (3)", "training.csv"), encoding="utf-8"
    )
    rows = read_rows(str(tmp_path / "training.csv"), min_rows=1)  # as hardmax-export train does
    assert list(rows.texts) == MANY[:3]
    assert list(rows.truth[:2]) == [(wrong,), (second,)]
    saved = download_rows(page, "messages-classified.csv", ",")
    assert [row["checked_label"] for row in saved[:4]] == [wrong, second, saved[2]["label"], ""]


def test_rows_of_a_multi_label_model_are_corrected_with_several_labels(open_page: OpenPage) -> None:
    def add_model(page: Page) -> None:
        card = {"name": "topics", "kind": "text-classification", "labels": ["food", "price"]}
        add_models(page, card)

    answer = make_answer("x", [word("x", 1.0, leader=True)], labels=["food"], label="food")
    page = open_messages(open_page, "?model=topics", answer=answer, before=add_model)
    paste(page, ["x"])
    box = page.get_by_label("Label of row 1")
    expect(box).to_have_value("food")
    box.fill("food|colour")
    box.press("Tab")
    assert box.evaluate("node => node.validationMessage") == "colour is not a label of this model"
    expect(page.get_by_role("button", name="Training file")).to_be_disabled()
    box.fill("food|price")
    box.press("Tab")
    assert download_text(page, "Training file (1)", "training.csv") == "\ufefftext,label\nx,food|price\n"


def test_table_names_its_model_and_is_stale_after_another_is_selected(open_page: OpenPage) -> None:
    def add_model(page: Page) -> None:
        add_models(page, {"name": "mine"}, like_default=True)

    page = open_messages(open_page, answer=lambda r: make_answers(len(r["input"])), before=add_model)
    paste(page, ["fine", "well"])
    expect(page.locator("#rows-state")).to_contain_text("classified by sentiment-small")
    page.locator("#messages-model").select_option("mine")
    expect(page.locator("#rows-stale-text")).to_have_text(
        "These labels are of sentiment-small; you have selected mine."
    )
    expect(page.locator("#rows-state")).to_contain_text("classified by sentiment-small")
    expect(page).to_have_url(re.compile(r"#messages\?model=mine$"))
    page.get_by_role("button", name="Classify again").click()
    expect(page.locator("#rows-state")).to_contain_text("2 of 2 rows classified by mine")
    expect(page.locator("#rows-stale")).to_be_hidden()
    page.get_by_role("link", name="One text").click()
    expect(page.locator("#review-model")).to_have_value("mine")  # one choice for both modes


def test_model_that_was_replaced_meanwhile_is_reported(open_page: OpenPage) -> None:
    versions = [4, 5]

    def answer(request: Answer) -> Answer:
        version = versions.pop(0) if len(versions) > 1 else versions[0]
        return make_answers(len(request["input"])) | {"model_version": version}

    page = paste(open_messages(open_page, answer=answer), ["fine"] * 100)
    expect(page.locator("#rows-state")).to_contain_text("by sentiment-small (version 4 and 5)")
    expect(page.locator("#rows-stale-text")).to_contain_text("The model was replaced")


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
    page.wait_for_function("document.getElementById('rows-progress').max === 150")
    while len(sizes) < 2:
        page.wait_for_timeout(20)
    page.get_by_role("button", name="Stop").click()
    state = page.locator("#rows-state")
    expect(state).to_have_text("64 of 150 rows classified by sentiment-small: 64 positive. Stopped.")
    assert page.locator("#rows-progress").evaluate("bar => bar.value / bar.max") == pytest.approx(64 / 150)
    assert len(download_rows(page, "reviews-classified.csv")) == 64
    page.get_by_role("button", name="Continue").click()
    expect(state).to_have_text("150 of 150 rows classified by sentiment-small: 150 positive.")
    assert sizes == [64, 64, 64, 22]


def test_busy_server_is_retried_and_a_rejected_row_fails_alone(open_page: OpenPage) -> None:
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

    page = open_messages(open_page)
    page.route("**/classify", fulfil)
    upload_file(page, "reviews.txt", "\n".join(["fine"] * 5 + ["bad row", " "] + ["fine"] * 3))
    expect(page.locator("#rows-state")).to_contain_text(
        "10 of 10 rows classified by sentiment-small: 8 positive, 1 failed, 1 unsure."
    )
    expect(page.locator("#rows-body tr").nth(5)).to_contain_text("failed: this text is too long")
    expect(page.locator("#rows-body tr").nth(6)).to_contain_text("no text")
    errors = [row["hardmax_error"] for row in download_rows(page, "reviews-classified.csv")]
    assert errors == [""] * 5 + ["this text is too long"] + [""] * 4


def test_blank_text_and_file_without_rows_keep_the_table(open_page: OpenPage) -> None:
    page = open_messages(open_page, answer=lambda r: make_answers(len(r["input"])))
    page.get_by_role("button", name="Classify", exact=True).click()
    expect(page.locator("#messages-error")).to_contain_text("cannot be read: it has no text.")
    upload_file(page, "reviews.csv", "id,review\n1,fine\n2,fine\n")
    expect(page.locator("#rows-state")).to_contain_text("2 of 2 rows")
    upload_file(page, "empty.csv", "stars,text\n")
    expect(page.locator("#messages-error")).to_contain_text("the file has no rows")
    rows = download_rows(page, "reviews-classified.csv")
    assert [(row["id"], row["review"], row["label"]) for row in rows] == [
        ("1", "fine", "positive"),
        ("2", "fine", "positive"),
    ]


def test_messages_are_no_part_of_an_address(open_page: OpenPage) -> None:
    page = paste(open_messages(open_page, answer=answer_by_words), LINES)
    page.get_by_role("button", name="Copy a link without the messages").click()
    assert page.evaluate("navigator.clipboard.readText()").endswith("/#messages")
    assert page.evaluate("location.hash") == "#messages"
