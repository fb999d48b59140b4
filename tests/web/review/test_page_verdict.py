"""The verdict: that of the service, also where there is none, or several labels, or another model."""

import re

import httpx
import pytest
from answers import CLUSTERED, TEXT, Answer, answering, explained, word
from playwright.sync_api import Locator, Page, Route, expect
from visiting import BLAME, Visit, classify, expect_fit_for_everybody, settle, write

STARS = {"awful": -0.2, "middling": 0.1, "great": 0.0}


def label_buttons(page: Page) -> Locator:
    return page.get_by_role("group", name=re.compile("Labels")).get_by_role("button")


WRITE = """async (box, text) => {  // in the page: on a busy machine keys from outside are slow writing
  for (let end = 1; end <= text.length; end++) {
    box.value = text.slice(0, end);
    box.dispatchEvent(new InputEvent("input", { bubbles: true }));
    await new Promise((next) => setTimeout(next, 5));
  }
}"""


def test_fast_writing_ends_with_the_verdict_of_the_last_text(review: Visit, server: str) -> None:
    page = review()
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if "/classify" in request.url else None)
    box = page.get_by_label("Write a text")
    box.fill("")
    box.evaluate(WRITE, BLAME)
    page.wait_for_function("() => document.querySelector('#ink .word')")
    logit = classify(page, server, BLAME)["logit"]
    expect(page.locator("#ledger-logit")).to_have_text(f"{logit:.2f}".replace("-", "\u2212"))
    expect(page.locator("#verdict-label")).to_have_text("negative")
    expect(page.locator("#verdict-label")).to_have_class("label neg")
    assert len(sent) < len(BLAME) / 3


def test_no_verdict_where_nothing_is_known(visit: Visit) -> None:
    def nothing(request: Answer) -> Answer:
        text = str(request["input"])
        words = [word(w, 0.4, k, leader=True, read=[]) for k, w in enumerate(text.split())]
        return explained(text, words, 0.09, abstain_reason="no_known_words")

    page = visit("#review?text=qwertz", before=lambda page: answering(page, nothing))
    label, fine = page.locator("#verdict-label"), page.locator("#verdict-fine")
    expect(label).to_have_text("I don\u2019t know")
    expect(label).to_have_class("label none")
    expect(page.locator("#verdict-badge")).to_have_text("no known words")
    expect(page.locator("#verdict-score")).not_to_contain_text("sure")
    expect(fine).to_have_text("This model does not know this word.")
    expect(page.locator("#ledger")).to_be_hidden()
    expect(page.locator("#without")).to_be_hidden()
    expect(page.locator("#ledger-caption")).to_contain_text("nothing to add up")
    expect(page.locator("#ink .star")).to_have_count(0)
    expect(page.locator("#ink .word")).to_have_css("background-color", "rgba(0, 0, 0, 0)")
    for text, sentence in (
        ("asdf qwertz", "None of these words tells this model anything."),
        ("\U0001f389 \U0001f389", "There is no word here, only signs and pictures."),
    ):
        page.get_by_label("Write a text").fill(text)
        expect(fine).to_have_text(sentence)
    page.get_by_label("Write a text").fill("  ")
    expect(fine).to_have_text("Write something, and the verdict follows.")


@pytest.mark.parametrize(
    ("reason", "why"),
    [("low_confidence", "too close to call"), ("out_of_distribution", "unlike the data that the model was")],
)
def test_verdict_not_to_act_upon_does_not_look_like_one(review: Visit, reason: str, why: str) -> None:
    made = explained("a film", [word("a", 0.1, leader=True), word("film", -0.05)], abstain_reason=reason)
    page = review("a film", made)
    expect(page.locator("#verdict-label")).to_have_text("Undecided")
    expect(page.locator("#verdict-label")).to_have_class("label none")
    expect(page.locator("#verdict-badge")).to_have_text(reason.replace("_", " "))
    expect(page.locator("#verdict-score")).to_have_text("51.2 % positive")
    expect(page.locator("#verdict-fine")).to_contain_text(why)
    expect(page.locator("#verdict-fine")).to_contain_text("2 words follow 1 leader.")
    page.get_by_label("Write a text").fill(" ")
    expect(page.locator("#verdict-badge")).to_be_hidden()


def test_two_labels_of_a_model_of_ones_own_stand_at_the_ends(review: Visit) -> None:
    words = [word("win", 2.0, leader=True), word("money", 0.5)]
    made = explained("win money", words, label="spam", probs={"ham": 0.08, "spam": 0.92})
    page = review("win money", made)
    expect(page.locator("#verdict-label")).to_have_text("spam")
    expect(page.locator("#verdict-label")).to_have_class("label pos")
    expect(page.locator("#verdict-ends span")).to_have_text(["ham", "spam"])
    expect(page.locator("#against")).to_have_text("ham")


