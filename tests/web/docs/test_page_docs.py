"""The API reference at /docs: every route can be sent and copied as curl; routes are collapsed at first."""

import json
import re
import subprocess

import httpx
import pytest
from page_actions import OpenPage, expect_accessible_layout, open_route, wait_until_ready
from playwright.sync_api import Locator, expect

OLD_HEIGHT_PX = {1440: 17_331, 390: 21_631}  # the height of the page in 0.1.0


@pytest.mark.parametrize("width", [1440, 390])
def test_reference_lists_every_route_and_stays_short(open_page: OpenPage, server: str, width: int) -> None:
    page = wait_until_ready(open_page("docs", width=width))
    document = httpx.get(f"{server}/openapi.json").json()
    routes = [f"{method.upper()} {path}" for path, item in document["paths"].items() for method in item]
    assert page.locator(".route h2").all_inner_texts() == routes
    assert page.evaluate("document.documentElement.scrollHeight") < OLD_HEIGHT_PX[width] / 3


def test_examples_and_edited_requests_are_sent_to_the_server(open_page: OpenPage, server: str) -> None:
    route = open_route(wait_until_ready(open_page("docs")), "POST /classify")
    expect_accessible_layout(route.page)
    request = json.loads(route.locator("textarea").input_value())
    names = [card["name"] for card in httpx.get(f"{server}/models").json()["models"]]
    assert request.get("model", names[0]) in names
    expect(route.locator(".response p")).to_contain_text("Response 200")
    shown = json.loads(route.locator(".response pre").inner_text())
    assert shown["data"] == httpx.post(f"{server}/classify", json=request).json()["data"]
    route.locator("textarea").fill('{"text": "A mess"}')
    route.get_by_role("button", name="Send").click()
    expect(route.locator(".response p")).to_contain_text("Response 422")
    expect(route.locator(".response pre")).to_contain_text("input")


def test_copied_curl_runs(open_page: OpenPage) -> None:
    page = wait_until_ready(open_page("docs"))
    for name in ("POST /classify", "GET /models/{name}", "POST /dynamics"):
        route = open_route(page, name)
        expect(route.locator(".response p")).to_contain_text("200")
        page.evaluate("document.getElementById('live').textContent = ''")
        route.get_by_role("button", name="Copy curl command").click()
        expect(page.locator("#live")).to_have_text("curl copied")
        command = page.evaluate("navigator.clipboard.readText()")
        command_line = ["bash", "-c", f"{command} -sS -o /dev/null -w '%{{http_code}}'"]
        assert subprocess.check_output(command_line, text=True, timeout=60) == "200", name


def test_nested_fields_are_unfolded(open_page: OpenPage) -> None:
    route = open_route(wait_until_ready(open_page("docs")), "POST /classify")

    def field(items: Locator, name: str) -> Locator:
        code = route.page.locator(":scope > code", has_text=re.compile(f"^{name}$"))
        return items.filter(has=code).first

    leaders = field(field(route.locator(".fields > li"), "data").locator("li"), "leaders")
    assert {"word", "contribution", "spans"} <= set(leaders.locator("li > code").all_inner_texts())
    expect(field(leaders.locator("li"), "spans")).to_contain_text("array of [integer, integer]")


def test_error_schema_has_the_fields_of_an_error(open_page: OpenPage) -> None:
    example = json.loads(wait_until_ready(open_page("docs")).locator("#docs-error-example").inner_text())
    assert example["error"].keys() == {"type", "message", "param", "request_id"}


def test_no_raw_markup_is_shown(open_page: OpenPage) -> None:
    page = wait_until_ready(open_page("docs"))
    page.evaluate("document.querySelectorAll('.route').forEach((route) => { route.open = true; })")
    page.wait_for_load_state("networkidle")
    assert "`" not in "".join(page.locator(".description, .fields, summary, #docs-errors").all_inner_texts())
