"""Clouds in space: looked at, turned, explained; their points stay where they are."""

from itertools import product

import numpy as np
import pytest
from looking import expect_count, place, points, saved_svg
from playwright.sync_api import Page, expect
from visiting import Visit, drawn, expect_fit_for_everybody

SPACE = "preset=space"


def look(page: Page) -> list[float]:
    """The two turns that the link carries."""
    page.wait_for_function("() => location.hash.includes('look=')")
    said = page.evaluate("new URLSearchParams(location.hash.split('?')[1]).get('look')")
    return [float(x) for x in said.split(",")]


def test_drag_turns_the_cloud_and_moves_no_point(cloud: Visit) -> None:
    page = cloud(SPACE)
    box = place(page)
    before, start = drawn(page).locator("#cloud").screenshot(), points(page)
    [yaw, pitch] = look(page)
    page.mouse.move(box["x"] + 60, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 160, box["y"] + 110, steps=4)
    page.mouse.up()
    assert look(page) == pytest.approx([yaw - 0.8, pitch + 0.4], abs=0.011)
    assert drawn(page).locator("#cloud").screenshot() != before
    assert points(page) == start
    expect_fit_for_everybody(page)


def test_keys_turn_and_choose_and_the_link_keeps_the_look(cloud: Visit) -> None:
    page = cloud(SPACE)
    [yaw, pitch] = look(page)
    page.locator("#cloud").focus()
    for key in ("ArrowLeft", "ArrowLeft", "ArrowUp", "."):
        page.keyboard.press(key)
    turned = look(page)
    assert turned == pytest.approx([yaw + np.pi / 18, pitch - np.pi / 36], abs=0.011)
    expect(page.locator("#why")).to_contain_text("Point 0 agrees")
    again = cloud(page.evaluate("location.hash.split('?')[1]"))
    assert look(again) == turned


def test_points_of_space_are_removed_but_not_placed_by_hand(cloud: Visit) -> None:
    page = cloud("points=1,1,1;-1,0,0.5;0.3,-1,-1")
    expect_count(page, 3)
    page.locator("#cloud").click(position={"x": 20, "y": 100})
    page.locator("#cloud").focus()
    page.keyboard.press("n")
    expect(page.locator("#cloud-problem")).to_have_text(
        "Only points of the plane are placed and moved by hand."
    )
    page.keyboard.press(".")
    page.keyboard.press("Delete")
    expect_count(page, 2)
    expect(page.locator("#cloud-problem")).to_be_hidden()


def test_what_is_for_the_plane_alone_is_hidden_in_space(cloud: Visit) -> None:
    page = cloud(SPACE)
    for name in ("#ellipse", "#tools .plane-only", "#cloud-keys .plane-only"):
        expect(page.locator(name)).to_be_hidden()
    expect(page.locator("#cloud-keys")).to_contain_text("arrows turn")
    page.get_by_role("button", name="Three leaders").click()
    expect(page.locator("#ellipse")).to_be_visible()
    expect(page.locator("#cloud-keys .space-only")).to_be_hidden()


def test_control_in_space_is_not_said_to_be_drawn(cloud: Visit) -> None:
    page = cloud("points=1,1,1;-1,0,0.5;0.3,-1,-1")
    page.locator("#cloud").focus()
    page.keyboard.press(".")
    page.keyboard.press("w")
    page.get_by_role("button", name="Find A").click()
    expect(page.locator("#control-answer")).to_contain_text("Found")
    expect(page.locator("#control-answer")).not_to_contain_text("picture")


def test_picture_of_space_is_saved_with_every_point(cloud: Visit) -> None:
    drawing = saved_svg(cloud(SPACE))
    assert drawing.count("<circle") == 60
    assert all(f">{axis}</text>" in drawing for axis in "xyz")


def test_eye_sees_three_directions_at_right_angles(visit: Visit) -> None:
    axes = visit("#model").evaluate(
        """async () => {
            const { Camera } = await import("/web/cloud/space.js");
            return [[0, 0], [0.7, 0.3], [-2, 1.5], [3, -0.9]].map((look) => new Camera(...look).axes);
        }"""
    )
    for right, up, near in np.array(axes):
        assert np.array([right, up, near]) @ np.array([right, up, near]).T == pytest.approx(np.eye(3))
        assert np.cross(right, up) == pytest.approx(near)  # what is nearer is not drawn behind
    assert axes[0][1] == pytest.approx([0, 0, 1])  # z upwards


def test_edges_are_those_of_the_hull(visit: Visit) -> None:
    octahedron = [[s * (k == c) for c in range(3)] for k in range(3) for s in (1, -1)]
    cube = [list(corner) for corner in product((-1, 1), repeat=3)]
    found = visit("#model").evaluate(
        """async (clouds) => {
            const { edgesOf } = await import("/web/cloud/space.js");
            return clouds.map(edgesOf);
        }""",
        [octahedron, cube, cube[:2]],
    )
    apart = [
        [np.linalg.norm(np.subtract(body[a], body[b])) for a, b in edges]
        for body, edges in zip([octahedron, cube, cube], found, strict=True)
    ]
    assert sorted(apart[0]) == pytest.approx([2**0.5] * 12)
    assert sum(x == pytest.approx(2) for x in apart[1]) == 12
    # The others are diagonals of its sides, none through its middle.
    assert max(apart[1]) == pytest.approx(8**0.5)
    assert apart[2] == []


def test_cloud_of_more_numbers_says_that_three_are_drawn(cloud: Visit) -> None:
    page = cloud("points=1,2,3,4,5;-1,2,0,0,1")
    expect(page.locator("#outcome-exact")).to_contain_text("Drawn are the first three of 5 numbers")
    expect(page.locator("#clusters td").last).to_have_text("1.00, 2.00, 3.00 \u2026")