def test_labels_that_do_not_exclude_each_other_stand_side_by_side(review: Visit) -> None:
    bias = {"food": 2.0, "service": 1.5, "price": -3.0}
    none = dict.fromkeys(bias, 0.0)
    held: list[str] = ["food", "service"]

    def several(_: Answer) -> Answer:
        words = [word("cold", none, leader=True, read=[]), word("soup", none)]
        probs = {"food": 0.88, "service": 0.82, "price": 0.05}
        return explained("cold soup", words, bias, labels=held, probs=probs)

    page = review("cold soup", several)
    expect(page.locator("#verdict-label")).to_have_text("food, service")
    expect(page.locator("#verdict-score")).to_have_text("Each label for itself")
    expect(label_buttons(page)).to_have_text(["food88.0 %", "service82.0 %", "price5.0 %"])
    expect(page.locator(".share.holds span")).to_have_text(["food", "service"])
    held.clear()
    write(page, "cold soup ")
    expect(page.locator("#verdict-label")).to_have_text("none of them")


def test_of_many_labels_the_likeliest_are_shown(review: Visit) -> None:
    bias = {f"subject {k}": 0.1 * k for k in range(30)}
    made = explained("a text", [word("a", dict.fromkeys(bias, 0.0), leader=True), word("text", bias)], bias)
    page = review("a text", made)
    expect(label_buttons(page)).to_have_text([re.compile(f"subject {k}") for k in range(22, 30)])
    expect(page.locator("#verdict-labels")).to_contain_text("and 22 less likely labels")


def test_several_labels_each_have_their_own_sum(review: Visit) -> None:
    parts = {"awful": -1.5, "middling": 0.25, "great": 2.5}, {"awful": 0.5, "middling": 0.5, "great": -0.75}
    words = [word("lovely", parts[0], leader=True), word("mess", parts[1], 1, leader=True)]
    page = review("lovely mess", explained("lovely mess", words, STARS))
    expect(page.locator("#verdict-label")).to_have_text("great")
    buttons = label_buttons(page)
    expect(buttons).to_have_text([re.compile(name) for name in STARS])
    expect(buttons.nth(2)).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#ledger-logit")).to_have_text("+1.75")
    buttons.nth(0).click()
    expect(page.locator("#ledger-logit")).to_have_text("\u22121.20")
    expect(page.locator("#ledger tr.total th")).to_have_text("logit of awful")
    expect(page.locator("#verdict-label")).to_have_text("great")
    expect(page.locator("#against")).to_have_text("not awful")
    expect_fit_for_everybody(page)


def test_label_that_is_pressed_by_key_keeps_the_focus(review: Visit) -> None:
    page = review("a mess", explained("a mess", [word("a", STARS, leader=True), word("mess", STARS)], STARS))
    label_buttons(page).nth(0).press("Enter")
    expect(label_buttons(page).nth(0)).to_have_attribute("aria-pressed", "true")
    expect(label_buttons(page).nth(0)).to_be_focused()


def test_label_of_an_earlier_text_is_not_shown_as_of_this_one(review: Visit) -> None:
    page = review("a mess", explained("a mess", [word("a", STARS, leader=True), word("mess", STARS)], STARS))
    page.route("**/classify", lambda route: route.abort())
    page.get_by_label("Write a text").fill("a lovely mess")
    expect(page.locator("#verdict-title")).to_have_text("Verdict on an earlier text")
    label_buttons(page).nth(0).click()
    expect(label_buttons(page).nth(1)).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#verdict-title")).to_have_text("Verdict on an earlier text")


@pytest.mark.parametrize(
    ("bias", "confessed"), [(-1.0, False), (1.0, True), ({"noise": 0.5, "praise": 0.1}, False)]
)
def test_model_confesses_an_error_only_where_it_makes_it(
    review: Visit, bias: float | dict[str, float], confessed: bool
) -> None:
    page = review()
    none = dict.fromkeys(bias, 0.0) if isinstance(bias, dict) else 0.0
    irony = [word("Great", none, leader=True)]
    answering(page, lambda asked: explained(t, irony, bias) if "train" in (t := asked["input"]) else None)
    page.get_by_role("button", name="Irony").click()
    expect(page.locator("#ledger-logit")).to_have_text(re.compile(r"[01]\.[01]0$"))
    fine = expect(page.locator("#verdict-fine"))
    (fine.to_contain_text if confessed else fine.not_to_contain_text)("gets this one wrong")


def test_old_verdict_is_dimmed_while_asking_and_when_asking_fails(review: Visit) -> None:
    page = review(TEXT)
    held = []

    def hold(route: Route) -> None:
        """The new text's answer; what is still asked of the earlier one goes on."""
        if "A mess" in (route.request.post_data or ""):
            held.append(route)
        else:
            route.continue_()

    page.route("**/classify", hold)
    with page.expect_request(lambda request: "A mess" in (request.post_data or "")):
        page.get_by_label("Write a text").fill("A mess")
    verdict, title = page.locator("#verdict"), page.locator("#verdict-title")
    expect(title).to_have_text("Asking \u2026")
    expect(page.locator("#verdict-label")).to_have_css("opacity", "0.4")
    held.pop().abort()
    expect(title).to_have_text("Verdict on an earlier text")
    expect(verdict).to_have_attribute("data-state", "old")
    expect(page.locator("#review-problem")).to_have_text("The server does not answer. Is it still running?")
    page.unroute("**/classify")
    page.get_by_label("Write a text").fill("A lovely mess")
    expect(title).to_have_text("Verdict")
    expect(page.locator("#verdict-label")).to_have_css("opacity", "1")
    expect(page.locator("#review-problem")).to_be_hidden()


