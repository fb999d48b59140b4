"""The verdict of the service: two or several labels, abstention, errors, and other models."""

import re

import httpx
import pytest
from page_actions import NEGATIVE_TEXT, OpenPage, add_models, classify, wait_until_ready, write_text
from playwright.sync_api import Locator, Page, Route, expect
from sample_answers import PLAIN_ANSWER, SHORT_TEXT, Answer, make_answer, mock_classify, word

STARS = {"awful": -0.2, "middling": 0.1, "great": 0.0}


def label_buttons(page: Page) -> Locator:
    return page.get_by_role("group", name=re.compile("Labels")).get_by_role("button")


WRITE = """async (box, text) => {  // in the page, because simulated keys are slow on a busy machine
  for (let end = 1; end <= text.length; end++) {
    box.value = text.slice(0, end);
    box.dispatchEvent(new InputEvent("input", { bubbles: true }));
    await new Promise((next) => setTimeout(next, 5));
  }
}"""


def test_fast_typing_ends_with_the_verdict_of_the_last_text(open_review: OpenPage, server: str) -> None:
    page = open_review()
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url) if "/classify" in request.url else None)
    box = page.get_by_label("Write a text")
    box.fill("")
    box.evaluate(WRITE, NEGATIVE_TEXT)
    page.wait_for_function("() => document.querySelector('#highlights .word')")
    logit = classify(page, server, NEGATIVE_TEXT)["logit"]
    expect(page.locator("#contributions-logit")).to_have_text(f"{logit:.2f}".replace("-", "\u2212"))
    expect(page.locator("#verdict-label")).to_have_text("negative")
    expect(page.locator("#verdict-label")).to_have_class("label neg")
    assert len(urls) < len(NEGATIVE_TEXT) / 3


def test_no_verdict_without_known_words(open_page: OpenPage) -> None:
    def abstain(request: Answer) -> Answer:
        text = str(request["input"])
        words = [word(w, 0.4, k, leader=True, read=[]) for k, w in enumerate(text.split())]
        return make_answer(text, words, 0.09, abstain_reason="no_known_words")

    page = open_page("#review?text=qwertz", before=lambda page: mock_classify(page, abstain))
    label, note = page.locator("#verdict-label"), page.locator("#verdict-fine")
    expect(label).to_have_text("I don\u2019t know")
    expect(label).to_have_class("label none")
    expect(page.locator("#verdict-badge")).to_have_text("no known words")
    expect(page.locator("#verdict-score")).not_to_contain_text("sure")
    expect(note).to_have_text("The model does not know this word.")
    expect(page.locator("#contributions")).to_be_hidden()
    expect(page.locator("#removal")).to_be_hidden()
    expect(page.locator("#contributions-caption")).to_contain_text("nothing to add up")
    expect(page.locator("#highlights .star")).to_have_count(0)
    expect(page.locator("#highlights .word")).to_have_css("background-color", "rgba(0, 0, 0, 0)")
    for text, sentence in (
        ("asdf qwertz", "The model knows none of these words."),
        ("\U0001f389 \U0001f389", "This text contains no words, only symbols."),
    ):
        page.get_by_label("Write a text").fill(text)
        expect(note).to_have_text(sentence)
    page.get_by_label("Write a text").fill("  ")
    expect(note).to_have_text("Write a text to see its verdict.")


@pytest.mark.parametrize(
    ("reason", "why", "score"),
    [
        ("low_confidence", "too close to call", "51.2 % positive"),
        ("out_of_distribution", "unlike the training texts", "\u00a0"),
    ],
)
def test_abstention_does_not_look_like_a_verdict(
    open_review: OpenPage, reason: str, why: str, score: str
) -> None:
    answer = make_answer("a film", [word("a", 0.1, leader=True), word("film", -0.05)], abstain_reason=reason)
    page = open_review("a film", answer)
    expect(page.locator("#verdict-label")).to_have_text("Unsure")
    expect(page.locator("#verdict-label")).to_have_class("label none")
    expect(page.locator("#verdict-badge")).to_have_text(why)
    assert page.locator("#verdict-score").text_content() == score
    expect(page.locator("#verdict-fine")).to_have_text(
        "Do not act on it: the nearest label would be positive."
    )
    expect(page.locator("#details-summary")).to_contain_text("2 words follow 1 leader.")
    page.get_by_label("Write a text").fill(" ")
    expect(page.locator("#verdict-badge")).to_be_hidden()


