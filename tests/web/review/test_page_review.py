"""Room 1 as a reader uses it: writing, looking at words, following the sum, watching the words move."""

from __future__ import annotations

import re
from itertools import pairwise

import httpx
import pytest
from answers import answering, explained, word
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Route, expect
from visiting import Visit, drawn, serious_findings

PRAISE = "A wonderful film with superb acting. I loved it."
BLAME = "An awful film. The worst acting, a waste of time."


def write(page: Page, text: str) -> None:
    page.get_by_label("Write a review, or take one").fill(text)
    page.wait_for_function("text => document.getElementById('ink').textContent.startsWith(text)", arg=text)
    page.wait_for_function("() => document.querySelectorAll('#ink .word').length > 0")


def settle(page: Page) -> Page:
    page.locator("#ledger tr.total").wait_for()
    return page


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
    logit = classify(server, BLAME, model_of(page))["logit"]
    expect(page.locator("#ledger-logit")).to_have_text(f"{logit:.2f}".replace("-", "\u2212"))
    expect(page.locator("#verdict-label")).to_have_text("negative")
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
            const { piecesOf } = await import("/web/review/sheet.js");
            const { readAnswer } = await import("/web/review/answer.js");
            const text = document.getElementById("review").value;
            const body = JSON.stringify({ input: text, explain: "full" });
            const headers = { "content-type": "application/json" };
            const item = (await (await fetch("/classify", { method: "POST", headers, body })).json()).data[0];
            const pieces = piecesOf(readAnswer(text, item));
            return [pieces.reduce((sum, { share }) => sum + share, item.bias), item.logit];
        }"""
    )
    assert total == pytest.approx(logit, abs=1e-4)


def test_leaders_of_the_service_are_starred(visit: Visit, server: str) -> None:
    page = visit("#review")
    write(page, BLAME)
    leaders = classify(server, BLAME, model_of(page))["leaders"]
    starts = {start for leader in leaders for start, _ in leader["spans"]}
    expect(page.locator("#ink .word.leader")).to_have_count(len(starts))


CLUSTERED = explained(
    "Boils at 100 and water is lovely",
    [
        word("Boils", -1.204), word("at", -0.1, leader=True), word("100", -0.703), word("and", -0.051),
        word("water", -0.402), word("is", 0.333, 1), word("lovely", 2.1, 1, leader=True, context="is lovely"),
    ],
    bias=0.504,
)  # fmt: skip
TEXT = "Boils at 100 and water is lovely"


def clustered(page: Page) -> None:
    answering(page, lambda _: CLUSTERED)


@pytest.mark.parametrize("width", [1440, 390])
def test_row_is_named_by_its_heaviest_words_and_says_who_leads(visit: Visit, width: int) -> None:
    page = settle(visit(f"#review?text={TEXT}", width=width, before=clustered))
    names = page.locator("#ledger .name")
    expect(names.nth(0).locator(".who")).to_have_text("Boils, 100, water")
    expect(names.nth(0).locator("small")).to_have_text("led by at, 5 words")
    expect(names.nth(1).locator(".who")).to_have_text("lovely, is")
    assert names.nth(1).locator(".who .star").count() == 1  # who leads stands in the name
    expect(names.nth(1).locator("small")).to_have_text("2 words")


@pytest.mark.parametrize("width", [1440, 390])
def test_printed_numbers_add_up_to_the_last_digit(visit: Visit, server: str, width: int) -> None:
    page = visit("#review", width=width)
    for text in (PRAISE, BLAME, BLAME + PRAISE):
        write(page, text)
        logit = classify(server, text, model_of(page))["logit"]
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
    answer = classify(server, BLAME, model_of(page))
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


@pytest.mark.parametrize("width", [1440, 390])
def test_looking_at_a_word_says_what_it_was_read_with_and_whom_it_follows(visit: Visit, width: int) -> None:
    page = settle(visit(f"#review?text={TEXT}", width=width, before=clustered))
    point(page, "lovely")
    tip = page.locator("#tip")
    expect(tip).to_contain_text("read together with \u201cis lovely\u201d")
    expect(tip).to_contain_text("a leader from the start, followed by 1 word")
    point(page, "is")
    expect(tip).to_contain_text("follows \u2605 lovely, a leader from the start")
    assert page.locator("#arcs path").count() == 1
    page.mouse.move(5, 5)
    expect(tip).to_be_hidden()


def point(page: Page, surface: str) -> None:
    shown = page.locator("#ink .word").filter(has_text=re.compile(f"^{re.escape(surface)}$")).first
    shown.scroll_into_view_if_needed()
    box = shown.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def test_word_at_the_caret_explains_itself(visit: Visit) -> None:
    page = settle(visit(f"#review?text={TEXT}", before=clustered))
    page.get_by_label("Write a review, or take one").focus()
    page.keyboard.press("Control+Home")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tip strong")).to_have_text("Boils")
    page.keyboard.press("Control+End")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#tip strong")).to_have_text("lovely")


def test_tapped_word_explains_itself_and_a_second_tap_writes(visit: Visit) -> None:
    page = settle(visit(f"#review?text={TEXT}", width=390, before=clustered, has_touch=True, is_mobile=True))
    shown = page.locator("#ink .word").filter(has_text="water").first
    shown.scroll_into_view_if_needed()
    box = shown.bounding_box()
    assert box is not None
    place = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.touchscreen.tap(*place)
    expect(page.locator("#tip strong")).to_have_text("water")
    focused = "document.activeElement.id"
    assert page.evaluate(focused) != "review"  # no keyboard rises over what is explained
    page.touchscreen.tap(*place)
    page.wait_for_function(f"() => {focused} === 'review'")


@pytest.mark.parametrize("room", ["review", "cloud", "model"])
def test_fingers_find_targets_of_44_pixels(visit: Visit, room: str) -> None:
    page = visit(f"#{room}", width=390, has_touch=True, is_mobile=True, reduced_motion="reduce")
    page.wait_for_load_state("networkidle")
    small = page.evaluate(
        """() => [...document.querySelectorAll("a, button, select, summary, .tools label, .file")]
            .filter((node) => node.checkVisibility() && !node.matches(".skip"))
            .map((node) => [node.id || node.className || node.textContent, node.getBoundingClientRect()])
            .filter(([, box]) => box.height < 43.5 || box.width < 43.5)
            .map(([name, box]) => `${name}: ${box.width} x ${box.height}`)"""
    )
    assert small == []


EMOJI = "\U0001f389\U0001f389 A lovely film \U0001f44d\U0001f3fd and a na\u00efve \U0001f600 end"


def test_emoji_do_not_shift_the_words(visit: Visit) -> None:
    surfaces = ["A", "lovely", "film", "\U0001f44d\U0001f3fd", "and", "na\u00efve", "end"]
    words = [word(s, 0.1 + k / 10, leader=k == 1) for k, s in enumerate(surfaces)]
    page = visit("#review", before=lambda page: answering(page, lambda _: explained(EMOJI, words)))
    write(page, EMOJI)
    expect(page.locator("#ink .word")).to_have_text(surfaces)
    expect(page.locator("#ink .word.leader")).to_have_text("lovely")


def test_real_text_with_emoji_is_tinted_at_its_words(visit: Visit, server: str) -> None:
    page = visit("#review")
    write(page, EMOJI)
    answer = classify(server, EMOJI, model_of(page))
    expected = {EMOJI[start:end] for w in answer["words"] for start, end in w["spans"]}
    shown = page.locator("#ink .word").all_inner_texts()
    assert "lovely" in shown
    assert {x for x in shown if x.isalpha()} <= {part for x in expected for part in x.split()}


def test_no_verdict_where_nothing_is_known(visit: Visit) -> None:
    def nothing(request: dict[str, object]) -> dict[str, object]:
        text = str(request["input"])
        words = [word(w, 0.0, k, leader=True, read_as="<unknown>") for k, w in enumerate(text.split())]
        return explained(text, words, 0.09, undecided="nothing known", unknown=len(words))

    page = visit("#review?text=qwertz", before=lambda page: answering(page, nothing))
    label, fine = page.locator("#verdict-label"), page.locator("#verdict-fine")
    expect(label).to_have_text("I don\u2019t know")
    expect(label).to_have_class("label none")
    expect(page.locator("#verdict-score")).not_to_contain_text("sure")
    expect(fine).to_have_text("This model does not know this word.")
    expect(page.locator("#ledger")).to_be_hidden()
    expect(page.locator("#ledger-caption")).to_contain_text("nothing to add up")
    expect(page.locator("#ink .star")).to_have_count(0)
    for text, sentence in (
        ("asdf qwertz", "None of these 2 words tells this model anything."),
        ("\U0001f389 \U0001f389", "There is no word here, only signs and pictures."),
    ):
        page.get_by_label("Write a review, or take one").fill(text)
        expect(fine).to_have_text(sentence)
    page.get_by_label("Write a review, or take one").fill("  ")
    expect(fine).to_have_text("Write something, and the verdict follows.")


def test_even_is_grey_and_unknown_words_are_counted_and_marked(visit: Visit) -> None:
    even = explained(
        "the qwertz film",
        [word("the", 0.1, leader=True), word("qwertz", 0.0, read_as="<unknown>"), word("film", -0.05)],
        undecided="even", unknown=1,
    )  # fmt: skip
    page = settle(visit("#review?text=the qwertz film", before=lambda page: answering(page, lambda _: even)))
    expect(page.locator("#verdict-label")).to_have_text("Undecided")
    expect(page.locator("#verdict-label")).to_have_class("label none")
    expect(page.locator("#verdict-score")).to_have_text("51.2 % positive: too close to call")
    expect(page.locator("#verdict-fine")).to_contain_text(
        "3 words follow 1 leader. 1 word is unknown to the model."
    )
    expect(page.locator("#ink .word.strange")).to_have_text("qwertz")
    point(page, "qwertz")
    expect(page.locator("#tip")).to_contain_text("the model does not know this word")


def test_word_that_was_read_as_another_says_so(visit: Visit) -> None:
    typo = explained("borring", [word("borring", -2.0, leader=True, read_as="boring")])
    page = settle(visit("#review?text=borring", before=lambda page: answering(page, lambda _: typo)))
    expect(page.locator("#verdict-fine")).to_contain_text("1 word follows 1 leader.")
    point(page, "borring")
    expect(page.locator("#tip")).to_contain_text("read as \u201cboring\u201d")


STARS = {"awful": -0.2, "middling": 0.1, "great": 0.0}


def test_several_labels_each_have_their_own_sum(visit: Visit) -> None:
    parts = {"awful": -1.5, "middling": 0.25, "great": 2.5}, {"awful": 0.5, "middling": 0.5, "great": -0.75}
    words = [word("lovely", parts[0], leader=True), word("mess", parts[1], 1, leader=True)]
    made = explained("lovely mess", words, STARS)
    page = settle(visit("#review?text=lovely mess", before=lambda page: answering(page, lambda _: made)))
    expect(page.locator("#verdict-label")).to_have_text("great")
    buttons = page.get_by_role("group", name=re.compile("Labels")).get_by_role("button")
    expect(buttons).to_have_text([re.compile(name) for name in STARS])
    expect(buttons.nth(2)).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#ledger-logit")).to_have_text("+1.75")
    buttons.nth(0).click()
    expect(page.locator("#ledger-logit")).to_have_text("\u22121.20")
    expect(page.locator("#ledger tr.total th")).to_have_text("logit of awful")
    expect(page.locator("#verdict-label")).to_have_text("great")
    expect(page.locator("#against")).to_have_text("not awful")
    assert serious_findings(Axe().run(page).response) == []


@pytest.mark.parametrize("width", [1440, 390])
def test_old_verdict_is_dimmed_while_asking_and_when_asking_fails(visit: Visit, width: int) -> None:
    page = settle(visit(f"#review?text={TEXT}", width=width))
    held = []
    page.route("**/classify", lambda route: held.append(route))
    with page.expect_request("**/classify"):
        page.get_by_label("Write a review, or take one").fill("A mess")
    verdict, title = page.locator("#verdict"), page.locator("#verdict-title")
    expect(title).to_have_text("Asking \u2026")
    expect(page.locator("#verdict-label")).to_have_css("opacity", "0.4")
    held.pop().abort()
    expect(title).to_have_text("Verdict on an earlier text")
    expect(verdict).to_have_attribute("data-state", "old")
    expect(page.locator("#review-problem")).to_have_text("The server does not answer. Is it still running?")
    page.unroute("**/classify")
    page.get_by_label("Write a review, or take one").fill("A lovely mess")
    expect(title).to_have_text("Verdict")
    expect(page.locator("#verdict-label")).to_have_css("opacity", "1")
    expect(page.locator("#review-problem")).to_be_hidden()


NOVEL = "It was a lovely day and then the awful rain fell on us all. " * 420  # 5,460 words


@pytest.mark.parametrize("width", [1440, 390])
def test_novel_scrolls_in_a_box_coloured_with_a_short_link(visit: Visit, width: int) -> None:
    page = visit("#review", width=width)
    write(page, NOVEL)
    box = page.locator("#review").bounding_box()
    assert box is not None
    assert box["height"] < 620
    assert page.locator("#ink .word").count() > 2_000
    page.locator("#review").evaluate("area => { area.scrollTop = area.scrollHeight / 3; }")
    page.wait_for_function(
        "() => document.getElementById('ink').scrollTop === document.getElementById('review').scrollTop"
    )
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 200)
    page.mouse.move(box["x"] + box["width"] / 2 + 12, box["y"] + 206)
    assert len(page.evaluate("location.hash")) < 200
    page.get_by_role("button", name="Copy a link to this view").click()
    expect(page.locator("#share")).to_have_text("Copied, without the text, which is too long for a link")
    expect(page.locator("#words-caption")).not_to_contain_text("not asked")
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_writing_on_keeps_the_tints_of_what_stands(visit: Visit) -> None:
    page = visit("#review")
    write(page, PRAISE)
    tinted = page.locator("#ink .word").count()
    page.route("**/classify", lambda route: None)  # the answer never comes
    page.get_by_label("Write a review, or take one").press("Control+End")
    page.keyboard.type(" Really")
    assert page.locator("#ink .word").count() >= tinted - 1
    assert (page.locator("#ink").text_content() or "").rstrip("\u200b") == PRAISE + " Really"
    page.get_by_label("Write a review, or take one").press("Control+Home")
    page.keyboard.type("So, ")
    assert (page.locator("#ink").text_content() or "").rstrip("\u200b") == "So, " + PRAISE + " Really"
    assert page.locator("#ink .word").count() >= tinted - 2


@pytest.mark.parametrize("width", [1440, 390])
def test_arcs_do_not_cross_words(visit: Visit, width: int) -> None:
    text = "One two three four five six seven eight nine ten eleven twelve thirteen lovely fourteen fifteen"
    words = [word(w, 0.1, leader=w == "lovely") for w in text.split()]
    page = visit(
        "#review", width=width, before=lambda page: answering(page, lambda _: explained(text, words))
    )
    write(page, text)
    page.locator("#ledger button.name").first.focus()
    expect(page.locator("#arcs path")).to_have_count(len(words) - 1)
    crossed = page.evaluate(
        """() => {
            const sheet = document.querySelector(".sheet").getBoundingClientRect();
            const words = [...document.querySelectorAll("#ink .word")]
                .map((node) => [node.textContent, node.getBoundingClientRect()]);
            const crossed = new Set();
            for (const path of document.querySelectorAll("#arcs path")) {
                const length = path.getTotalLength();
                for (let at = 4; at < length - 4; at += 2) {
                    const p = path.getPointAtLength(at);
                    for (const [name, box] of words) {
                        const [x, y] = [p.x + sheet.left, p.y + sheet.top];
                        const across = x > box.left && x < box.right;
                        if (across && y > box.top + 3 && y < box.bottom - 3) crossed.add(name);
                    }
                }
            }
            return [...crossed];
        }"""
    )
    assert crossed == []


def test_examples_fill_the_sheet(visit: Visit) -> None:
    page = visit("#review")
    page.get_by_role("button", name="A waste of time").click()
    expect(page.locator("#verdict-label")).to_have_text("negative")
    assert page.get_by_label("Write a review, or take one").input_value().startswith("What a waste of time.")


def test_positive_is_right_whatever_the_model_reads(visit: Visit) -> None:
    places = visit("#model").evaluate(
        """async () => {
            const { shadow, along } = await import("/web/review/shadow.js");
            const speaks = [[1, 0], [0, 1], [-2, 1], [0.3, -4], [-1, -1, 2], [-3]];
            return speaks.map((vector) => {
                const layers = [[vector, vector.map((x) => -x), vector.map((x, k) => x * (k + 2))]];
                return [...along(layers[0], shadow(layers, vector).axes)].filter((_, k) => k % 2 === 0);
            });
        }"""
    )
    assert all(ahead > 0 > behind for ahead, behind, _ in places)


def test_plane_is_warm_left_and_cold_right(visit: Visit) -> None:
    page = drawn(settle(visit(f"#review?text={TEXT}", before=clustered, reduced_motion="reduce")))
    shares = page.evaluate(
        """() => {
            const canvas = document.getElementById("words");
            const half = (left) => {
                const { width, height } = canvas;
                const { data } = canvas.getContext("2d").getImageData(left, 0, width * 0.2, height);
                let warmth = 0;
                for (let k = 0; k < data.length; k += 4) warmth += Math.sign(data[k] - data[k + 2]);
                return warmth / (data.length / 4);
            };
            return [half(0), half(canvas.width * 0.8)];
        }"""
    )
    assert shares[0] > 0.5
    assert shares[1] < -0.5


def test_word_pointed_at_in_the_plane_is_shown_in_the_text(visit: Visit) -> None:
    """Also after the card has been drawn, which draws the same plane in another size."""
    page = settle(visit(f"#review?text={TEXT}", before=clustered))
    canvas = page.locator("#words")
    canvas.scroll_into_view_if_needed()
    drawn(page)
    places = page.evaluate(
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
    x, y = places["lovely"]
    page.mouse.move(box["x"] + x - 10, box["y"] + y)  # its name stands right of it
    expect(page.locator("#ink .word.chosen")).to_have_text(["is", "lovely"])


def test_words_move_on_the_plane_as_the_slider_does(visit: Visit) -> None:
    page = settle(visit("#review?text=A+superb+film+and+a+great+cast"))
    canvas = page.locator("#words")
    slider = page.get_by_role("slider", name="Layer of the words")
    slider.focus()
    page.keyboard.press("ArrowLeft")
    drawn(page)
    before = canvas.screenshot()
    page.keyboard.press("ArrowLeft")
    drawn(page)
    assert canvas.screenshot() != before
    expect(slider).to_have_attribute("aria-valuetext", re.compile(r"layer 0 of \d"))


def test_play_runs_through_the_layers(visit: Visit) -> None:
    page = settle(visit("#review"))
    slider = page.get_by_role("slider", name="Layer of the words")
    slider.fill("0")
    page.get_by_role("button", name="Play the words").click()
    page.wait_for_function("() => Number(document.querySelector('#words-player input').value) > 0.3")
    page.get_by_role("button", name="Pause the words").click()
    paused = float(slider.input_value())
    page.wait_for_timeout(120)
    assert float(slider.input_value()) == paused > 0


def test_reasons_leave_no_void(visit: Visit) -> None:
    page = settle(visit(f"#review?text={TEXT}", before=clustered))
    ends = page.evaluate(
        """() => [".posting", ".plane"]
            .map((name) => document.querySelector(name).getBoundingClientRect().bottom)"""
    )
    assert abs(ends[0] - ends[1]) < 2


def test_card_to_post_is_one_picture_readable_on_a_phone(visit: Visit) -> None:
    page = settle(visit(f"#review?text={TEXT}", before=clustered))
    card = page.locator("#card-export")
    with page.expect_download() as download:
        card.get_by_role("button", name="PNG").click()
    png = download.value.path().read_bytes()
    assert png.startswith(b"\x89PNG")
    assert [int.from_bytes(png[k : k + 4]) for k in (16, 20)] == [2160, 2700]
    with page.expect_download() as download:
        card.get_by_role("button", name="SVG").click()
    drawing = download.value.path().read_text()
    said = re.findall(r">([^<>]+)</text>", drawing)
    for part in (
        "hardmax",
        "lovely",
        "Positive",
        "61.7 % sure",
        "Boils, 100, water",
        "+2.44",
        "bias",
        "sum",
        "positive \u2192",
    ):
        assert part in said, part
    assert number(said[said.index("sum") + 1]) == pytest.approx(CLUSTERED["data"][0]["logit"], abs=0.006)  # type: ignore[index]
    outer, inner = drawing.split("<svg ")[1:3]
    enlarged = float(re.search(r'width="([\d.]+)"', inner)[1]) / float(
        re.search(r'viewBox="0 0 ([\d.]+)', inner)[1]
    )  # type: ignore[index]
    sizes = [float(x) for x in re.findall(r'font-size="([\d.]+)"', outer)]
    sizes += [enlarged * float(x) for x in re.findall(r'font-size="([\d.]+)"', inner)]
    assert min(sizes) * 390 / 1080 > 10


def test_link_restores_the_text(visit: Visit) -> None:
    page = visit("#review")
    write(page, BLAME)
    page.wait_for_function("() => location.hash.includes('awful')")
    again = settle(visit(page.evaluate("location.hash")))
    assert again.get_by_label("Write a review, or take one").input_value() == BLAME


def two_models(page: Page) -> None:
    """The served models and one of a user's own, which answers as `CLUSTERED` does."""

    def add(route: Route) -> None:
        cards = route.fetch().json()["models"]
        mine = {**next(card for card in cards if card.get("default")), "name": "mine", "default": False}
        route.fulfill(json={"models": [*cards, mine]})

    page.route("**/models", add)
    answering(page, lambda request: CLUSTERED if request["model"] == "mine" else None)


