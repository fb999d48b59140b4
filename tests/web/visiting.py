"""What tests of the page share: the type of the `visit` fixture, a wait for the canvas, what is a finding."""

from __future__ import annotations

from collections.abc import Callable

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
