"""Explanations of the next step of a point."""

import re

import numpy as np
import pytest
from cloud_page import explanation_text, point_position, read_points
from page_actions import OpenPage, wait_for_frames
from playwright.sync_api import expect


def products(points: list[list[float]], i: int) -> list[tuple[float, int]]:
    """Return the inner products of point i with all points, largest first."""
    return sorted(((float(np.dot(points[i], z)), j) for j, z in enumerate(points)), reverse=True)


def test_point_under_the_pointer_is_explained(open_cloud: OpenPage) -> None:
    page = open_cloud("preset=triangle")
    page.locator("#cloud-canvas").scroll_into_view_if_needed()
    before = page.locator("#cloud-canvas").screenshot()
    page.mouse.move(*point_position(page, 3))
    expect(page.locator("#explanation")).to_contain_text("inner products of point 3")
    pairs = re.findall(r"(-?[\d.]+) with point (\d+)", explanation_text(page))
    shown = [(float(x), int(j)) for x, j in pairs]
    expected = [(float(f"{x:.3g}"), j) for x, j in products(read_points(page), 3)[:4] if j != 3]
    assert shown[: len(expected)] == expected
    assert f"It follows point {expected[0][1]} and moves 33 % of the way to it." in explanation_text(page)
    plot = wait_for_frames(page).locator("#cloud-canvas")
    assert plot.screenshot() != before  # its arrow and its half-plane
    page.mouse.move(5, 5)
    expect(page.locator("#explanation")).to_have_text("")


@pytest.mark.parametrize(
    ("view", "key", "parts"),
    [
        ("preset=triangle", ".", ["inner products of point 0: 2 with itself", "so it stays"]),
        ("points=1,1;1,-1;0.5,0", ",",
         ["inner products of point 2: 0.5 with each of point 0 and point 1, 0.25 with itself. It moves 33 %",
          "to the mean of the tied points"]),
        # 0.1 + 0.2 > 0.3, so point 2 follows only point 0, although both products are shown as 0.015.
        (f"points=1,{0.1 + 0.2!r};-1,0.3;0,0.05", ",",
         ["inner products of point 2: 0.015 with point 0, 0.015 with point 1",
          "It follows point 0 and moves 33 % of the way to it."]),
        # 4 * 1 ** 2 + 0.2 ** 2 / 4
        ("points=1,0.2;0.4,0.9;-0.8,-0.3&stretch=4&turn=90", ".",
         ["inner products of point 0: 4.01 with itself"]),
    ],
    ids=["leader", "tie", "rounded to equal", "matrix"],
)  # fmt: skip
def test_point_selected_by_keyboard_is_explained_as_the_service_decided(
    open_cloud: OpenPage, view: str, key: str, parts: list[str]
) -> None:
    page = open_cloud(view)
    page.locator("#cloud-canvas").focus()
    page.keyboard.press(key)
    for part in parts:
        expect(page.locator("#explanation")).to_contain_text(part)
        expect(page.locator("#live")).to_contain_text(part)
