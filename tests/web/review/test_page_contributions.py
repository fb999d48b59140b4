"""The table of contributions: a row per leader, numbers that add up, and the words of each row."""

from itertools import accumulate

import pytest
from page_actions import NEGATIVE_TEXT, POSITIVE_TEXT, OpenPage, classify, parse_number, write_text
from playwright.sync_api import Page, expect
from sample_answers import LONG_TEXT, PLAIN_ANSWER, SHORT_TEXT, answer_with_read


def test_row_is_a_leader_with_what_it_has_read(open_review: OpenPage) -> None:
    names = open_review(LONG_TEXT, answer_with_read).locator("#contributions .name")
    expect(names.locator(".leaders")).to_have_text(["charming", "slow", "funny", "bad"])
    expect(names.nth(0).locator("small")).to_have_text("read ending, is \u00b7 5 words")
    expect(names.nth(3).locator("small")).to_have_text("read Not, all, at \u00b7 5 words")


def column(page: Page, n: int) -> list[float]:
    cells = page.locator(f"#contributions tr:not(.total) td:nth-child({n})")
    return [parse_number(x) for x in cells.all_text_contents()]


@pytest.mark.parametrize("width", [1440, 390])
def test_verdict_and_logit_are_those_of_the_service(open_page: OpenPage, server: str, width: int) -> None:
    """Bias and clusters add up to the logit, to the last printed digit."""
    page = open_page("#review?details=1", width=width)
    for text in (POSITIVE_TEXT, NEGATIVE_TEXT, NEGATIVE_TEXT + POSITIVE_TEXT):
        write_text(page, text)
        answer = classify(page, server, text)
        expect(page.locator("#verdict-label")).to_have_text(answer["label"])
        score = 100 * answer["score"]
        score_text = "over 99.9 % sure" if score > 99.95 else f"{score:.1f} % sure"
        expect(page.locator("#verdict-score")).to_have_text(score_text)
        logit = page.locator("#contributions-logit")
        expect(logit).to_have_text(f"{answer['logit']:+.2f}".replace("-", "\u2212"))
        contributions, totals = column(page, 3), column(page, 4)
        assert totals == [round(x, 2) for x in accumulate(contributions)]
        assert totals[-1] == parse_number(logit.inner_text())
        largest = sorted((c["contribution"] for c in answer["clusters"]), key=abs, reverse=True)
        shown = [c for c in largest if abs(c) >= 0.005]
        remainder = [sum(c for c in largest if abs(c) < 0.005)] if len(shown) < len(largest) else []
        assert contributions == pytest.approx([answer["bias"], *shown, *remainder], abs=0.0101)


def test_row_opens_by_keyboard_and_its_words_are_explained(open_review: OpenPage) -> None:
    page = open_review(SHORT_TEXT, PLAIN_ANSWER)
    row = page.locator("#contributions button.name").first
    row.focus()
    highlighted = page.locator("#highlights .word.highlighted")
    assert highlighted.all_inner_texts() == ["Boils", "at", "100", "and", "water"]
    expect(page.locator("#arcs path")).to_have_count(4)  # to the leader, as the answer has no `read`
    page.keyboard.press("Enter")
    expect(row).to_have_attribute("aria-expanded", "true")
    members = "Boils\u22121.20 100\u22120.71 water\u22120.40 at\u22120.10 and\u22120.05"
    assert page.locator(".member").all_inner_texts() == members.split()
    page.keyboard.press("Tab")
    expect(page.locator("#tooltip")).to_contain_text("Boils")
    expect(page.locator("#tooltip")).to_contain_text("follows \u2605 at, a leader from the start")
