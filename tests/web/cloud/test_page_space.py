"""Clouds in space: they are rotated and explained, and their points are not moved by hand."""

import numpy as np
import pytest
from cloud_page import canvas_box, download_svg, expect_n_points, read_points
from page_actions import OpenPage, wait_for_frames
from playwright.sync_api import Page, expect

SPACE = "preset=space"


def read_view(page: Page) -> list[float]:
    """Return the yaw and pitch in the link."""
    page.wait_for_timeout(700)  # the URL is updated twice a second
    view = page.evaluate("new URLSearchParams(location.hash.split('?')[1]).get('look')")
    return [float(x) for x in view.split(",")]


def test_drag_rotates_the_cloud_and_moves_no_point(open_cloud: OpenPage) -> None:
    page = open_cloud(SPACE)
    box = canvas_box(page)
    before, start = wait_for_frames(page).locator("#cloud-canvas").screenshot(), read_points(page)
    [yaw, pitch] = read_view(page)
    page.mouse.move(box["x"] + 60, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 160, box["y"] + 110, steps=4)
    page.mouse.up()
    assert read_view(page) == pytest.approx([yaw - 0.8, pitch + 0.4], abs=0.011)
    assert wait_for_frames(page).locator("#cloud-canvas").screenshot() != before
    assert read_points(page) == start


def test_keys_rotate_and_select_and_the_link_contains_the_view(open_cloud: OpenPage) -> None:
    page = open_cloud(SPACE)
    [yaw, pitch] = read_view(page)
    page.locator("#cloud-canvas").focus()
    for key in ("ArrowLeft", "ArrowLeft", "ArrowUp", "."):
        page.keyboard.press(key)
    view = read_view(page)
    assert view == pytest.approx([yaw + np.pi / 18, pitch - np.pi / 36], abs=0.011)
    expect(page.locator("#explanation")).to_contain_text("inner products of point 0")
    other_page = open_cloud(page.evaluate("location.hash.split('?')[1]"))
    assert read_view(other_page) == view


def test_points_in_space_are_removed_but_not_added_by_hand(open_cloud: OpenPage) -> None:
    page = open_cloud("points=1,1,1;-1,0,0.5;0.3,-1,-1")
    expect_n_points(page, 3)
    page.locator("#cloud-canvas").click(position={"x": 20, "y": 100})
    page.locator("#cloud-canvas").focus()
    page.keyboard.press("n")
    expect(page.locator("#cloud-error")).to_have_text(
        "Points can be added and moved only if they have two coordinates."
    )
    page.keyboard.press(".")
    page.keyboard.press("Delete")
    expect_n_points(page, 2)
    expect(page.locator("#cloud-error")).to_be_hidden()


def test_plot_of_space_is_saved_with_every_point(open_cloud: OpenPage) -> None:
    svg = download_svg(open_cloud(SPACE))
    assert svg.count("<circle") == 60
    assert all(f">{axis}</text>" in svg for axis in "xyz")


def test_cloud_of_more_dimensions_is_drawn_in_three(open_cloud: OpenPage) -> None:
    page = open_cloud("points=1,2,3,4,5;-1,2,0,0,1")
    expect(page.locator("#result-details")).to_contain_text("The plot shows the first 3 of 5 coordinates.")
    expect(page.locator("#clusters td").last).to_have_text("1.00, 2.00, 3.00 \u2026")
