"""The result of a cloud: plot, trajectory, text, and comparison with softmax; choice of leaders; links."""

import re

from cloud_page import download_svg, expect_n_points, point_position
from page_actions import OpenPage
from playwright.sync_api import Page, Route, expect

EMERGING = "preset=emerging"


def test_emerging_leader_is_listed_and_announced_as_it_appears(open_cloud: OpenPage) -> None:
    page = open_cloud(EMERGING)
    expect(page.locator("#emerging")).to_have_text("Point 1 becomes a leader at layer 1.")
    page.get_by_role("slider", name="Layer of the cloud").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#live")).to_have_text("Point 1 becomes a leader at layer 1")


def test_cloud_plays_once_when_loaded_and_again_on_play(open_cloud: OpenPage) -> None:
    page = open_cloud(EMERGING, reduced_motion="no-preference")
    canvas, slider = page.locator("#cloud-canvas"), page.locator("#cloud-player input")
    page.wait_for_function("() => Number(document.querySelector('#cloud-player input').value) > 0.5")
    end = slider.get_attribute("max")
    page.wait_for_function("end => document.querySelector('#cloud-player input').value === end", arg=end)
    page.wait_for_timeout(300)
    assert slider.input_value() == end
    before = canvas.screenshot()
    page.get_by_role("button", name="Play the cloud").click()
    page.wait_for_function("() => Number(document.querySelector('#cloud-player input').value) > 1.2")
    page.get_by_role("button", name="Pause the cloud").click()
    paused = slider.input_value()
    assert canvas.screenshot() != before
    assert slider.input_value() == paused
    expect(page.get_by_role("button", name="Play the cloud")).to_be_visible()
    expect(page.locator("#cloud-player .player-time")).to_contain_text("closed form")


def test_softmax_is_drawn_with_its_distance_from_hardmax_at_each_layer(open_cloud: OpenPage) -> None:
    page = open_cloud("points=1,0.2;0.9,0.9;-0.8,-0.3;0.5,0.4&alpha=0.5")
    distance_text = page.locator("#softmax-distance")
    expect(distance_text).to_contain_text("Move the slider")
    with page.expect_response("**/dynamics") as response_info:
        page.locator("#softmax").fill("-1")
    softmax = response_info.value.json()["softmax"]
    assert softmax["temperature"] == 0.5
    distances = [float(f"{distance:.3g}") for distance in softmax["distance"]]
    last_distance = f"{distances[-1]:g} at layer {softmax['layers'][-1]}."
    expect(distance_text).to_have_text(
        f"Circles: softmax attention. Largest distance from hardmax: 0 at layer 0, {last_distance}"
    )
    page.get_by_role("slider", name="Layer of the cloud").focus()
    page.keyboard.press("ArrowRight")
    expect(distance_text).to_contain_text(f"hardmax: {distances[1]:g} at layer 1, {last_distance}")
    page.wait_for_function("() => location.hash.includes('softmax=0.5')")
    circles = download_svg(page).count('r="5.5"')
    assert circles == 4
    page.locator("#softmax").fill("-8.25")
    expect(distance_text).to_contain_text("Move the slider")
    page.wait_for_function("() => !location.hash.includes('softmax')")


def test_control_finds_a_matrix_with_the_marked_leaders(open_cloud: OpenPage) -> None:
    page = open_cloud("points=1,0.2;0.9,0.9;-0.8,-0.3;0.5,0.4")
    expect(page.locator("#clusters td:first-child").filter(has_text="leader 0")).to_have_count(0)
    page.locator("#cloud-canvas").focus()
    for key in (".", "w", ".", "w"):
        page.keyboard.press(key)
    expect(page.locator("#control-count")).to_have_text("2 points marked")
    page.get_by_role("button", name="Find A").click()
    expect(page.locator("#control-answer")).to_contain_text("Found, with margin")
    names = page.locator("#clusters td:first-child")
    expect(names.filter(has_text=re.compile(r"leader [01]$"))).to_have_count(2)


def test_infeasible_control_is_reported(open_cloud: OpenPage) -> None:
    page = open_cloud("points=1,0;0.5,0;-1,0.1")
    page.get_by_text("Mark", exact=True).first.click()
    page.mouse.click(*point_position(page, 1))
    page.get_by_role("button", name="Find A").click()
    expect(page.locator("#control-answer")).to_have_text(
        "No such A exists: this point cannot be a leader from layer 0."
    )


def test_undecided_control_is_reported(open_cloud: OpenPage) -> None:
    page = open_cloud("preset=triangle")
    answer = {"feasible": None, "A": None, "margin": None, "note": "The search ended before a proof."}
    page.route("**/control", lambda route: route.fulfill(json=answer))
    page.locator("#cloud-canvas").focus()
    page.keyboard.press(".")
    page.keyboard.press("w")
    page.get_by_role("button", name="Find A").click()
    control_answer = page.locator("#control-answer")
    expect(control_answer).to_contain_text("neither that such an A exists nor that none exists")
    expect(control_answer).to_contain_text("The search ended")


def test_run_without_a_proof_is_reported(open_cloud: OpenPage) -> None:
    """Regression test: the page said that a point stays between leaders."""
    page = open_cloud("preset=triangle")
    note = "not certified: the exact decision would need more than 9 products of digits"
    unproved = {"status": "converged", "certified_layer": None, "margin": None, "note": note}
    page.route("**/dynamics", lambda route: route.fulfill(json=route.fetch().json() | unproved))
    page.get_by_role("button", name="Circle").click()
    expect(page.locator("#result-details")).to_contain_text(note)
    expect(page.locator("#result")).to_contain_text("not proved")
    expect(page.locator("#result")).not_to_contain_text("between leaders")


