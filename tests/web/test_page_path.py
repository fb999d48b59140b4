"""The page below a path, as behind a gateway: every address that it uses is relative."""

import re

from messages_page import paste
from page_actions import OpenPage, read_snippet, wait_until_ready
from playwright.sync_api import Page, Route, expect

PREFIX = "/tools/sentiment"


def test_page_works_below_a_path(open_page: OpenPage, server: str) -> None:
    """A request outside of the path is answered with 404, as by a gateway."""
    outside: list[str] = []

    def forward(route: Route) -> None:
        url = route.request.url
        if url.startswith(f"{server}{PREFIX}/"):
            route.fulfill(response=route.fetch(url=url.replace(PREFIX, "", 1)))
        else:
            outside.append(url)
            route.fulfill(status=404)

    def install(page: Page) -> None:
        page.route(re.compile(re.escape(server)), forward)

    page = wait_until_ready(open_page("#review", url=f"{server}{PREFIX}", before=install))
    expect(page.locator("#verdict-score")).to_contain_text("sure")
    page.get_by_role("link", name="Many messages").click()
    paste(page, ["A superb film.", "A dreadful mess."])
    page.get_by_role("link", name="Cloud").click()
    expect(page.locator("#clusters tr").first).to_be_visible()
    page.get_by_role("link", name="Models").click()
    page.locator("#cards article").first.wait_for()
    assert f"{server}{PREFIX}/classify" in read_snippet(page, "review", "curl")
    assert f'Client("{server}{PREFIX}")' in read_snippet(page, "cloud", "Python")
    links = page.locator("footer a").evaluate_all("all => all.map(({ href }) => href)")
    assert links == [f"{server}{PREFIX}/docs", f"{server}{PREFIX}/openapi.json"]
    assert outside == []
