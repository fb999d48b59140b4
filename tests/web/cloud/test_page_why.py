"""The explanation of the movement of a point."""

import re

import numpy as np
import pytest
from cloud_page import explanation_text, point_position, read_points
from page_actions import OpenPage, wait_for_frames
from playwright.sync_api import expect


def products(points: list[list[float]], i: int) -> list[tuple[float, int]]:
    """Return the scores that point i compares, largest first."""
    return sorted(((float(np.dot(points[i], z)), j) for j, z in enumerate(points)), reverse=True)


def test_point_under_the_pointer_is_explained(open_cloud: OpenPage) -> None:
    page = open_cloud("preset=triangle")
    page.locator("#cloud").scroll_into_view_if_needed()
    before = page.locator("#cloud").screenshot()
    page.mouse.move(*point_position(page, 3))
    expect(page.locator("#why")).to_contain_text("Point 3 agrees")
    scores = [(float(x), int(j)) for x, j in re.findall(r"(-?[\d.]+) with (\d+)", explanation_text(page))]
    expected = [(float(f"{x:.3g}"), j) for x, j in products(read_points(page), 3)[:4] if j != 3]
    assert scores[: len(expected)] == expected
    assert f"it follows {expected[0][1]}, 33 % of the way" in explanation_text(page)
    assert wait_for_frames(page).locator("#cloud").screenshot() != before  # its arrow and its half-plane
    page.mouse.move(5, 5)
    expect(page.locator("#why")).to_have_text("")


@pytest.mark.parametrize(
    ("view", "key", "parts"),
    [
        ("preset=triangle", ".", ["Point 0 agrees 2 with itself", "so it stays"]),
        ("points=1,1;1,-1;0.5,0", ",",
         ["Point 2 agrees 0.5 with each of 0 and 1, 0.25 with itself: it goes to the middle"]),
        # 0.1 + 0.2 is more than 0.3, so point 2 follows point 0 although both products print alike.
        (f"points=1,{0.1 + 0.2!r};-1,0.3;0,0.05", ",",
         ["Point 2 agrees 0.015 with 0, 0.015 with 1", "it follows 0, 33 % of the way"]),
        # 4 times 1 and a quarter of 0.2, squared
        ("points=1,0.2;0.4,0.9;-0.8,-0.3&stretch=4&turn=90", ".", ["Point 0 agrees 4.01 with itself"]),
    ],
    ids=["leader", "equals", "looks equal", "matrix"],
)  # fmt: skip
def test_point_chosen_by_keyboard_is_explained_as_the_service_decided(
    open_cloud: OpenPage, view: str, key: str, parts: list[str]
) -> None:
    page = open_cloud(view)
    page.locator("#cloud").focus()
    page.keyboard.press(key)
    for part in parts:
        expect(page.locator("#why")).to_contain_text(part)
        expect(page.locator("#live")).to_contain_text(part)