def test_examples_are_what_they_are_called(review: Visit, server: str) -> None:
    page = review()
    examples = page.evaluate("import('/web/review/examples.js').then(({ EXAMPLES }) => EXAMPLES)")
    assert [e.get("wrong", False) for e in examples].count(True) == 1
    for example in examples:
        page.get_by_role("button", name=example["name"]).click()
        expect(page.locator("#review")).to_have_value(example["text"])
        said = classify(page, server, example["text"])["label"]
        assert (said != example["label"]) == example.get("wrong", False), example
        expect(page.locator("#verdict-label")).to_have_text(said)
        confession = f"The model gets this one wrong: a person says {example['label']}."
        fine = expect(page.locator("#verdict-fine"))
        confess = fine.to_contain_text if example.get("wrong") else fine.not_to_contain_text
        confess(confession)


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


def test_model_that_is_gone_gives_way_to_the_default_and_the_page_says_so(review: Visit) -> None:
    page = review(f"{TEXT}&model=gone")
    told = "No model \u201cgone\u201d labels texts on this server: sentiment-small answers."
    expect(page.locator("#review-problem")).to_have_text(told)
    expect(page.locator("#verdict-title")).to_have_text("Verdict")


def test_back_forward_and_the_link_keep_what_was_written(visit: Visit) -> None:
    page = visit("#review")
    write(page, BLAME)
    expect(page.locator("#verdict-label")).to_have_text("negative")
    page.wait_for_function("() => location.hash.includes('awful')")
    again = settle(visit(page.evaluate("location.hash")))
    expect(again.locator("#review")).to_have_value(BLAME)
    page.get_by_role("link", name="A cloud").click()
    settle(page)
    page.get_by_role("link", name="The models").click()
    page.go_back()
    page.go_back()
    expect(page.locator("#review")).to_have_value(BLAME)
    expect(page.locator("#verdict-label")).to_have_text("negative")
    page.go_forward()
    expect(page.get_by_role("heading", level=1)).to_have_text("Points that follow the leader.")


def test_refusal_of_the_service_is_shown_in_its_words(review: Visit, server: str) -> None:
    page = review()
    limit = httpx.get(f"{server}/info").json()["limits"]["max_text_chars"]
    page.get_by_label("Write a text").fill("long " * (limit // 5 + 1))
    expect(page.locator("#review-problem")).to_contain_text(re.compile(rf"{limit}|{limit:,}"))
    expect(page.locator("#verdict-title")).to_have_text("Verdict on an earlier text")


def test_models_that_could_not_be_listed_are_asked_for_again(visit: Visit) -> None:
    busy = [True, False]

    def list_models(route: Route) -> None:
        refusal = {"error": {"message": "too many requests"}}
        route.fulfill(status=429, json=refusal) if busy.pop(0) else route.continue_()

    page = visit("#review", before=lambda page: page.route("**/models", list_models))
    expect(page.locator("#review-problem")).to_have_text("Too many requests.")
    write(page, BLAME)
    expect(page.locator("#verdict-label")).to_have_text("negative")
    expect(page.locator("#review-problem")).to_be_hidden()
    assert busy == []


def test_server_without_a_model_for_texts_is_told_so(visit: Visit) -> None:
    page = visit(
        "#review",
        before=lambda page: page.route("**/models", lambda route: route.fulfill(json={"models": []})),
    )
    expect(page.locator("#review-problem")).to_contain_text("this server has no sentiment model")


def test_verdict_is_visible_on_a_phone_without_scrolling(visit: Visit) -> None:
    page = settle(visit("#review", width=390))
    page.set_viewport_size({"width": 390, "height": 844})
    box = page.locator("#verdict-score").bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 844


def test_examples_are_offered_only_to_models_of_sentiment(visit: Visit) -> None:
    def topics(page: Page) -> None:
        def add(route: Route) -> None:
            cards = route.fetch().json()["models"]
            kind = next(card["kind"] for card in cards if card["name"] == "sentiment-small")
            other = {"name": "topics", "kind": kind, "labels": ["sports", "politics"]}
            route.fulfill(json={"models": [*cards, other]})

        page.route("**/models", add)

    page = settle(visit("#review", before=topics))
    expect(page.locator("#examples")).to_be_visible()
    page.route("**/classify", lambda route: route.abort())
    page.locator("#review-model").select_option("topics")
    expect(page.locator("#examples")).to_be_hidden()
