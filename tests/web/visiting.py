"""What tests of the page share: the type of the `visit` fixture, hands and eyes, what is a finding."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx
from playwright.sync_api import Page

Visit = Callable[..., Page]


def drawn(page: Page) -> Page:
    """Two frames later: what was asked for stands on the canvas."""
    page.evaluate("() => new Promise((then) => requestAnimationFrame(() => requestAnimationFrame(then)))")
    return page


def serious_findings(response: dict[str, list[dict[str, object]]]) -> list[str]:
    """The accessibility findings of axe that keep somebody out."""
    return [
        f"{f['id']}: {f['nodes']}" for f in response["violations"] if f["impact"] in ("serious", "critical")
    ]


def settle(page: Page) -> Page:
    """The verdict on the present text is there, with its sum."""
    page.locator("#ledger tr.total").wait_for()
    return page


def write(page: Page, text: str) -> None:
    page.get_by_label("Write a review, or take one").fill(text)
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
