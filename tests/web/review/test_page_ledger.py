"""The sum that is the verdict: a row a leader, printed numbers that add up, words behind each row."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from answers import READ, TEXT, clustered, reading
from playwright.sync_api import expect
from visiting import Visit, classify, number, settle, write

PRAISE = "A wonderful film with superb acting. I loved it."
BLAME = "An awful film. The worst acting, a waste of time."


@pytest.mark.parametrize("width", [1440, 390])
def test_row_is_a_leader_with_what_it_has_read(visit: Visit, width: int) -> None:
    names = settle(visit(f"#review?text={READ}", width=width, before=reading)).locator("#ledger .name")
    expect(names.locator(".who")).to_have_text(["charming", "slow", "funny", "bad"])
    expect(names.nth(0).locator("small")).to_have_text("read ending, is \u00b7 5 words")
    expect(names.nth(3).locator("small")).to_have_text("read Not, all, at \u00b7 5 words")


def test_row_of_a_service_that_does_not_say_what_was_read_counts_its_words(visit: Visit) -> None:
    names = settle(visit(f"#review?text={TEXT}", before=clustered)).locator("#ledger .name")
    expect(names.locator(".who")).to_have_text(["at", "lovely"])
    expect(names.locator("small")).to_have_text(["5 words", "2 words"])


@pytest.mark.parametrize("width", [1440, 390])
def test_printed_numbers_add_up_to_the_last_digit(visit: Visit, server: str, width: int) -> None:
    page = visit("#review", width=width)
    for text in (PRAISE, BLAME, BLAME + PRAISE):
        write(page, text)
        logit = classify(page, server, text)["logit"]
        expect(page.locator("#ledger-logit")).to_have_text(re.compile(re.escape(f"{abs(logit):.2f}")))
        rows = page.locator("#ledger tr:not(.total)")
        adds = [number(x) for x in rows.locator("td:nth-child(3)").all_text_contents()]
        sums = [number(x) for x in rows.locator("td:nth-child(4)").all_text_contents()]
        assert sums[0] == adds[0]
        assert all(round(b - a, 2) == add for (a, b), add in zip(pairwise(sums), adds[1:], strict=True))
        assert round(sum(adds), 2) == number(page.locator("#ledger-logit").inner_text())


def test_ledger_begins_with_the_bias_and_ends_with_the_logit(visit: Visit, server: str) -> None:
    page = visit("#review")
    write(page, BLAME)
    answer = classify(page, server, BLAME)
    expect(page.locator("#ledger-logit")).to_have_text(f"{answer['logit']:.2f}".replace("-", "\u2212"))
    rows = page.locator("#ledger tr:not(.total)")
    adds = [number(text) for text in rows.locator("td:nth-child(3)").all_inner_texts()]
    largest = sorted((c["contribution"] for c in answer["clusters"]), key=abs, reverse=True)
    said = [c for c in largest if abs(c) >= 0.005]
    rest = [sum(c for c in largest if abs(c) < 0.005)] if len(said) < len(largest) else []
    assert adds == pytest.approx([answer["bias"], *said, *rest], abs=0.0101)


def test_row_opens_by_keyboard_and_its_words_explain_themselves(visit: Visit) -> None:
    page = settle(visit(f"#review?text={TEXT}", before=clustered))
    page.locator("#ledger button.name").first.focus()
    assert page.locator("#ink .word.chosen").all_inner_texts() == ["Boils", "at", "100", "and", "water"]
    expect(page.locator("#arcs path")).to_have_count(4)  # to the leader: what it has read is not known
    page.keyboard.press("Enter")
    expect(page.locator("#ledger button.name").first).to_have_attribute("aria-expanded", "true")
    words = page.locator(".member")
    assert words.all_inner_texts() == [
        "Boils\u22121.20",
        "100\u22120.71",
        "water\u22120.40",
        "at\u22120.10",
        "and\u22120.05",
    ]
    page.keyboard.press("Tab")
    expect(page.locator("#tip")).to_contain_text("Boils")
    expect(page.locator("#tip")).to_contain_text("follows \u2605 at, a leader from the start")
