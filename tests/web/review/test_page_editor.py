"""The editor: highlights lie exactly under the text, and words have tooltips."""

import pytest
from page_actions import NEGATIVE_TEXT, POSITIVE_TEXT, OpenPage, RunScript, classify, hover_word, write_text
from playwright.sync_api import Page, expect
from sample_answers import LONG_TEXT, PLAIN_ANSWER, SHORT_TEXT, answer_with_read, make_answer, word

EMOJI = "\U0001f389\U0001f389 A lovely film \U0001f44d\U0001f3fd and a na\u00efve \U0001f600 end"
LONG = "It was a lovely day and then the awful rain fell on us all. " * 420  # 5,460 words


def overlay_text(page: Page) -> str:
    """Return the text of the overlay without the zero-width space at its end."""
    return (page.locator("#highlights").text_content() or "").rstrip("\u200b")


@pytest.mark.parametrize("width", [1440, 390])
def test_highlights_lie_exactly_under_the_text(open_page: OpenPage, width: int) -> None:
    page = open_page("#review", width=width)
    write_text(page, NEGATIVE_TEXT * 8)
    assert overlay_text(page) == NEGATIVE_TEXT * 8
    style = """(id) => {
        const { font, padding, width } = getComputedStyle(document.getElementById(id));
        return [font, padding, width];
    }"""
    assert page.evaluate(style, "highlights") == page.evaluate(style, "review-text")
    height = "(id) => document.getElementById(id).scrollHeight"
    assert page.evaluate(height, "highlights") == page.evaluate(height, "review-text") > 200


@pytest.mark.parametrize("text", [NEGATIVE_TEXT + POSITIVE_TEXT, EMOJI])
def test_highlights_add_up_to_the_logit_and_leaders_have_stars(
    open_page: OpenPage, server: str, text: str
) -> None:
    page = open_page("#review")
    write_text(page, text)
    answer = classify(page, server, text)
    contributions = page.evaluate(
        """async (item) => {
            const { buildSegments } = await import("/web/review/editor.js");
            const { parseAnswer } = await import("/web/review/answer.js");
            const text = document.getElementById("review-text").value;
            return buildSegments(parseAnswer(text, item)).map(({ contribution }) => contribution);
        }""",
        answer,
    )
    assert answer["bias"] + sum(contributions) == pytest.approx(answer["logit"], abs=1e-4)
    words_shown, stars = page.locator("#highlights .word"), page.locator("#highlights .word.leader")
    words = {part for w in answer["words"] for start, end in w["spans"] for part in text[start:end].split()}
    assert {x for x in words if x.isalpha()} <= set(words_shown.all_inner_texts()) <= words
    spans = {tuple(span) for leader in answer["leaders"] for span in leader["spans"]}
    assert sorted(stars.all_inner_texts()) == sorted(text[start:end] for start, end in spans)


@pytest.mark.parametrize("width", [1440, 390])
def test_leader_shows_what_it_has_read_and_a_word_its_leader(open_review: OpenPage, width: int) -> None:
    page = open_review(LONG_TEXT, answer_with_read, width=width)
    tip, lines = page.locator("#tooltip"), page.locator("#arcs path")
    hover_word(page, "bad")
    expect(tip).to_contain_text("bad +0.74 for positive")  # its own
    expect(tip).to_contain_text("a leader from the start, followed by 4 words: together +1.13")
    expect(tip).to_contain_text("has read Not, all, at")
    expect(page.locator("#highlights .read")).to_have_text(["Not", "at", "all"])
    expect(lines).to_have_count(3)
    widths = lines.evaluate_all("all => all.map((line) => parseFloat(getComputedStyle(line).strokeWidth))")
    assert widths == sorted(widths, reverse=True)  # the first read is the strongest
    assert widths[0] > widths[2]
    hover_word(page, "jokes")
    expect(tip).to_contain_text("follows \u2605 funny, a leader from the start")
    expect(tip).to_contain_text("its heads attend to the, all; then all, charming, funny")
    expect(lines).to_have_count(4)
    kinds = lines.evaluate_all("lines => lines.map((line) => line.className.baseVal)")
    assert kinds == ["pos", "attention", "attention", "attention"]
    expect(page.locator("#highlights .read")).to_have_text(["all", "the", "charming"])
    hover_word(page, "are")
    expect(tip).to_contain_text("its heads attend to no word")
    expect(lines).to_have_count(1)
    page.mouse.move(5, 5)
    expect(tip).to_be_hidden()
    expect(lines).to_have_count(0)