def test_another_model_is_chosen_and_kept_in_the_link(visit: Visit) -> None:
    page = settle(visit(f"#review?text={TEXT}", before=two_models))
    page.get_by_label("Model").select_option("mine")
    expect(page.locator("#ledger-logit")).to_have_text("+0.48")
    page.wait_for_function("() => location.hash.includes('model=mine')")
    again = settle(visit(page.evaluate("location.hash"), before=two_models))
    expect(again.get_by_label("Model")).to_have_value("mine")
    expect(again.locator("#ledger-logit")).to_have_text("+0.48")


def test_model_that_is_gone_gives_way_to_the_default(visit: Visit) -> None:
    page = settle(visit(f"#review?text={TEXT}&model=gone"))
    expect(page.locator("#review-problem")).to_be_hidden()
    expect(page.locator("#verdict-title")).to_have_text("Verdict")


def test_back_and_forward_keep_what_was_written(visit: Visit) -> None:
    page = visit("#review")
    write(page, BLAME)
    expect(page.locator("#verdict-label")).to_have_text("negative")
    page.get_by_role("link", name="A cloud").click()
    page.locator("#clusters tr").first.wait_for()
    page.get_by_role("link", name="The model").click()
    page.go_back()
    page.go_back()
    expect(page.locator("#review")).to_have_value(BLAME)
    expect(page.locator("#verdict-label")).to_have_text("negative")
    page.go_forward()
    expect(page.get_by_role("heading", level=1)).to_have_text("Points that follow the leader.")


def test_refusal_of_the_service_is_shown_in_its_words(visit: Visit, server: str) -> None:
    page = settle(visit("#review"))
    limit = httpx.get(f"{server}/info").json()["limits"]["max_text_chars"]
    page.get_by_label("Write a review, or take one").fill("long " * (limit // 5 + 1))
    expect(page.locator("#review-problem")).to_contain_text(re.compile(rf"{limit}|{limit:,}"))
    expect(page.locator("#verdict-title")).to_have_text("Verdict on an earlier text")
