"""Room 2 as hands use it: pointer, keys, files and dials, and what the picture then shows."""

from __future__ import annotations

import io
import re
from pathlib import Path

import httpx
import numpy as np
import pytest
from playwright.sync_api import Page, expect
from visiting import Visit

EMERGING = "#cloud?preset=emerging"


def settle(page: Page) -> Page:
    page.locator("#clusters tr").first.wait_for()
    return page


def points(page: Page) -> list[list[float]]:
    lines = page.get_by_label("Points, one a line: x, y").input_value().splitlines()
    return [[float(x) for x in line.split(",")] for line in lines]


def at(page: Page, i: int) -> tuple[float, float]:
    """Where point i stands on the screen at layer 0, by the page's own map of the plane."""
    x, y = points(page)[i]
    page.locator("#cloud").scroll_into_view_if_needed()
    box = page.locator("#cloud").bounding_box()
    assert box is not None
    view = page.evaluate(
        """async ([points, width, height]) => {
            const { Viewport } = await import("/web/viewport.js");
            const view = new Viewport();
            view.resize(width, height);
            view.fit(points.flat(), { least: 1 });
            return { x: view.centre[0], y: view.centre[1], scale: view.scale };
        }""",
        [points(page), box["width"], box["height"]],
    )
    left = box["x"] + box["width"] / 2 + (x - view["x"]) * view["scale"]
    return left, box["y"] + box["height"] / 2 - (y - view["y"]) * view["scale"]


def expect_count(page: Page, n: int) -> None:
    expect(page.locator("#outcome")).to_contain_text(f"{n} point")


@pytest.mark.parametrize("width", [1440, 390])
def test_click_places_points_and_the_service_answers(visit: Visit, width: int) -> None:
    page = visit("#cloud", width=width)
    settle(page)
    page.get_by_role("button", name="Empty the plane").click()
    expect(page.locator("#outcome")).to_have_text("Place a point, and see.")
    for n, (x, y) in enumerate([(90, 80), (240, 200), (120, 230)], start=1):
        page.locator("#cloud").click(position={"x": x, "y": y})
        expect_count(page, n)
    expect(page.locator("#cloud-badge")).to_contain_text("Certified at layer")


def test_drag_moves_a_point(visit: Visit) -> None:
    page = settle(visit("#cloud"))
    before = points(page)
    x, y = at(page, 1)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 30, y + 20, steps=4)
    page.mouse.up()
    page.wait_for_function("() => !document.getElementById('points').value.includes('0.5, -0.5')")
    after = points(page)
    assert after[1][0] > before[1][0]
    assert after[1][1] < before[1][1]
    assert after[:1] + after[2:] == before[:1] + before[2:]


def test_remove_tool_and_keyboard_take_points_away(visit: Visit) -> None:
    page = settle(visit("#cloud"))
    page.get_by_text("Remove", exact=True).click()
    page.mouse.click(*at(page, 0))
    expect_count(page, 8)
    page.locator("#cloud").focus()
    page.keyboard.press(".")
    page.keyboard.press("Delete")
    expect_count(page, 7)


def test_keyboard_alone_builds_and_moves_a_cloud(visit: Visit) -> None:
    page = settle(visit("#cloud"))
    page.locator("#cloud").focus()
    page.keyboard.press("n")
    expect_count(page, 10)
    start = points(page)[-1]
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    moved = "start => !document.getElementById('points').value.endsWith(start)"
    page.wait_for_function(moved, arg=f"{start[0]:g}, {start[1]:g}")
    assert points(page)[-1][0] > start[0]
    page.wait_for_load_state("networkidle")  # the moved cloud has been run, and its end announced
    page.keyboard.press(",")
    expect(page.locator("#live")).to_have_text(re.compile(r"Point 8 at "))


def test_golden_cloud_has_the_leaders_of_the_paper(visit: Visit) -> None:
    page = settle(visit("#cloud?preset=triangle"))
    names = page.locator("#clusters td:first-child").all_inner_texts()
    assert sorted(name.strip() for name in names) == ["leader 0", "leader 1", "leader 2"]


def test_emerging_leader_is_listed_and_announced_as_it_appears(visit: Visit) -> None:
    page = settle(visit(EMERGING))
    expect(page.locator("#emerging")).to_have_text("Point 1 becomes a leader at layer 1.")
    page.get_by_role("slider", name="Layer of the cloud").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#live")).to_have_text("Point 1 becomes a leader at layer 1")