def test_labels_of_a_multi_label_model_are_listed(open_review: OpenPage) -> None:
    bias = {"food": 2.0, "service": 1.5, "price": -3.0}
    none = dict.fromkeys(bias, 0.0)
    labels: list[str] = ["food", "service"]

    def answer_with_labels(_: Answer) -> Answer:
        words = [word("cold", none, leader=True, read=[]), word("soup", none)]
        probs = {"food": 0.88, "service": 0.82, "price": 0.05}
        return make_answer("cold soup", words, bias, labels=labels, probs=probs)

    page = open_review("cold soup", answer_with_labels)
    expect(page.locator("#verdict-label")).to_have_text("food, service")
    expect(page.locator("#verdict-score")).to_have_text("labels are independent")
    expect(label_buttons(page)).to_have_text(["food88.0 %", "service82.0 %", "price5.0 %"])
    expect(page.locator(".label-button.applicable span")).to_have_text(["food", "service"])
    labels.clear()
    write_text(page, "cold soup ")
    expect(page.locator("#verdict-label")).to_have_text("no label")


def test_each_of_several_labels_has_contributions(open_review: OpenPage) -> None:
    parts = {"awful": -1.5, "middling": 0.25, "great": 2.5}, {"awful": 0.5, "middling": 0.5, "great": -0.75}
    words = [word("lovely", parts[0], leader=True), word("mess", parts[1], 1, leader=True)]
    page = open_review("lovely mess", make_answer("lovely mess", words, STARS))
    expect(page.locator("#verdict-label")).to_have_text("great")
    buttons = label_buttons(page)
    expect(buttons).to_have_text([re.compile(name) for name in STARS])
    expect(buttons.nth(2)).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#contributions-logit")).to_have_text("+1.75")
    buttons.nth(0).click()
    expect(page.locator("#contributions-logit")).to_have_text("\u22121.20")
    expect(page.locator("#contributions tr.total th")).to_have_text("logit of awful")
    expect(page.locator("#verdict-label")).to_have_text("great")
    expect(page.locator("#scale-low")).to_have_text("not awful")


def test_stale_verdict_is_dimmed_during_a_request_and_after_a_failure(open_review: OpenPage) -> None:
    page = open_review(SHORT_TEXT)
    pending = []

    def hold(route: Route) -> None:
        """Hold the request with the new text; requests with the earlier one continue."""
        if "A mess" in (route.request.post_data or ""):
            pending.append(route)
        else:
            route.continue_()

    page.route("**/classify", hold)
    with page.expect_request(lambda request: "A mess" in (request.post_data or "")):
        page.get_by_label("Write a text").fill("A mess")
    verdict, title = page.locator("#verdict"), page.locator("#verdict-title")
    expect(title).to_have_text("Classifying \u2026")
    expect(page.locator("#verdict-label")).to_have_css("opacity", "0.4")
    pending.pop().abort()
    expect(title).to_have_text("Verdict on an earlier text")
    expect(verdict).to_have_attribute("data-state", "stale")
    expect(page.locator("#review-error")).to_have_text("The server does not answer. Is it still running?")
    page.unroute("**/classify")
    page.get_by_label("Write a text").fill("A lovely mess")
    expect(title).to_have_text("Verdict")
    expect(page.locator("#verdict-label")).to_have_css("opacity", "1")
    expect(page.locator("#review-error")).to_be_hidden()


def test_examples_have_the_labels_of_their_names(open_review: OpenPage, server: str) -> None:
    page = open_review()
    examples = page.evaluate("import('/web/review/examples.js').then(({ EXAMPLES }) => EXAMPLES)")
    assert [e.get("knownError", False) for e in examples].count(True) == 1
    for example in examples:
        page.get_by_role("button", name=example["name"]).click()
        expect(page.locator("#review-text")).to_have_value(example["text"])
        label = classify(page, server, example["text"])["label"]
        assert (label != example["label"]) == example.get("knownError", False), example
        expect(page.locator("#verdict-label")).to_have_text(label)
        sentence = f"The model gets this one wrong: the correct label is {example['label']}."
        note = expect(page.locator("#verdict-fine"))
        check = note.to_contain_text if example.get("knownError") else note.not_to_contain_text
        check(sentence)


def two_models(page: Page) -> None:
    """Add a custom model to the served ones, which answers `PLAIN_ANSWER`."""
    add_models(page, {"name": "mine"}, like_default=True)
    mock_classify(page, lambda request: PLAIN_ANSWER if request["model"] == "mine" else None)


