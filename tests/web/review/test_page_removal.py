"""Counterfactuals: words that decide the label or are removed, and leaders whose positions stay the same."""

import re
from typing import Any

import pytest
from page_actions import OpenPage, expect_accessible_layout, write_text
from playwright.sync_api import Locator, Page, expect
from sample_answers import (
    FLIP,
    LONG_TEXT,
    LONG_WORDS,
    SUFFICIENT,
    Answer,
    answer_with_read,
    make_answer,
    mock_classify,
    word,
)


@pytest.fixture
def page(open_review: OpenPage) -> Page:
    """The page with LONG_TEXT and its counterfactual."""
    page = open_review(LONG_TEXT, answer_with_read)
    expect(page.locator("#flip")).to_contain_text("the label would be")
    return page


def remove_word(page: Page, surface: str) -> None:
    page.locator("#removal-words").get_by_role("button", name=surface, exact=True).first.click()


def removed_spans(button: Locator) -> Any:
    """Press the button, and return the spans that the request removes."""
    with button.page.expect_request(lambda request: '"without"' in (request.post_data or "")) as request_info:
        button.click()
    return request_info.value.post_data_json["without"]


def test_words_whose_removal_changes_the_label_are_removed(page: Page) -> None:
    expect(page.locator("#flip")).to_have_text(
        "Without Not, charming the label would be negative. Remove them"
    )
    expect(page.locator("#flip b")).to_have_text(["Not", "charming", "negative"])
    removed = removed_spans(page.get_by_role("button", name="Remove them"))
    expect(page.locator("#removal-verdict")).to_have_text(
        "Without 2 words: negative, 83.5 % sure (before: positive, 93.5 % sure)."
    )
    assert removed == [entry["spans"][0] for entry in FLIP["without"]]
    expect(page.locator("#highlights .removed")).to_have_text(["Not", "charming"])
    expect(page.locator("#verdict-label")).to_have_text("positive")  # of the text as it is written
    expect_accessible_layout(page)


def test_sufficient_words_are_shown_and_can_be_kept(page: Page) -> None:
    expect(page.locator("#sufficient")).to_have_text(
        "funny alone gives the same label, positive, 87.1 % sure. Keep only this word"
    )
    removed = removed_spans(page.get_by_role("button", name="Keep only this word"))
    assert len(removed) == len(LONG_WORDS) - 1
    assert SUFFICIENT["words"][0]["spans"][0] not in removed
    expect(page.locator("#highlights .word:not(.removed)")).to_have_text(["funny"])


def test_leaders_that_have_not_read_a_removed_word_keep_their_positions(page: Page) -> None:
    positions = page.locator("#removal-positions")
    remove_word(page, "Not")
    expect(positions).to_have_text(
        "\u2605 funny, \u2605 charming, \u2605 slow have read no removed word: "
        "their initial positions are the same, to the last bit. "
        "\u2605 bad had read a removed word, and moved."
    )
    remove_word(page, "Not")
    expect(positions).to_have_text("")
    remove_word(page, "jokes")
    expect(positions).to_contain_text("\u2605 bad, \u2605 charming, \u2605 slow have read no removed word")
    page.get_by_role("button", name="Restore all").click()
    expect(page.locator("#removal-verdict")).to_have_text("")
    expect(page.locator("#highlights .removed")).to_have_count(0)


def test_leader_that_moved_is_not_reported_as_unchanged(open_review: OpenPage) -> None:
    """The page compares positions digit by digit, whatever the service has read."""

    def moved(request: Answer) -> Answer:
        answer = make_answer(LONG_TEXT, LONG_WORDS, 0.05, without=request.get("without", []))
        if "without" in request:
            next(w for w in answer["data"][0]["words"] if w["word"] == "slow")["position"][0] += 1e-15
        return answer

    page = open_review(LONG_TEXT, moved)
    remove_word(page, "Not")
    expect(page.locator("#removal-positions")).to_contain_text(
        "\u2605 funny, \u2605 charming have read no removed word"
    )
    expect(page.locator("#removal-positions")).not_to_contain_text("slow")


def test_all_words_that_no_leader_has_read_are_removed_at_once(page: Page) -> None:
    removed = removed_spans(page.get_by_role("button", name="Remove unread words"))
    expect(page.locator("#removal-positions")).to_have_text(
        "\u2605 bad, \u2605 funny, \u2605 charming, \u2605 slow have read no removed word: "
        "their initial positions are the same, to the last bit."
    )
    remaining = page.locator("#highlights .word:not(.removed)").all_inner_texts()
    assert remaining == "Not bad at all jokes funny ending is charming although middle little slow".split()
    assert len(removed) == len(LONG_WORDS) - len(remaining)


def test_words_are_removed_by_keyboard(page: Page) -> None:
    words = page.locator("#removal-words button")
    page.get_by_role("button", name="Keep only this word").focus()
    page.keyboard.press("Tab")
    expect(words.nth(0)).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(words.nth(2)).to_be_focused()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Space")
    expect(words.nth(1)).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#removal-verdict")).to_contain_text("Without 1 word: still positive")
    page.keyboard.press("Tab")
    expect(page.locator("#removal-words button:focus")).to_have_count(0)  # one tab stop for all words


def test_spans_are_sent_in_code_points(open_page: OpenPage) -> None:
    text = "\U0001f389 A lovely mess"
    words = [word("A", 0.1), word("lovely", 1.0, leader=True, read=["A"]), word("mess", -0.1)]
    page = open_page("#review", before=lambda page: mock_classify(page, make_answer(text, words)))
    write_text(page, text)
    mess = page.locator("#removal-words").get_by_role("button", name="mess")
    assert removed_spans(mess) == [[11, 15]]


def test_another_text_resets_removed_words(page: Page) -> None:
    remove_word(page, "Not")
    expect(page.locator("#highlights .removed")).to_have_text(["Not"])
    write_text(page, LONG_TEXT + " ")
    expect(page.locator("#removal-verdict")).to_have_text("")
    expect(page.locator("#highlights .removed")).to_have_count(0)
    expect(page.locator("#removal-reset")).to_be_disabled()


@pytest.mark.parametrize(
    ("fields", "flip", "sufficient"),
    [
        ({"flip": None, "sufficient": None}, "No set of up to 5 words", "No set of up to 16 words"),
        ({}, "", ""),
    ],
)
def test_missing_counterfactual_is_reported(
    open_review: OpenPage, fields: Answer, flip: str, sufficient: str
) -> None:
    requests: list[Answer] = []

    def respond(request: Answer) -> Answer:
        requests.append(request)
        return make_answer(LONG_TEXT, LONG_WORDS, **fields if "flip" in request else {})

    page = open_review(LONG_TEXT, respond)
    for _ in range(100):
        if any("flip" in request for request in requests):
            break
        page.wait_for_timeout(100)  # the page sends its request after a pause
    else:
        pytest.fail("no flip was requested")
    page.wait_for_load_state("networkidle")
    for line, text in (("#flip", flip), ("#sufficient", sufficient)):
        expect(page.locator(line)).to_have_text(re.compile(f"^{text}." if text else "^$"))


def test_refused_removal_is_reported(page: Page) -> None:
    page.unroute("**/classify")
    page.route(
        "**/classify", lambda route: route.fulfill(status=413, json={"error": {"message": "too many spans"}})
    )
    remove_word(page, "Not")
    expect(page.locator("#removal-verdict")).to_have_text("Too many spans.")
