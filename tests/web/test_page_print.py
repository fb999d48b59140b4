"""The page on paper: verdict, explanation and table, with their colours and all rows."""

import io
import re

import numpy as np
import pypdfium2
import pytest
from messages_page import make_answers, open_messages, paste
from page_actions import OpenPage, wait_for_frames
from playwright.sync_api import Page, expect
from sample_answers import LONG_TEXT, answer_with_read, make_answer, mock_classify, word

BLUE, ORANGE = (23, 101, 168), (184, 72, 12)  # of the light theme


def print_page(page: Page) -> tuple[str, list[np.ndarray]]:
    """Print to PDF. Return the text without spaces (pdfium adds some) and a picture of each sheet."""
    with pypdfium2.PdfDocument(io.BytesIO(page.pdf(format="A4"))) as document:
        text = " ".join(sheet.get_textpage().get_text_range() for sheet in document)
        pictures = [sheet.render(scale=1.5).to_numpy()[..., ::-1] for sheet in document]
    return remove_spaces(text), pictures


def remove_spaces(text: str) -> str:
    return re.sub(r"\s+", "", text)


def share_of(colour: tuple[int, int, int], pictures: list[np.ndarray]) -> float:
    """Return the share of pixels that have nearly this colour."""
    return max(float((np.abs(picture.astype(int) - colour).max(axis=2) < 12).mean()) for picture in pictures)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_verdict_and_explanation_are_printed_with_colours(open_page: OpenPage, scheme: str) -> None:
    page = open_page(
        f"#review?text={LONG_TEXT}", scheme=scheme, before=lambda page: mock_classify(page, answer_with_read)
    )
    expect(page.locator("#flip")).to_contain_text("the label would be")
    text, pictures = print_page(wait_for_frames(page))
    for part in (
        LONG_TEXT[:40], "93.5 % sure", "Without Not, charming the label would be negative.",
        "alone gives the same", "Contributions", "logit", "Word positions by layer",
    ):  # fmt: skip
        assert remove_spaces(part) in text, part
    for part in ("Many messages", "API reference", "Restore all", "Remove them", "Show all"):
        assert remove_spaces(part) not in text, part
    assert share_of(BLUE, pictures) > 0.001  # the verdict and the bars
    assert share_of(ORANGE, pictures) > 0.0002  # the bar of "slow"
    assert share_of((255, 255, 255), pictures) > 0.5
    assert not page.locator("#details").evaluate("node => node.open")  # as before


def test_all_rows_of_the_table_are_printed(open_page: OpenPage) -> None:
    def answer(request: dict[str, object]) -> dict[str, object]:
        items = [
            make_answer("fine", [word("fine", 1.0 if k % 3 else -1.0, leader=True)])["data"][0]
            for k in range(len(request["input"]))  # type: ignore[arg-type]
        ]
        return make_answers(1) | {"data": items}

    page = open_messages(open_page, answer=answer)
    paste(page, [f"message number {k}" for k in range(1, 121)])
    page.get_by_label("Label of row 1", exact=True).select_option("positive")
    page.get_by_role("button", name="Next page").click()
    text, pictures = print_page(page)
    numbers = [int(n) for n in re.findall(r"messagenumber(\d+)", text)]
    assert numbers == list(range(1, 121))
    assert "classifiedbysentiment-small" in text
    assert "corrected" in text
    for part in ("Next page", "Download CSV", "Find", "Paste messages"):
        assert remove_spaces(part) not in text, part
    bar = tuple(round(0.26 * c + 0.74 * 255) for c in ORANGE)
    assert share_of(BLUE, pictures) > 0.0003  # main words
    assert share_of(bar, pictures) > 0.003 or share_of(ORANGE, pictures) > 0.0003
    expect(page.locator("#rows-page")).to_have_text("51\u2013100 of 120")