def test_another_model_is_selected_and_kept_in_the_link(open_page: OpenPage) -> None:
    page = wait_until_ready(open_page(f"#review?text={SHORT_TEXT}", before=two_models))
    page.get_by_role("combobox", name="Model").select_option("mine")
    expect(page.locator("#contributions-logit")).to_have_text("+0.48")
    page.wait_for_function("() => location.hash.includes('model=mine')")
    other_page = wait_until_ready(open_page(page.evaluate("location.hash"), before=two_models))
    expect(other_page.get_by_role("combobox", name="Model")).to_have_value("mine")
    expect(other_page.locator("#contributions-logit")).to_have_text("+0.48")


def test_missing_model_is_replaced_by_the_default_with_a_message(open_review: OpenPage) -> None:
    page = open_review(f"{SHORT_TEXT}&model=gone")
    message = "This server has no text classification model \u201cgone\u201d. Using sentiment-small."
    expect(page.locator("#review-error")).to_have_text(message)
    expect(page.locator("#verdict-title")).to_have_text("Verdict")


def test_text_is_part_of_a_link_only_where_it_is_copied(open_page: OpenPage) -> None:
    page = wait_until_ready(open_page("#review?text=A+dreadful+film"))
    expect(page.locator("#review-text")).to_have_value("A dreadful film")
    expect(page).to_have_url(re.compile("#review$"))  # also that of a link that was opened
    write_text(page, NEGATIVE_TEXT)
    expect(page.locator("#verdict-label")).to_have_text("negative")
    page.get_by_role("button", name="Copy a link with the text").click()
    expect(page.locator("#share")).to_have_text("Link copied with the text")
    assert page.evaluate("location.hash") == "#review"
    link = page.evaluate("navigator.clipboard.readText()")
    other_page = wait_until_ready(open_page(f"#{link.partition('#')[2]}"))
    expect(other_page.locator("#review-text")).to_have_value(NEGATIVE_TEXT)


def test_back_and_forward_keep_the_text(open_page: OpenPage) -> None:
    page = open_page("#review")
    write_text(page, NEGATIVE_TEXT)
    expect(page.locator("#verdict-label")).to_have_text("negative")
    page.get_by_role("link", name="Cloud").click()
    wait_until_ready(page)
    page.get_by_role("link", name="Models").click()
    page.go_back()
    page.go_back()
    expect(page.locator("#review-text")).to_have_value(NEGATIVE_TEXT)
    expect(page.locator("#verdict-label")).to_have_text("negative")
    page.go_forward()
    expect(page.get_by_role("heading", level=1)).to_have_text("Points that follow the leader.")


def test_error_message_of_the_service_is_shown(open_review: OpenPage, server: str) -> None:
    page = open_review()
    limit = httpx.get(f"{server}/info").json()["limits"]["max_text_chars"]
    page.get_by_label("Write a text").fill("long " * (limit // 5 + 1))
    expect(page.locator("#review-error")).to_contain_text(re.compile(rf"{limit}|{limit:,}"))
    expect(page.locator("#verdict-title")).to_have_text("Verdict on an earlier text")


def test_failed_request_for_models_is_retried(open_page: OpenPage) -> None:
    is_busy = [True, False]

    def list_models(route: Route) -> None:
        refusal = {"error": {"message": "too many requests"}}
        route.fulfill(status=429, json=refusal) if is_busy.pop(0) else route.continue_()

    page = open_page("#review", before=lambda page: page.route("**/models", list_models))
    expect(page.locator("#review-error")).to_have_text("Too many requests.")
    write_text(page, NEGATIVE_TEXT)
    expect(page.locator("#verdict-label")).to_have_text("negative")
    expect(page.locator("#review-error")).to_be_hidden()
    assert is_busy == []


def test_server_without_a_text_model_is_reported(open_page: OpenPage) -> None:
    page = open_page(
        "#review",
        before=lambda page: page.route("**/models", lambda route: route.fulfill(json={"models": []})),
    )
    expect(page.locator("#review-error")).to_have_text("This server has no text classification model.")


@pytest.mark.system
def test_verdict_is_visible_on_a_phone_without_scrolling(open_page: OpenPage) -> None:
    page = wait_until_ready(open_page("#review", width=390))
    page.set_viewport_size({"width": 390, "height": 844})
    box = page.locator("#verdict-score").bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 844


def test_examples_are_offered_only_to_models_of_sentiment(open_page: OpenPage) -> None:
    def topics(page: Page) -> None:
        card = {"name": "topics", "kind": "text-classification", "labels": ["sports", "politics"]}
        add_models(page, card)

    page = wait_until_ready(open_page("#review", before=topics))
    expect(page.locator("#examples")).to_be_visible()
    page.route("**/classify", lambda route: route.abort())
    page.locator("#review-model").select_option("topics")
    expect(page.locator("#examples")).to_be_hidden()
