"""Room 1 as a reader uses it: writing, looking at words, following the sum, watching the words move."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import Page, expect
from visiting import Visit

PRAISE = "A wonderful film with superb acting. I loved it."
BLAME = "An awful film. The worst acting, a waste of time."


def write(page: Page, text: str) -> None:
    page.get_by_label("Write a review, or take one").fill(text)
    page.wait_for_function("text => document.getElementById('ink').textContent.startsWith(text)", arg=text)
    page.wait_for_function("() => document.querySelectorAll('#ink .word').length > 0")


def number(text: str) -> float:
    return float(text.replace("\u2212", "-"))


def classify(server: str, text: str, model: str) -> dict:
    body = {"input": text, "model": model, "explain": "full"}
    return httpx.post(f"{server}/classify", json=body).raise_for_status().json()["data"][0]


def model_of(page: Page) -> str:
    return page.locator("#review-model").input_value()


@pytest.mark.parametrize("width", [1440, 390])
def test_writing_shows_the_verdict_of_the_service(visit: Visit, server: str, width: int) -> None:
    page = visit("#review", width=width)
    for text in (PRAISE, BLAME):
        write(page, text)
        answer = classify(server, text, model_of(page))
        expect(page.locator("#verdict-label")).to_have_text(answer["label"])
        shown = page.locator("#verdict-score").inner_text()
        score = 100 * answer["score"]
        assert shown == ("over 99.9 % sure" if score > 99.95 else f"{score:.1f} % sure")
    expect(page.locator("#verdict-label")).to_have_class(re.compile("neg"))


def test_fast_writing_ends_with_the_verdict_of_the_last_text(visit: Visit, server: str) -> None:
    page = visit("#review")
    page.locator("#ledger tr.total").wait_for()
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if "/classify" in request.url else None)
    box = page.get_by_label("Write a review, or take one")
    box.fill("")
    box.press_sequentially(BLAME, delay=5)
    page.wait_for_function("() => document.querySelector('#ink .word')")
    expect(page.locator("#verdict-label")).to_have_text("negative")
    logit = classify(server, BLAME, model_of(page))["logit"]
    assert number(page.locator("#ledger-logit").inner_text()) == pytest.approx(logit, abs=6e-4)
    assert len(sent) < len(BLAME) / 3


@pytest.mark.parametrize("width", [1440, 390])
def test_tint_lies_exactly_under_the_text(visit: Visit, width: int) -> None:
    page = visit("#review", width=width)
    write(page, BLAME * 8)
    assert (page.locator("#ink").text_content() or "").rstrip("\u200b") == BLAME * 8
    style = """(id) => {
        const { font, padding, width } = getComputedStyle(document.getElementById(id));
        return [font, padding, width];
    }"""
    assert page.evaluate(style, "ink") == page.evaluate(style, "review")
    height = "(id) => document.getElementById(id).scrollHeight"
    assert page.evaluate(height, "ink") == page.evaluate(height, "review") > 200


def test_tints_of_a_text_add_up_to_its_logit(visit: Visit) -> None:
    page = visit("#review")
    write(page, BLAME)
    total, logit = page.evaluate(
        """async () => {
            const { pieces, shareOf } = await import("/web/sheet.js");
            const body = JSON.stringify({ input: document.getElementById("review").value, explain: "full" });
            const headers = { "content-type": "application/json" };
            const item = (await (await fetch("/classify", { method: "POST", headers, body })).json()).data[0];
            const found = pieces(document.getElementById("review").value, item.words);
            const shares = found.map((piece) => shareOf(piece, item.words, found));
            return [shares.reduce((a, b) => a + b, item.bias), item.logit];
        }"""
    )
    assert total == pytest.approx(logit, abs=1e-4)


def test_leaders_of_the_service_are_starred(visit: Visit, server: str) -> None:
    page = visit("#review")
    write(page, BLAME)
    leaders = classify(server, BLAME, model_of(page))["leaders"]
    starts = {start for leader in leaders for start, _ in leader["spans"]}
    assert page.locator("#ink .word.leader").count() == len(starts)


def test_looking_at_a_word_says_whom_it_follows_since_when(visit: Visit, server: str) -> None:
    page = visit("#review")
    write(page, BLAME)
    answer = classify(server, BLAME, model_of(page))
    word = next(w for w in answer["words"] if not w["leader"] and " " not in w["text"])
    cluster = next(c for c in answer["clusters"] if c["id"] == word["cluster"])
    leader = next(x for x in answer["leaders"] if x["word"] == cluster["leaders"][0])
    start, end = word["spans"][0]
    shown = page.locator("#ink .word").filter(has_text=re.compile(f"^{re.escape(BLAME[start:end])}$")).first
    shown.scroll_into_view_if_needed()
    box = shown.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tip = page.locator("#tip")
    expect(tip).to_contain_text(word["text"])
    expect(tip).to_contain_text(f"follows ★ {leader['word']}, a leader since layer {leader['since_layer']}")
    assert page.locator("#arcs path").count() >= 1
    page.mouse.move(5, 5)
    expect(tip).to_be_hidden()


def test_ledger_begins_with_the_bias_and_ends_with_the_logit(visit: Visit, server: str) -> None:
    page = visit("#review")
    write(page, BLAME)
    answer = classify(server, BLAME, model_of(page))
    rows = page.locator("#ledger tr:not(.total)")
    adds = [number(text) for text in rows.locator("td:nth-child(3)").all_inner_texts()]
    sums = [number(text) for text in rows.locator("td:nth-child(4)").all_inner_texts()]
    assert adds[0] == pytest.approx(answer["bias"], abs=0.006)
    assert sum(adds) == pytest.approx(answer["logit"], abs=0.006 * len(adds))
    assert sums[-1] == pytest.approx(answer["logit"], abs=0.006)
    assert number(page.locator("#ledger-logit").inner_text()) == pytest.approx(answer["logit"], abs=6e-4)


def test_ledger_row_opens_by_keyboard_and_lists_its_words(visit: Visit, server: str) -> None:
    page = visit("#review")
    write(page, BLAME)
    clusters = classify(server, BLAME, model_of(page))["clusters"]
    largest = max(clusters, key=lambda c: abs(c["contribution"]))
    button = page.locator("#ledger button.name").first
    button.focus()
    assert page.locator("#ink .word.chosen").count() > 0
    page.keyboard.press("Enter")
    expect(page.locator("#ledger button.name").first).to_have_attribute("aria-expanded", "true")
    assert page.locator(".members li").count() == len(largest["words"])


def test_examples_fill_the_sheet(visit: Visit) -> None:
    page = visit("#review")
    page.get_by_role("button", name="A waste of time").click()
    expect(page.locator("#verdict-label")).to_have_text("negative")
    assert page.get_by_label("Write a review, or take one").input_value().startswith("What a waste of time.")


def test_words_move_on_the_plane_as_the_slider_does(visit: Visit) -> None:
    page = visit("#review?model=sentiment-2d&text=A+superb+film+and+a+great+cast")
    page.locator("#ledger tr.total").wait_for()
    canvas = page.locator("#words")
    slider = page.get_by_role("slider", name="Layer of the words")
    slider.focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_timeout(60)
    before = canvas.screenshot()
    page.keyboard.press("ArrowLeft")
    page.wait_for_timeout(60)
    assert canvas.screenshot() != before
    expect(slider).to_have_attribute("aria-valuetext", re.compile(r"layer 0 of \d"))


def test_play_runs_through_the_layers(visit: Visit) -> None:
    page = visit("#review?model=sentiment-2d")
    page.locator("#ledger tr.total").wait_for()
    slider = page.get_by_role("slider", name="Layer of the words")
    slider.fill("0")
    page.get_by_role("button", name="Play the words").click()
    page.wait_for_function("() => Number(document.querySelector('#words-player input').value) > 0.3")
    page.get_by_role("button", name="Pause the words").click()
    paused = float(slider.input_value())
    page.wait_for_timeout(120)
    assert float(slider.input_value()) == paused > 0


def test_decoder_line_parts_the_plane_in_two_colours(visit: Visit) -> None:
    page = visit("#review?model=sentiment-2d&text=A+superb+film+but+an+awful+ending")
    page.locator("#ledger tr.total").wait_for()
    page.wait_for_timeout(100)
    tints = page.evaluate(
        """() => {
            const canvas = document.getElementById("words");
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            const seen = { warm: 0, cold: 0 };
            for (let k = 0; k < data.length; k += 4) {
                if (data[k] > data[k + 2] + 3) seen.warm += 1;
                if (data[k + 2] > data[k] + 3) seen.cold += 1;
            }
            return [seen.warm, seen.cold].map((count) => count / (canvas.width * canvas.height));
        }"""
    )
    assert min(tints) > 0.05


@pytest.mark.parametrize("figure", ["ledger", "words"])
def test_pictures_are_saved_as_png_and_svg(visit: Visit, figure: str) -> None:
    page = visit("#review")
    page.locator("#ledger tr.total").wait_for()
    for kind, magic in (("PNG", b"\x89PNG"), ("SVG", b"<svg ")):
        with page.expect_download() as download:
            page.locator(f"#{figure}-export").get_by_role("button", name=kind).click()
        content = download.value.path().read_bytes()
        assert content.startswith(magic)
        assert len(content) > 1000
    assert b'><rect x="0" y="0"' in content  # paper, not transparency: it is read on any ground


def test_link_restores_text_and_model(visit: Visit) -> None:
    page = visit("#review")
    write(page, BLAME)
    page.locator("#review-model").select_option("sentiment-2d")
    page.wait_for_function("() => location.hash.includes('sentiment-2d')")
    again = visit(page.evaluate("location.hash"))
    again.locator("#ledger tr.total").wait_for()
    assert again.get_by_label("Write a review, or take one").input_value() == BLAME
    assert model_of(again) == "sentiment-2d"


def test_refusal_of_the_service_is_shown_in_its_words(visit: Visit, server: str) -> None:
    page = visit("#review")
    page.locator("#ledger tr.total").wait_for()
    limit = httpx.get(f"{server}/info").json()["limits"]["max_text_chars"]
    page.get_by_label("Write a review, or take one").fill("long " * (limit // 5 + 1))
    expect(page.locator("#review-problem")).to_contain_text(re.compile(rf"{limit}|{limit:,}"))
