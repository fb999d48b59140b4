"""What would change the verdict: words found or struck out, and leaders that stay where they are."""

import re
from typing import Any

import pytest
from answers import (
    CLUSTERED,
    FLIP,
    READ,
    SUFFICIENT,
    TEXT,
    WORDS,
    Answer,
    answering,
    explained,
    reading,
    word,
)
from playwright.sync_api import Locator, Page, expect
from visiting import Visit, expect_fit_for_everybody, write


@pytest.fixture
def page(review: Visit) -> Page:
    """With the text READ, and an answer to what would change the verdict."""
    page = review(READ, reading)
    expect(page.locator("#flip")).to_contain_text("it would be")
    return page


def cut(page: Page, surface: str) -> None:
    page.locator("#without-words").get_by_role("button", name=surface, exact=True).first.click()


def struck_out(button: Locator) -> Any:
    """The words that are left out when it is pressed."""
    with button.page.expect_request(lambda request: '"without"' in (request.post_data or "")) as asked:
        button.click()
    return asked.value.post_data_json["without"]


def test_words_that_would_change_it_are_struck_through(page: Page) -> None:
    expect(page.locator("#flip")).to_have_text(
        "Without not, charming it would be negative, 83.5 %. Strike them out"
    )
    expect(page.locator("#flip s")).to_have_text(["not", "charming"])
    gone = struck_out(page.get_by_role("button", name="Strike them out"))
    expect(page.locator("#without-verdict")).to_have_text(
        "Without 2 words: negative, 83.5 % sure (before: positive, 93.5 % sure)."
    )
    assert gone == [entry["spans"][0] for entry in FLIP["without"]]
    expect(page.locator("#ink .struck")).to_have_text(["Not", "charming"])
    expect(page.locator("#verdict-label")).to_have_text("positive")  # of the text as it is written
    expect_fit_for_everybody(page)


def test_words_that_alone_give_the_label_are_named_and_can_be_kept(page: Page) -> None:
    expect(page.locator("#sufficient")).to_have_text(
        "funny alone gives the same label: positive, 87.1 %. Keep only this"
    )
    gone = struck_out(page.get_by_role("button", name="Keep only this"))
    assert len(gone) == len(WORDS) - 1
    assert SUFFICIENT["words"][0]["spans"][0] not in gone
    expect(page.locator("#ink .word:not(.struck)")).to_have_text(["funny"])


def test_leaders_that_have_not_read_what_is_struck_out_stay(page: Page) -> None:
    kept = page.locator("#without-stayed")
    cut(page, "Not")
    expect(kept).to_have_text(
        "\u2605 funny, \u2605 charming, \u2605 slow have read none of them, and stay where they are, "
        "to the bit. "
        "\u2605 bad had read some of them, and moved."
    )
    cut(page, "Not")
    expect(kept).to_have_text("")
    cut(page, "jokes")
    expect(kept).to_contain_text("\u2605 bad, \u2605 charming, \u2605 slow have read none of them")
    page.get_by_role("button", name="Put all back").click()
    expect(page.locator("#without-verdict")).to_have_text("")
    expect(page.locator("#ink .struck")).to_have_count(0)


def test_leader_that_is_elsewhere_is_not_said_to_stay(review: Visit) -> None:
    """A service that breaks its promise is not believed: places are compared, digit by digit."""

    def moved(request: Answer) -> Answer:
        found = explained(READ, WORDS, 0.05, without=request.get("without", []))
        if "without" in request:
            next(w for w in found["data"][0]["words"] if w["word"] == "slow")["position"][0] += 1e-15
        return found

    page = review(READ, moved)
    cut(page, "Not")
    expect(page.locator("#without-stayed")).to_contain_text(
        "\u2605 funny, \u2605 charming have read none of them"
    )
    expect(page.locator("#without-stayed")).not_to_contain_text("slow")


def test_all_that_no_leader_has_read_is_struck_out_at_once(page: Page) -> None:
    gone = struck_out(page.get_by_role("button", name="Leave out what no leader has read"))
    expect(page.locator("#without-stayed")).to_have_text(
        "\u2605 bad, \u2605 funny, \u2605 charming, \u2605 slow have read none of them, "
        "and stay where they are, to the bit."
    )
    left = page.locator("#ink .word:not(.struck)").all_inner_texts()
    assert left == "Not bad at all jokes funny ending is charming although middle little slow".split()
    assert len(gone) == len(WORDS) - len(left)


def test_words_are_struck_out_by_keyboard(page: Page) -> None:
    words = page.locator("#without-words button")
    page.get_by_role("button", name="Strike them out").focus()
    page.keyboard.press("Tab")
    expect(words.nth(0)).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(words.nth(2)).to_be_focused()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Space")
    expect(words.nth(1)).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#without-verdict")).to_contain_text("Without 1 word: still positive")
    page.keyboard.press("Tab")
    expect(page.locator("#without-words button:focus")).to_have_count(0)  # one stop, not one a word


def test_places_are_sent_in_the_units_of_the_service(visit: Visit) -> None:
    text = "\U0001f389 A lovely mess"
    words = [word("A", 0.1), word("lovely", 1.0, leader=True, read=["A"]), word("mess", -0.1)]
    page = visit("#review", before=lambda page: answering(page, explained(text, words)))
    write(page, text)
    mess = page.locator("#without-words").get_by_role("button", name="mess")
    assert struck_out(mess) == [[11, 15]]


def test_another_text_begins_anew(page: Page) -> None:
    cut(page, "Not")
    expect(page.locator("#ink .struck")).to_have_text(["Not"])
    write(page, READ + " ")
    expect(page.locator("#without-verdict")).to_have_text("")
    expect(page.locator("#ink .struck")).to_have_count(0)
    expect(page.locator("#without-back")).to_be_disabled()


@pytest.mark.parametrize(
    ("found", "flip", "sufficient"),
    [
        ({"flip": None, "sufficient": None}, "No five words were found", "No sixteen words were found"),
        ({}, "", ""),
    ],
)
def test_no_words_found_is_said(review: Visit, found: Answer, flip: str, sufficient: str) -> None:
    asked: list[Answer] = []

    def answer(request: Answer) -> Answer:
        asked.append(request)
        return explained(READ, WORDS, **found if "flip" in request else {})

    page = review(READ, answer)
    for _ in range(100):
        if any("flip" in each for each in asked):
            break
        page.wait_for_timeout(100)  # the page waits itself before it asks
    else:
        pytest.fail("no flip was asked for")
    page.wait_for_load_state("networkidle")
    for line, said in (("#flip", flip), ("#sufficient", sufficient)):
        expect(page.locator(line)).to_have_text(re.compile(f"^{said}." if said else "^$"))


def test_service_that_does_not_say_what_was_read_is_asked_nothing_more(review: Visit) -> None:
    page = review(TEXT, CLUSTERED)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    write(page, TEXT + " ")
    page.wait_for_timeout(700)  # longer than the page waits before it asks what would change the verdict
    assert len([url for url in asked if url.endswith("/classify")]) == 1
    expect(page.locator("#without")).to_be_hidden()


def test_refusal_is_told_where_words_are_struck_out(page: Page) -> None:
    page.unroute("**/classify")
    page.route(
        "**/classify", lambda route: route.fulfill(status=413, json={"error": {"message": "too many spans"}})
    )
    cut(page, "Not")
    expect(page.locator("#without-verdict")).to_have_text("Too many spans.")
