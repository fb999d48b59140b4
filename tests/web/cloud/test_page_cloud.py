"""Room 2 as hands use it: pointer, keys, files and dials, and what the picture then shows."""

from __future__ import annotations

import io
import re
from pathlib import Path

import httpx
import numpy as np
import pytest
from playwright.sync_api import Page, expect
from visiting import Visit, drawn

STILL = {"reduced_motion": "reduce"}  # the cloud stays at layer 0 until somebody plays it

EMERGING = "#cloud?preset=emerging"


def settle(page: Page) -> Page:
    page.locator("#clusters tr").first.wait_for()
    return page


def points(page: Page) -> list[list[float]]:
    lines = page.locator("#points").input_value().splitlines()
    return [[float(x) for x in line.split(",")] for line in lines]


def spoken(page: Page) -> str:
    """The sentence on the point that is looked at, with plain minus signs."""
    return page.locator("#why").inner_text().replace("\u2212", "-")


def at(page: Page, i: int) -> tuple[float, float]:
    """Where point i stands on the screen at layer 0, by the page's own map of the plane."""
    x, y = points(page)[i]
    page.locator("#cloud").scroll_into_view_if_needed()
    box = page.locator("#cloud").bounding_box()
    assert box is not None
    view = page.evaluate(
        """async ([points, width, height]) => {
            const { Viewport } = await import("/web/shared/viewport.js");
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
    page = visit("#cloud", width=width, **STILL)
    settle(page)
    page.get_by_role("button", name="Empty the plane").click()
    expect(page.locator("#outcome")).to_have_text("Place a point, and see.")
    for n, (x, y) in enumerate([(90, 80), (240, 200), (120, 230)], start=1):
        page.locator("#cloud").click(position={"x": x, "y": y})
        expect_count(page, n)
    expect(page.locator("#cloud-badge")).to_contain_text("Settled")


def test_drag_moves_a_point(visit: Visit) -> None:
    page = settle(visit("#cloud", **STILL))
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
    page = settle(visit("#cloud", **STILL))
    page.get_by_text("Remove", exact=True).click()
    page.mouse.click(*at(page, 0))
    expect_count(page, 8)
    page.locator("#cloud").focus()
    page.keyboard.press(".")
    page.keyboard.press("Delete")
    expect_count(page, 7)


def test_keyboard_alone_builds_and_moves_a_cloud(visit: Visit) -> None:
    page = settle(visit("#cloud", **STILL))
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
    page = settle(visit(EMERGING, **STILL))
    expect(page.locator("#emerging")).to_have_text("Point 1 becomes a leader at layer 1.")
    page.get_by_role("slider", name="Layer of the cloud").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#live")).to_have_text("Point 1 becomes a leader at layer 1")


def test_play_moves_the_pixels_until_the_end(visit: Visit) -> None:
    page = settle(visit(EMERGING))
    at_its_end = """() => {
        const { value, max } = document.querySelector("#cloud-player input");
        return max > 0 && value === max;
    }"""
    page.wait_for_function(at_its_end)  # it has played once by itself
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
    layer = answer["certified_layer"]
    expect(page.locator("#cloud-badge")).to_have_text(
        f"\u2713 Settled after {layer} layer{'s' * (layer != 1)}"
    )
    expect(page.locator("#outcome-exact")).to_contain_text(f"Certified at layer {layer}, margin")
    shown = re.search(r"margin ([\d.]+\d)", page.locator("#outcome-exact").inner_text())
    assert shown is not None
    assert float(shown[1]) == pytest.approx(answer["margin"], rel=1e-2)


def test_ties_are_marked(visit: Visit) -> None:
    page = settle(visit("#cloud?preset=ties"))
    expect(page.locator("#outcome")).to_contain_text("between leaders")
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
    again = settle(visit(page.evaluate("location.hash"))).locator("#clusters").inner_text()
    expect(page.locator("#clusters")).to_have_text(again, use_inner_text=True)


def test_ellipse_is_dragged_by_its_tip(visit: Visit) -> None:
    page = settle(visit("#cloud", **STILL))
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
    page = settle(visit("#cloud", **STILL))
    page.locator("#points").fill("x,y\n1,1\n-1,0.5\n0.2,-1\n")
    page.get_by_role("button", name="Use these").click()
    expect_count(page, 3)
    page.locator("#points").fill("1,1\n2,2,2")
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
    page = settle(visit("#cloud", **STILL))
    file = {"name": "cloud.npy", "mimeType": "application/octet-stream", "buffer": content.getvalue()}
    page.locator("#points-file").set_input_files(file)  # type: ignore[arg-type]
    expect_count(page, 3)
    assert points(page) == cloud.tolist()


def test_csv_file_is_dropped_on_the_picture(visit: Visit) -> None:
    page = settle(visit("#cloud", **STILL))
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


def test_wish_finds_a_matrix_that_makes_the_marked_lead(visit: Visit) -> None:
    page = settle(visit("#cloud?points=1,0.2;0.9,0.9;-0.8,-0.3;0.5,0.4", **STILL))
    expect(page.locator("#clusters td:first-child").filter(has_text="leader 0")).to_have_count(0)
    page.locator("#cloud").focus()
    for key in (".", "w", ".", "w"):
        page.keyboard.press(key)
    expect(page.locator("#wish-count")).to_have_text("2 points marked")
    page.get_by_role("button", name="Find A").click()
    expect(page.locator("#wish-answer")).to_contain_text("Found, with margin")
    names = page.locator("#clusters td:first-child")
    expect(names.filter(has_text=re.compile(r"leader [01]$"))).to_have_count(2)


def test_impossible_wish_is_called_impossible(visit: Visit) -> None:
    page = settle(visit("#cloud?points=1,0;0.5,0;-1,0.1", **STILL))
    page.get_by_text("Wish", exact=True).first.click()
    page.mouse.click(*at(page, 1))
    page.get_by_role("button", name="Find A").click()
    expect(page.locator("#wish-answer")).to_have_text("No A does it: this point cannot lead from the start.")


def test_wish_that_nobody_could_decide_says_so(visit: Visit) -> None:
    page = settle(visit("#cloud?preset=triangle", **STILL))
    undecided = {
        "feasible": None,
        "A": None,
        "margin": None,
        "note": "The search ended before either was proved.",
    }
    page.route("**/control", lambda route: route.fulfill(json=undecided))
    page.locator("#cloud").focus()
    page.keyboard.press(".")
    page.keyboard.press("w")
    page.get_by_role("button", name="Find A").click()
    expect(page.locator("#wish-answer")).to_contain_text(
        "neither that there is such an A nor that there is none"
    )
    expect(page.locator("#wish-answer")).to_contain_text("The search ended")


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
    page = settle(visit("#cloud?points=1,1;-1,-1;0.3,0.3", **STILL))
    x, y = at(page, 0)
    drawn(page)
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
    page = settle(visit("#cloud", **STILL))
    with page.expect_download() as download:
        page.locator("#cloud-export").get_by_role("button", name="SVG").click()
    drawing = Path(download.value.path()).read_text()
    assert drawing.count("<polygon") >= 4  # the polytope and three stars
    assert drawing.count("<circle") == 9
    assert download.value.suggested_filename == "cloud.svg"


def test_cloud_plays_once_by_itself_and_stops_at_its_end(visit: Visit) -> None:
    page = settle(visit(EMERGING))
    slider = page.locator("#cloud-player input")
    page.wait_for_function("() => Number(document.querySelector('#cloud-player input').value) > 0.5")
    end = slider.get_attribute("max")
    page.wait_for_function("end => document.querySelector('#cloud-player input').value === end", arg=end)
    page.wait_for_timeout(300)
    assert slider.input_value() == end
    expect(page.get_by_role("button", name="Play the cloud")).to_be_visible()


def products(cloud: list[list[float]], i: int) -> list[tuple[float, int]]:
    """What point i compares, largest first."""
    return sorted(((float(np.dot(cloud[i], z)), j) for j, z in enumerate(cloud)), reverse=True)


def test_point_that_is_pointed_at_says_what_it_compared(visit: Visit) -> None:
    page = settle(visit("#cloud?preset=triangle", **STILL))
    page.locator("#cloud").scroll_into_view_if_needed()
    before = page.locator("#cloud").screenshot()
    page.mouse.move(*at(page, 3))
    expect(page.locator("#why")).to_contain_text("Point 3 agrees")
    said = [(float(x), int(j)) for x, j in re.findall(r"(-?[\d.]+) with (\d+)", spoken(page))]
    expected = [(float(f"{x:.3g}"), j) for x, j in products(points(page), 3)[:4] if j != 3]
    assert said[: len(expected)] == expected
    assert f"it follows {expected[0][1]}, 33 % of the way" in spoken(page)
    assert drawn(page).locator("#cloud").screenshot() != before  # its arrow and its half-plane
    page.mouse.move(5, 5)
    expect(page.locator("#why")).to_have_text("")


def test_leader_says_that_it_stays(visit: Visit) -> None:
    page = settle(visit("#cloud?preset=triangle", **STILL))
    page.locator("#cloud").focus()
    page.keyboard.press(".")
    expect(page.locator("#why")).to_contain_text("Point 0 agrees 2 with itself")
    expect(page.locator("#why")).to_contain_text("so it stays")
    expect(page.locator("#live")).to_contain_text("Point 0 at 1, 1. Point 0 agrees 2 with itself")


def test_point_between_equals_names_them(visit: Visit) -> None:
    page = settle(visit("#cloud?points=1,1;1,-1;0.5,0", **STILL))
    page.locator("#cloud").focus()
    page.keyboard.press(",")
    expect(page.locator("#why")).to_contain_text(
        "Point 2 agrees 0.5 with each of 0 and 1, 0.25 with itself: it goes to the middle"
    )


def test_what_only_looks_equal_is_told_as_the_service_decided_it(visit: Visit) -> None:
    """0.1 + 0.2 is more than 0.3, so point 2 follows point 0 although both products print alike."""
    page = settle(visit(f"#cloud?points=1,{0.1 + 0.2!r};-1,0.3;0,0.05", **STILL))
    page.locator("#cloud").focus()
    page.keyboard.press(",")
    expect(page.locator("#why")).to_contain_text("Point 2 agrees 0.015 with 0, 0.015 with 1")
    expect(page.locator("#why")).to_contain_text("it follows 0, 33 % of the way")


def test_products_are_those_of_the_matrix(visit: Visit) -> None:
    page = settle(visit("#cloud?points=1,0.2;0.4,0.9;-0.8,-0.3&stretch=4&turn=90", **STILL))
    page.locator("#cloud").focus()
    page.keyboard.press(".")
    z = np.array([[1, 0.2], [0.4, 0.9], [-0.8, -0.3]])
    expected = f"{z[0] @ np.diag([4, 0.25]) @ z[0]:.3g}"
    expect(page.locator("#why")).to_contain_text(f"Point 0 agrees {expected} with itself")


def test_axes_have_numbers(visit: Visit) -> None:
    page = settle(visit("#cloud?preset=triangle", **STILL))
    with page.expect_download() as download:
        page.locator("#cloud-export").get_by_role("button", name="SVG").click()
    drawing = Path(download.value.path()).read_text()
    numbers = set(re.findall(r">(\u2212?\d\.\d)<", drawing))
    assert {"0.5", "1.0", "\u22120.5", "\u22121.0"} <= numbers


@pytest.mark.parametrize("width", [1440, 390])
def test_undo_takes_back_one_change_after_the_other(visit: Visit, width: int) -> None:
    page = settle(visit("#cloud?preset=triangle", width=width, **STILL))
    undo = page.get_by_role("button", name="Undo")
    start = points(page)
    expect(undo).to_be_disabled()
    page.locator("#cloud").focus()
    page.keyboard.press(".")
    page.keyboard.press("Delete")
    page.locator("#alpha").fill("2")
    page.get_by_role("button", name="Random").click()
    expect_count(page, 80)
    undo.click()
    expect_count(page, 8)
    expect(page.locator("#alpha-value")).to_contain_text("4: 80 %")
    undo.click()
    expect(page.locator("#alpha-value")).to_contain_text("0.5: 33 %")
    page.keyboard.press("Control+z")
    expect_count(page, 9)
    assert points(page) == start
    expect(undo).to_be_disabled()


def test_a_drag_is_undone_as_one(visit: Visit) -> None:
    page = settle(visit("#cloud?preset=triangle", **STILL))
    start = points(page)
    x, y = at(page, 1)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 40, y + 30, steps=8)
    page.mouse.up()
    page.wait_for_function("() => !document.getElementById('points').value.includes('0.5, -0.5')")
    page.get_by_role("button", name="Undo").click()
    page.wait_for_function("() => document.getElementById('points').value.includes('0.5, -0.5')")
    assert points(page) == start


@pytest.mark.parametrize(
    "pasted", ["[[1,2],[3,4]]", "[[1. 2.]\n [3. 4.]]", "[(1, 2), (3, 4)]", "1 2\n3 4", "a;b\n1;2\n3;4\n"]
)
def test_rows_are_pasted_as_programs_print_them(visit: Visit, pasted: str) -> None:
    page = settle(visit("#cloud", **STILL))
    page.evaluate("text => navigator.clipboard.writeText(text)", pasted)
    page.locator("#cloud").focus()
    page.keyboard.press("Control+v")
    expect_count(page, 2)
    assert points(page) == [[1, 2], [3, 4]]


def test_what_happens_comes_before_its_proof(visit: Visit) -> None:
    page = settle(visit("#cloud?preset=triangle", **STILL))
    expect(page.locator("#outcome")).to_have_text(
        re.compile("^9 points end with 3 leaders. From layer 1 on nobody changes")
    )
    expect(page.locator("#outcome-exact")).to_have_text(re.compile("^Certified at layer 1, margin 0.0201"))
    page.locator("#points").fill("1, 1")
    page.get_by_role("button", name="Use these").click()
    expect(page.locator("#outcome")).to_contain_text("1 point ends with 1 leader.")


def test_finger_places_and_explains_and_the_page_still_scrolls(visit: Visit) -> None:
    page = settle(visit("#cloud?preset=triangle", width=390, has_touch=True, is_mobile=True, **STILL))
    assert page.evaluate("getComputedStyle(document.getElementById('cloud')).touchAction") == "pan-y"
    page.touchscreen.tap(*at(page, 3))
    expect(page.locator("#why")).to_contain_text("Point 3 agrees")
    expect_count(page, 9)
    box = page.locator("#cloud").bounding_box()
    assert box is not None
    page.touchscreen.tap(box["x"] + 40, box["y"] + 60)
    expect_count(page, 10)
    for hint in page.locator(".keys").all():
        expect(hint).to_be_hidden()  # no keys are named where there are none


def test_cloud_that_was_not_run_is_not_called_settled(visit: Visit) -> None:
    page = settle(visit("#cloud?preset=triangle", **STILL))
    page.route("**/dynamics", lambda route: route.abort())
    page.locator("#points").fill("1, 2\n3, 4")
    page.get_by_role("button", name="Use these").click()
    expect(page.locator("#cloud-problem")).to_have_text("The server does not answer. Is it still running?")
    expect(page.locator("#outcome")).to_have_text("What is shown has not been run.")
    expect(page.locator("#cloud-badge")).to_be_hidden()
