"""What tests of the page share: the type of the `visit` fixture, hands and eyes, what keeps nobody out."""

import re
from collections.abc import Callable
from typing import Any

import httpx
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

Visit = Callable[..., Page]
SETTLED = {"review": "#ledger tr.total", "cloud": "#clusters tr", "model": "#cards article", "docs": ".route"}
PRAISE = "A wonderful film with superb acting. I loved it."
BLAME = "An awful film. The worst acting, a waste of time."


def drawn(page: Page) -> Page:
    """Two frames later: what was asked for stands on the canvas."""
    page.evaluate("() => new Promise((then) => requestAnimationFrame(() => requestAnimationFrame(then)))")
    return page


def expect_fit_for_everybody(page: Page) -> None:
    """Nothing is cut off at three widths, and nothing keeps somebody out: on paper and on a dark phone."""
    for width, scheme in [(820, "light"), (1440, "light"), (390, "dark")]:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function("width => document.documentElement.scrollWidth === width", arg=width)
        found = Axe().run(page).response["violations"] if width != 820 else []
        serious = [each for each in found if each["impact"] in ("serious", "critical")]
        assert serious == [], (width, scheme)


def settle(page: Page) -> Page:
    """What its room shows first is there."""
    room = re.search("review|cloud|model|docs", page.url)
    assert room is not None
    page.locator(SETTLED[room[0]]).first.wait_for()
    return page


def write(page: Page, text: str) -> None:
    page.get_by_label("Write a text").fill(text)
    page.wait_for_function("text => document.getElementById('ink').textContent.startsWith(text)", arg=text)
    page.wait_for_function("() => document.querySelectorAll('#ink .word').length > 0")


def point(page: Page, surface: str) -> None:
    """The pointer rests on a word of the sheet."""
    shown = page.locator("#ink .word").filter(has_text=re.compile(f"^{re.escape(surface)}$")).first
    shown.scroll_into_view_if_needed()
    box = shown.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def number(text: str) -> float:
    return float(text.replace("\u2212", "-"))


def classify(page: Page, server: str, text: str, **more: object) -> dict[str, Any]:
    """What the service says of a text, by the model that the page asks."""
    body = {"input": text, "model": page.locator("#review-model").input_value(), "explain": "full"} | more
    answer: dict[str, Any] = httpx.post(f"{server}/classify", json=body).raise_for_status().json()
    return answer["data"][0]
