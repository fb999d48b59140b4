"""A server that requires an API key: the page prompts for it, sends it and never shows it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_actions import OpenPage, read_snippet
from playwright.sync_api import expect
from server import serving

STORE_KEY = "sessionStorage.setItem('hardmax-key', 'sesame')"


@pytest.fixture(scope="module")
def keyed_server(small_models: Path) -> Iterator[str]:
    """The URL of a server that requires the API key sesame."""
    with serving(small_models, api_keys="sesame") as running:
        yield running.url


def test_page_prompts_for_the_key_and_reports_a_missing_one(open_page: OpenPage, keyed_server: str) -> None:
    page = open_page("#review", url=keyed_server)
    dialog = page.get_by_role("dialog")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#review-error")).to_contain_text(re.compile("key", re.I))
    page.reload()
    for key in ("s\u20acsame", "\u201csesame\u201d"):  # not allowed in a header
        dialog.get_by_label("API key").fill(key)
        dialog.get_by_role("button", name="Use key").click()
        expect(page.locator("#key-reason")).to_contain_text("printable ASCII characters only")
    for key in ("wrong", "sesame"):
        dialog.get_by_label("API key").fill(key)
        dialog.get_by_role("button", name="Use key").click()
        page.wait_for_function("key => sessionStorage.getItem('hardmax-key') === key", arg=key)
    expect(page.locator("#verdict-score")).to_contain_text("sure")
    expect(dialog).to_be_hidden()


def test_key_is_sent_by_the_reference(open_page: OpenPage, keyed_server: str) -> None:
    page = open_page("docs", url=keyed_server)
    page.locator("button.btn.authorize").first.click()
    bearer = page.locator(".auth-container").filter(has_text="bearer")
    bearer.locator("input").fill("sesame")
    bearer.locator("button.authorize").click()
    page.locator("button.btn-done").first.click()
    route = page.locator("[id='operations-operations-info']")
    route.locator(".opblock-summary-control").click()
    route.locator("button.execute").click()
    expect(route.locator(".live-responses-table .response-col_status").last).to_contain_text("200")


def test_snippets_read_the_key_from_the_environment(
    open_page: OpenPage, keyed_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARDMAX_KEY", "sesame")
    page = open_page("#model", url=keyed_server, before=lambda page: page.add_init_script(STORE_KEY))
    page.locator("#snippet-cloud pre").first.wait_for()
    programs = [read_snippet(page, view, "Python") for view in ("review", "cloud")]
    assert all("sesame" not in program for program in programs)
    for program, start in zip(programs, ("negative ", "certified 1\n"), strict=True):
        printed = subprocess.check_output([sys.executable, "-c", program], text=True, timeout=60)
        assert printed.startswith(start)
