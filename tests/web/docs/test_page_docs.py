"""/docs: every route can be tried, copied and understood; short until somebody opens a route."""

import json
import re
import subprocess

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect
from visiting import Visit, expect_fit_for_everybody, settle

BEFORE_PX = {1440: 17_331, 390: 21_631}  # the height of these documents in 0.1.0


def opened(page: Page, name: str) -> Locator:
    """The route with that heading, opened and answered."""
    route = page.locator(".route").filter(has=page.get_by_role("heading", name=name, exact=True))
    route.locator("summary").click()
    route.locator(".answer pre").wait_for()
    return route


@pytest.mark.parametrize("width", [1440, 390])
def test_documents_show_every_route_and_stay_short(visit: Visit, server: str, width: int) -> None:
    page = settle(visit("docs", width=width))
    document = httpx.get(f"{server}/openapi.json").json()
    routes = [f"{method.upper()} {path}" for path, item in document["paths"].items() for method in item]
    assert page.locator(".route h2").all_inner_texts() == routes
    assert page.evaluate("document.documentElement.scrollHeight") < BEFORE_PX[width] / 3


def test_example_is_answered_by_this_server_and_a_change_of_it_too(visit: Visit, server: str) -> None:
    route = opened(settle(visit("docs")), "POST /classify")
    expect_fit_for_everybody(route.page)
    asked = json.loads(route.locator("textarea").input_value())
    names = [card["name"] for card in httpx.get(f"{server}/models").json()["models"]]
    assert asked.get("model", names[0]) in names
    expect(route.locator(".answer p")).to_contain_text("This server answered 200")
    shown = json.loads(route.locator(".answer pre").inner_text())
    assert shown["data"] == httpx.post(f"{server}/classify", json=asked).json()["data"]
    route.locator("textarea").fill('{"text": "A mess"}')
    route.get_by_role("button", name="Send").click()
    expect(route.locator(".answer p")).to_contain_text("This server answered 422")
    expect(route.locator(".answer pre")).to_contain_text("input")


def test_copied_curl_runs(visit: Visit) -> None:
    page = settle(visit("docs"))
    for name in ("POST /classify", "GET /models/{name}", "POST /dynamics"):
        route = opened(page, name)
        expect(route.locator(".answer p")).to_contain_text("200")
        page.evaluate("document.getElementById('live').textContent = ''")
        route.get_by_role("button", name="Copy the curl lines").click()
        expect(page.locator("#live")).to_have_text("curl copied")
        command = page.evaluate("navigator.clipboard.readText()")
        told = ["bash", "-c", f"{command} -sS -o /dev/null -w '%{{http_code}}'"]
        assert subprocess.check_output(told, text=True, timeout=60) == "200", name


def test_nested_fields_are_unfolded(visit: Visit) -> None:
    route = opened(settle(visit("docs")), "POST /classify")

    def field(inside: Locator, name: str) -> Locator:
        code = route.page.locator(":scope > code", has_text=re.compile(f"^{name}$"))
        return inside.filter(has=code).first

    leaders = field(field(route.locator(".fields > li"), "data").locator("li"), "leaders")
    assert {"word", "contribution", "spans"} <= set(leaders.locator("li > code").all_inner_texts())
    expect(field(leaders.locator("li"), "spans")).to_contain_text("list of [integer, integer]")


def test_shape_of_errors_has_all_that_an_error_has(visit: Visit) -> None:
    shape = json.loads(settle(visit("docs")).locator("#docs-error-shape").inner_text())
    assert shape["error"].keys() == {"type", "message", "param", "request_id"}


def test_no_raw_markup_is_shown(visit: Visit) -> None:
    page = settle(visit("docs"))
    page.evaluate("document.querySelectorAll('.route').forEach((route) => { route.open = true; })")
    page.wait_for_load_state("networkidle")
    assert "`" not in "".join(page.locator(".said, .fields, summary, #docs-errors").all_inner_texts())


def test_key_is_used_and_stays_out_of_the_curl(visit: Visit, keyed: str) -> None:
    page = settle(visit("docs", url=keyed))
    page.get_by_label("API key").fill("\u201csesame\u201d")
    page.get_by_role("button", name="Use it").click()
    expect(page.locator("#docs-key-state")).to_contain_text("In this one there is another character")
    page.get_by_label("API key").fill(" sesame ")
    page.get_by_role("button", name="Use it").click()
    expect(page.locator("#docs-key-state")).to_have_text("A key is in use in this tab.")
    page.wait_for_load_state("networkidle")
    route = opened(page, "POST /classify")
    expect(route.locator(".answer p")).to_contain_text("This server answered 200")
    expect(route.locator(".curl")).to_contain_text("Authorization: Bearer $HARDMAX_KEY")
    assert "sesame" not in page.content()
