"""The plot of the words and their movement through the layers."""

from itertools import pairwise

from page_actions import OpenPage, classify, wait_for_frames
from playwright.sync_api import expect
from sample_answers import PLAIN_ANSWER, SHORT_TEXT


def test_word_under_the_pointer_in_the_plot_is_highlighted_in_the_text(open_review: OpenPage) -> None:
    page = open_review(SHORT_TEXT, PLAIN_ANSWER)
    canvas = page.locator("#words")
    canvas.scroll_into_view_if_needed()
    wait_for_frames(page)
    positions = page.evaluate(
        """() => new Promise((resolve) => {
            const original = CanvasRenderingContext2D.prototype.fillText;
            const seen = {};
            CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
                if (this.canvas.id === "words") seen[text] = [x, y];
                return original.call(this, text, x, y);
            };
            const slider = document.querySelector("#words-player input");
            slider.dispatchEvent(new Event("input"));
            requestAnimationFrame(() => requestAnimationFrame(() => resolve(seen)));
        })"""
    )
    box = canvas.bounding_box()
    assert box is not None
    x, y = positions["lovely"]
    page.mouse.move(box["x"] + x - 10, box["y"] + y)  # its label is to its right
    expect(page.locator("#highlights .word.highlighted")).to_have_text(["is", "lovely"])


def test_words_move_in_the_plot_with_the_slider(open_review: OpenPage, server: str) -> None:
    """Each key press moves by one layer, from the last to the first, and every layer is drawn differently."""
    text = "A superb film and a great cast"
    page = open_review(text)
    trajectory = classify(page, server, text, trajectory=True)["trajectory"]
    slider = page.get_by_role("slider", name="Layer of the words")
    slider.focus()
    pictures = []
    for layer in reversed(range(len(trajectory))):
        expect(slider).to_have_attribute("aria-valuetext", f"layer {layer} of {len(trajectory) - 1}")
        pictures.append(wait_for_frames(page).evaluate("document.getElementById('words').toDataURL()"))
        page.keyboard.press("ArrowLeft")
    expect(slider).to_have_js_property("value", "0")
    moved = sum(a != b for a, b in pairwise(trajectory))
    assert len(set(pictures)) > moved > 1
