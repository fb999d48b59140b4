"""Helpers for tests of the page: the type of the `open_page` fixture, actions, and checks."""

import re
from collections.abc import Callable
from typing import Any

import httpx
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Route

OpenPage = Callable[..., Page]
RunScript = Callable[..., Any]
READY_SELECTORS = {
    "review": "#contributions tr.total", "messages": "#messages-model option",
    "cloud": "#clusters tr", "model": "#cards article",
}  # fmt: skip
POSITIVE_TEXT = "A wonderful film with superb acting. I loved it."
NEGATIVE_TEXT = "An awful film. The worst acting, a waste of time."


def wait_for_frames(page: Page) -> Page:
    """Wait for two frames, until the canvas is drawn."""
    page.evaluate("() => new Promise((then) => requestAnimationFrame(() => requestAnimationFrame(then)))")
    return page


def expect_accessible_layout(page: Page) -> None:
    """Expect no cut-off content at three widths, and no serious accessibility violation."""
    for width, scheme in [(820, "light"), (1440, "light"), (390, "dark")]:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function("width => document.documentElement.scrollWidth === width", arg=width)
        violations = Axe().run(page).response["violations"] if width != 820 else []
        serious = [violation for violation in violations if violation["impact"] in ("serious", "critical")]
        assert serious == [], (width, scheme)


def wait_until_ready(page: Page) -> Page:
    """Wait for the first content of the view."""
    view = re.search("review|messages|cloud|model", page.url)
    assert view is not None
    page.locator(READY_SELECTORS[view[0]]).first.wait_for(state="attached")
    return page


def add_models(page: Page, *cards: dict[str, Any], like_default: bool = False) -> None:
    """Add model cards to the served ones; `like_default`: with the other fields of the default model."""

    def fulfil(route: Route) -> None:
        models = route.fetch().json()["models"]
        fields = next(model for model in models if model.get("default")) if like_default else {}
        added = [{**fields, "default": False, **card} for card in cards]
        route.fulfill(json={"models": [*models, *added]})

    page.route("**/models", fulfil)


def write_text(page: Page, text: str) -> None:
    page.get_by_label("Write a text").fill(text)
    starts_with = "text => document.getElementById('highlights').textContent.startsWith(text)"
    page.wait_for_function(starts_with, arg=text)
    page.wait_for_function("() => document.querySelectorAll('#highlights .word').length > 0")


def hover_word(page: Page, surface: str) -> None:
    """Move the pointer to a word of the text."""
    word = page.locator("#highlights .word").filter(has_text=re.compile(f"^{re.escape(surface)}$")).first
    word.scroll_into_view_if_needed()
    box = word.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def read_points(page: Page) -> list[list[float]]:
    lines = page.locator("#points").input_value().splitlines()
    return [[float(x) for x in line.split(",")] for line in lines]


def parse_number(text: str) -> float:
    return float(text.replace("\u2212", "-"))


def classify(page: Page, server: str, text: str, **extra: object) -> dict[str, Any]:
    """Classify a text with the model that the page has selected."""
    body = {"input": text, "model": page.locator("#review-model").input_value(), "explain": "full"} | extra
    answer: dict[str, Any] = httpx.post(f"{server}/classify", json=body).raise_for_status().json()
    return answer["data"][0]


def read_snippet(page: Page, view: str, language: str) -> str:
    """Return the code in the Models view for the latest request of a view, review or cloud."""
    heading = page.get_by_role("heading", name=language)
    block = page.locator(f"#snippet-{view} .snippet").filter(has=heading)
    return block.locator("pre").inner_text()
