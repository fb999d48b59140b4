"""What tests of the page share: the type of the `visit` fixture, and what counts as a finding."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page

Visit = Callable[..., Page]


def serious_findings(response: dict[str, list[dict[str, object]]]) -> list[str]:
    """The accessibility findings of axe that keep somebody out."""
    return [
        f"{f['id']}: {f['nodes']}" for f in response["violations"] if f["impact"] in ("serious", "critical")
    ]