def test_play_moves_the_pixels_until_the_end(visit: Visit) -> None:
    page = settle(visit(EMERGING))
    canvas = page.locator("#cloud")
    before = canvas.screenshot()
    page.get_by_role("button", name="Play the cloud").click()
    page.wait_for_function("() => Number(document.querySelector('#cloud-player input').value) > 1.2")
    page.get_by_role("button", name="Pause the cloud").click()
    assert canvas.screenshot() != before
    expect(page.locator("#cloud-player output")).to_contain_text("closed form")


def test_reduced_motion_steps_from_layer_to_layer(visit: Visit) -> None:
    page = settle(visit(EMERGING, reduced_motion="reduce"))
    page.get_by_role("button", name="Play the cloud").click()
    assert float(page.locator("#cloud-player input").input_value()) == 1


def test_badge_and_margin_are_those_of_the_service(visit: Visit, server: str) -> None:
    page = settle(visit(EMERGING))
    cloud = [[1, 1 / 3], [-1 / 12, 1 / 12], [-1, -1], [0, 0.25], [-0.3, -0.7], [-0.6, -0.9], [0.8, 0.1]]
    answer = httpx.post(f"{server}/dynamics", json={"points": [*cloud, [0.6, 0.15]], "alpha": 0.5}).json()
    expect(page.locator("#cloud-badge")).to_contain_text(f"Certified at layer {answer['certified_layer']}")
    shown = re.search(r"margin ([\d.]+\d)", page.locator("#outcome").inner_text())
    assert shown is not None
    assert float(shown[1]) == pytest.approx(answer["margin"], rel=1e-2)


def test_ties_are_marked(visit: Visit) -> None:
    page = settle(visit("#cloud?preset=ties"))
    expect(page.locator("#outcome")).to_contain_text("ties)")
    assert page.locator("#clusters .tie").count() >= 2


def test_step_size_and_matrix_change_the_outcome_and_the_link(visit: Visit) -> None:
    page = settle(visit("#cloud?preset=random"))
    before = page.locator("#clusters").inner_text()
    page.get_by_label("Stretch").fill("3")
    page.wait_for_function("before => document.getElementById('clusters').innerText !== before", arg=before)
    page.get_by_label("Turn").fill("40")
    page.locator("#alpha").fill("1")
    page.wait_for_function("() => location.hash.includes('turn=40') && location.hash.includes('alpha=2')")
    expect(page.locator("#alpha-value")).to_have_text("2: 67 % of the way")
    page.wait_for_timeout(300)
    here = page.locator("#clusters").inner_text()
    again = settle(visit(page.evaluate("location.hash")))
    expect(again.locator("#clusters")).to_have_text(here, use_inner_text=True)


def test_ellipse_is_dragged_by_its_tip(visit: Visit) -> None:
    page = settle(visit("#cloud"))
    page.locator("#ellipse").scroll_into_view_if_needed()
    box = page.locator("#ellipse .grip").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 8, box["y"] + 8)
    page.mouse.down()
    page.mouse.move(box["x"] + 8, box["y"] - 40, steps=5)
    page.mouse.up()
    expect(page.locator("#stretch-value")).to_have_text(re.compile(r"\d+\.\d to 1"))
    assert 30 < float(page.locator("#turn").input_value()) < 80


def test_points_are_read_from_text(visit: Visit) -> None:
    page = settle(visit("#cloud"))
    page.get_by_label("Points, one a line: x, y").fill("x,y\n1,1\n-1,0.5\n0.2,-1\n")
    page.get_by_role("button", name="Use these").click()
    expect_count(page, 3)
    page.get_by_label("Points, one a line: x, y").fill("1,1\n2,2,2")
    page.get_by_role("button", name="Use these").click()
    expect(page.locator("#cloud-problem")).to_have_text(
        "These points cannot be read: line 2 has 3 numbers, expected 2."
    )


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_files_are_read(visit: Visit, dtype: str, order: str) -> None:
    cloud = np.array([[1, 2], [-3, 1], [2, -2]], dtype=dtype, order=order)  # type: ignore[call-overload]
    content = io.BytesIO()
    np.save(content, cloud)
    page = settle(visit("#cloud"))
    file = {"name": "cloud.npy", "mimeType": "application/octet-stream", "buffer": content.getvalue()}
    page.locator("#points-file").set_input_files(file)  # type: ignore[arg-type]
    expect_count(page, 3)
    assert points(page) == cloud.tolist()


def test_csv_file_is_dropped_on_the_picture(visit: Visit) -> None:
    page = settle(visit("#cloud"))
    page.evaluate(
        """() => {
            const data = new DataTransfer();
            data.items.add(new File(["1;2\\n-1;0.5\\n0;-1\\n0.5;0.5\\n"], "cloud.csv"));
            const drop = new DragEvent("drop", { dataTransfer: data, cancelable: true });
            document.getElementById("cloud-stage").dispatchEvent(drop);
        }"""
    )
    expect_count(page, 4)


