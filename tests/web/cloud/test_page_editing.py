"""Editing of the cloud by pointer, touch, keyboard and controls, and undo."""

import re

import pytest
from cloud_page import canvas_box, expect_n_points, point_position, read_points
from page_actions import OpenPage
from playwright.sync_api import expect


@pytest.mark.parametrize("width", [1440, 390])
def test_click_adds_points_and_runs_the_cloud(open_cloud: OpenPage, width: int) -> None:
    page = open_cloud(width=width)
    page.get_by_role("button", name="Remove all points").click()
    expect(page.locator("#result")).to_have_text("Add a point to start.")
    for n, (x, y) in enumerate([(90, 80), (240, 200), (120, 230)], start=1):
        page.locator("#cloud-canvas").click(position={"x": x, "y": y})
        expect_n_points(page, n)
    expect(page.locator("#cloud-badge")).to_contain_text("Certified")


def test_drag_moves_a_point_and_is_one_undo_step(open_cloud: OpenPage) -> None:
    page = open_cloud()
    before = read_points(page)
    x, y = point_position(page, 1)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 30, y + 20, steps=8)
    page.mouse.up()
    page.wait_for_function("() => !document.getElementById('points').value.includes('0.5, -0.5')")
    after = read_points(page)
    assert after[1][0] > before[1][0]
    assert after[1][1] < before[1][1]
    assert after[:1] + after[2:] == before[:1] + before[2:]
    page.get_by_role("button", name="Undo").click()
    page.wait_for_function("() => document.getElementById('points').value.includes('0.5, -0.5')")
    assert read_points(page) == before


def test_keyboard_adds_moves_and_selects_points(open_cloud: OpenPage) -> None:
    page = open_cloud()
    page.locator("#cloud-canvas").focus()
    page.keyboard.press("n")
    expect_n_points(page, 10)
    start = read_points(page)[-1]
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    moved = "start => !document.getElementById('points').value.endsWith(start)"
    page.wait_for_function(moved, arg=f"{start[0]:g}, {start[1]:g}")
    assert read_points(page)[-1][0] > start[0]
    page.wait_for_load_state("networkidle")  # the moved cloud has been run and announced
    page.keyboard.press(",")
    expect(page.locator("#live")).to_have_text(re.compile(r"Point 8 at "))


def test_step_size_and_matrix_change_the_result_and_the_link(open_cloud: OpenPage) -> None:
    page = open_cloud("preset=random")
    before = page.locator("#clusters").inner_text()
    page.get_by_label("Stretch").fill("3")
    page.wait_for_function("before => document.getElementById('clusters').innerText !== before", arg=before)
    page.locator("#turn").fill("40")
    page.locator("#alpha").fill("1")
    page.wait_for_function("() => location.hash.includes('turn=40') && location.hash.includes('alpha=2')")
    expect(page.locator("#alpha-value")).to_have_text("2: 67 % of the way")
    expected = open_cloud(page.evaluate("location.hash.split('?')[1]")).locator("#clusters").inner_text()
    expect(page.locator("#clusters")).to_have_text(expected, use_inner_text=True)


def test_undo_reverts_one_change_after_the_other(open_cloud: OpenPage) -> None:
    page = open_cloud("preset=triangle")
    undo = page.get_by_role("button", name="Undo")
    start = read_points(page)
    expect(undo).to_be_disabled()
    page.locator("#cloud-canvas").focus()
    page.keyboard.press(".")
    page.keyboard.press("Delete")
    page.locator("#alpha").fill("2")
    page.get_by_role("button", name="Random").click()
    expect_n_points(page, 80)
    undo.click()
    expect_n_points(page, 8)
    expect(page.locator("#alpha-value")).to_contain_text("4: 80 %")
    undo.click()
    expect(page.locator("#alpha-value")).to_contain_text("0.5: 33 %")
    page.keyboard.press("Control+z")
    expect_n_points(page, 9)
    assert read_points(page) == start
    expect(undo).to_be_disabled()


@pytest.mark.system
def test_touch_adds_and_explains_points_and_scrolls(open_cloud: OpenPage) -> None:
    page = open_cloud("preset=triangle", width=390, has_touch=True, is_mobile=True)
    assert page.evaluate("getComputedStyle(document.getElementById('cloud-canvas')).touchAction") == "pan-y"
    page.touchscreen.tap(*point_position(page, 3))
    expect(page.locator("#explanation")).to_contain_text("inner products of point 3")
    expect_n_points(page, 9)
    box = canvas_box(page)
    page.touchscreen.tap(box["x"] + 40, box["y"] + 60)
    expect_n_points(page, 10)
    hints = page.locator(".keys").all()
    assert hints
    for hint in hints:
        expect(hint).to_be_hidden()  # no hints about keys without a keyboard