def test_read_words_are_shown_by_keyboard(open_review: OpenPage) -> None:
    page = open_review(LONG_TEXT, answer_with_read)
    page.locator("#contributions button.name").first.focus()
    expect(page.locator("#highlights .read")).to_have_text(["ending", "is"])
    page.get_by_label("Write a text").focus()
    page.keyboard.press("Control+Home")
    for _ in "Not b":
        page.keyboard.press("ArrowRight")
    expect(page.locator("#highlights .read")).to_have_text(["Not", "at", "all"])
    expect(page.locator("#tooltip")).to_contain_text("has read Not, all, at")
    page.keyboard.press("Control+End")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#tooltip strong")).to_have_text("slow")


@pytest.mark.system
def test_tapped_word_is_explained_and_a_second_tap_edits(open_review: OpenPage) -> None:
    page = open_review(SHORT_TEXT, PLAIN_ANSWER, width=390, has_touch=True, is_mobile=True)
    water = page.locator("#highlights .word").filter(has_text="water").first
    water.tap(force=True)  # the text field is above it
    expect(page.locator("#tooltip strong")).to_have_text("water")
    focused = "document.activeElement.id"
    assert page.evaluate(focused) != "review-text"  # no keyboard covers the explanation
    water.tap(force=True)
    page.wait_for_function(f"() => {focused} === 'review-text'")


@pytest.mark.parametrize("width", [1440, 390])
def test_long_text_scrolls_and_has_a_short_link(open_page: OpenPage, width: int) -> None:
    page = open_page("#review?details=1", width=width)
    write_text(page, LONG)
    box = page.locator("#review-text").bounding_box()
    assert box is not None
    assert box["height"] < 620
    assert page.locator("#highlights .word").count() > 2_000
    page.locator("#review-text").evaluate("area => { area.scrollTop = area.scrollHeight / 3; }")
    page.wait_for_function(
        """() => document.getElementById("highlights").scrollTop
            === document.getElementById("review-text").scrollTop"""
    )
    for step in (0, 12):  # the pointer is over the scrolled text
        page.mouse.move(box["x"] + box["width"] / 2 + step, box["y"] + 200 + step)
    assert len(page.evaluate("location.hash")) < 200
    page.get_by_role("button", name="Copy a link without the text, which is too long for a link").click()
    expect(page.locator("#share")).to_have_text("Link copied without the text, which is too long for a link")
    expect(page.locator("#words-caption")).to_contain_text("in a straight line")
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_replaced_words_are_explained(open_review: OpenPage) -> None:
    words = [
        word("Bergman", 0.0, read_as="<name>"), word("qwertz", 0.0, read_as="<unknown>"),
        word("fine", 1.0, leader=True, read=[]),
    ]  # fmt: skip
    answer = make_answer("Bergman qwertz fine", words, unknown=1)
    page = open_review("Bergman qwertz fine", answer)
    hover_word(page, "Bergman")
    expect(page.locator("#tooltip")).to_contain_text("read as <name>")
    hover_word(page, "qwertz")
    expect(page.locator("#tooltip")).to_contain_text("the model does not know this word")
    hover_word(page, "fine")
    expect(page.locator("#tooltip")).to_contain_text("has read no other word")
    expect(page.locator("#verdict-fine")).to_contain_text("1 word is unknown to the model.")


def test_equal_words_of_a_leader_have_no_read_words(run_script: RunScript) -> None:
    """Words at equal positions are one leader with several spans; `read` is that of the first span."""
    text = "so fine very fine"
    answer = make_answer(text, [word(w, 1.0, leader=w == "fine", read=["so"]) for w in text.split()])
    item = answer["data"][0]
    item["leaders"] = [{**item["leaders"][0], "spans": [[3, 7], [13, 17]]}]
    read = run_script(
        """async ([text, item]) => {
            const { parseAnswer } = await import("/web/review/answer.js");
            return parseAnswer(text, item).words.map(({ read }) => read);
        }""",
        [text, item],
    )
    assert read == [None, [0], None, None]