def test_spatial_cloud_is_shown_by_its_first_coordinates(visit: Visit) -> None:
    page = settle(visit("#cloud?points=1,1,1;-1,0,0.5;0.3,-1,-1"))
    expect_count(page, 3)
    page.locator("#cloud").click(position={"x": 20, "y": 100})
    expect(page.locator("#cloud-problem")).to_contain_text("cannot be moved here")


def test_wish_finds_a_matrix_or_says_why_not(visit: Visit, server: str) -> None:
    cloud = [[1, 0.2], [0.4, 0.9], [-0.8, -0.3], [0.5, 0.4]]
    control = httpx.post(f"{server}/control", json={"points": cloud, "leaders": [0, 1]})
    page = settle(visit("#cloud?points=" + ";".join(f"{x},{y}" for x, y in cloud)))
    page.locator("#cloud").focus()
    for key in (".", "w", ".", "w"):
        page.keyboard.press(key)
    expect(page.locator("#wish-count")).to_have_text("2 points marked")
    page.get_by_role("button", name="Find A").click()
    if control.status_code == 200 and control.json()["feasible"]:
        expect(page.locator("#wish-answer")).to_contain_text("Found, with margin")
        names = page.locator("#clusters td:first-child")
        expect(names.filter(has_text=re.compile(r"leader [01]$"))).to_have_count(2)
    elif control.status_code == 200:
        expect(page.locator("#wish-answer")).to_contain_text("No A does it")
    else:
        reason = control.json()["error"]["message"]
        expect(page.locator("#wish-answer")).to_contain_text(re.compile(re.escape(reason[:20]), re.I))


def test_impossible_wish_is_called_impossible(visit: Visit, server: str) -> None:
    cloud = [[1, 0], [0.5, 0], [-1, 0.1]]
    if httpx.post(f"{server}/control", json={"points": cloud, "leaders": [1]}).status_code != 200:
        pytest.skip("the control extra is not installed")
    page = settle(visit("#cloud?points=1,0;0.5,0;-1,0.1"))
    page.get_by_text("Wish", exact=True).first.click()
    page.mouse.click(*at(page, 1))
    page.get_by_role("button", name="Find A").click()
    expect(page.locator("#wish-answer")).to_contain_text("No A does it")


def test_ten_thousand_points_are_drawn_with_few_paths(visit: Visit) -> None:
    """What makes a frame slow is filling and stroking paths; their number no busy machine changes."""
    page = visit("#cloud?preset=many")
    page.locator("#clusters tr").first.wait_for(timeout=90_000)
    expect(page.locator("#outcome")).to_contain_text("10,000 points")
    paths = page.evaluate(
        """async () => {
            let count = 0;
            const paper = CanvasRenderingContext2D.prototype;
            for (const name of ["fill", "stroke", "fillText", "strokeText"]) {
                const original = paper[name];
                paper[name] = function (...given) { count += 1; return original.apply(this, given); };
            }
            const slider = document.querySelector("#cloud-player input");
            slider.value = 1.5;
            slider.dispatchEvent(new Event("input"));
            for (let k = 0; k < 3; k += 1) await new Promise((resume) => requestAnimationFrame(resume));
            return count;
        }"""
    )
    assert 9 < paths < 150


def test_leader_of_a_cloud_is_drawn_in_the_colour_of_its_cluster(visit: Visit) -> None:
    page = settle(visit("#cloud?points=1,1;-1,-1;0.3,0.3"))
    x, y = at(page, 0)
    page.wait_for_timeout(200)
    box = page.locator("#cloud").bounding_box()
    assert box is not None
    pixel = page.evaluate(
        """([x, y]) => {
            const context = document.getElementById("cloud").getContext("2d");
            return [...context.getImageData(x, y, 1, 1).data];
        }""",
        [x - box["x"], y - box["y"]],
    )
    assert pixel[:3] == [0x17, 0x65, 0xA8]


def test_picture_of_the_cloud_is_saved(visit: Visit) -> None:
    page = settle(visit("#cloud"))
    with page.expect_download() as download:
        page.locator("#cloud-export").get_by_role("button", name="SVG").click()
    drawing = Path(download.value.path()).read_text()
    assert drawing.count("<polygon") >= 4  # the polytope and three stars
    assert drawing.count("<circle") == 9
    assert download.value.suggested_filename == "cloud.svg"