def hold_control_request(page: Page) -> list[Route]:
    """Mark a point and send a control request, which waits until the test answers it."""
    pending_routes: list[Route] = []
    page.route("**/control", lambda route: pending_routes.append(route))
    page.get_by_role("button", name="Clear").click()
    page.locator("#cloud-canvas").focus()
    page.keyboard.press(".")
    page.keyboard.press("w")
    with page.expect_request("**/control"):
        page.get_by_role("button", name="Find A").click()
    return pending_routes


CONTROL_ANSWER = {"feasible": True, "A": [[2, 0], [0, 1]], "margin": 0.5, "note": None}


def test_control_answer_is_discarded_after_a_change(open_cloud: OpenPage) -> None:
    page = open_cloud("preset=triangle")
    changes = (
        lambda: page.get_by_role("button", name="Circle").click(),
        lambda: page.locator("#cloud-canvas").press("n"),
        lambda: page.get_by_role("button", name="Clear").click(),
    )
    for change in changes:
        pending_routes = hold_control_request(page)
        change()
        expect(page.locator("#control-answer")).to_be_empty()
        pending_routes.pop().fulfill(json=CONTROL_ANSWER)
        page.wait_for_load_state("networkidle")
        expect(page.locator("#control-answer")).to_be_empty()
        expect(page.locator("#stretch-value")).to_have_text("none (A = I)")


def test_late_answer_is_discarded_after_all_points_were_removed(open_cloud: OpenPage) -> None:
    page = open_cloud("preset=triangle")
    pending_routes: list[Route] = []
    page.route("**/dynamics", lambda route: pending_routes.append(route))
    with page.expect_request("**/dynamics"):
        page.get_by_role("button", name="Circle").click()
    page.get_by_role("button", name="Remove all points").click()
    expect(page.locator("#result")).to_have_text("Add a point to start.")
    pending_routes.pop().continue_()
    page.wait_for_load_state("networkidle")
    expect(page.locator("#result")).to_have_text("Add a point to start.")
    assert download_svg(page).count("<circle") == 0


def test_cloud_is_run_for_no_more_layers_than_the_server_allows(open_page: OpenPage) -> None:
    def allow(route: Route) -> None:
        info = route.fetch().json()
        route.fulfill(json={**info, "limits": {**info["limits"], "max_layers": 50}})

    max_layers: list[int] = []
    page = open_page("#review", before=lambda page: page.route("**/info", allow))
    page.on(
        "request",
        lambda request: (
            max_layers.append(request.post_data_json["max_layers"]) if "/dynamics" in request.url else None
        ),
    )
    page.get_by_role("link", name="Cloud").click()
    expect_n_points(page, 9)
    assert max_layers == [50]


def test_links_of_an_empty_and_of_a_large_cloud(open_cloud: OpenPage) -> None:
    page = open_cloud()
    page.get_by_role("button", name="Remove all points").click()
    expect(page.locator("#result")).to_have_text("Add a point to start.")
    page.wait_for_function("() => !location.hash.includes('preset')")
    share = page.locator("#share")
    share.click()
    expect(share).to_have_text("Link copied")
    other_page = page.context.new_page()
    other_page.goto(page.evaluate("navigator.clipboard.readText()"))
    expect(other_page.locator("#result")).to_have_text("Add a point to start.")
    other_page.close()
    page.locator("#points").fill("\n".join(f"{k},{k % 7}" for k in range(1, 302)))
    page.get_by_role("button", name="Use these points").click()
    expect_n_points(page, 301)
    page.locator("#share").click()
    expect(share).to_have_text("Link copied without the points, which are too many for a link")


def test_plot_is_saved_with_tick_labels(open_cloud: OpenPage) -> None:
    svg = download_svg(open_cloud("preset=triangle"))
    assert svg.count("<polygon") >= 4  # the polytope and three stars
    assert svg.count("<circle") == 9
    assert {"0.5", "1.0", "\u22120.5", "\u22121.0"} <= set(re.findall(r">(\u2212?\d\.\d)<", svg))


def test_triangle_has_the_leaders_of_the_paper(open_cloud: OpenPage) -> None:
    page = open_cloud("preset=triangle")
    expect(page.locator("#cloud-badge")).to_have_text("\u2713 Certified at layer 1")
    names = page.locator("#clusters td:first-child").all_inner_texts()
    assert sorted(name.strip() for name in names) == ["leader 0", "leader 1", "leader 2"]
    expect(page.locator("#result")).to_have_text(
        re.compile("^9 points end at 3 leaders. From layer 1 on, no point changes")
    )
    expect(page.locator("#result-details")).to_have_text(re.compile("^Certified at layer 1, margin 0.0201"))
    page.locator("#points").fill("1, 1")
    page.get_by_role("button", name="Use these points").click()
    expect(page.locator("#result")).to_contain_text("1 point ends at 1 leader.")


def test_failed_run_shows_no_certificate(open_cloud: OpenPage) -> None:
    page = open_cloud("preset=triangle")
    page.route("**/dynamics", lambda route: route.abort())
    page.locator("#points").fill("1, 2\n3, 4")
    page.get_by_role("button", name="Use these points").click()
    expect(page.locator("#cloud-error")).to_have_text("The server does not answer. Is it still running?")
    expect(page.locator("#result")).to_have_text("These points have not been run.")
    expect(page.locator("#cloud-badge")).to_be_hidden()
