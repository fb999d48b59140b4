"""A server that requires an API key: the page asks for it, uses it and shows it nowhere."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_actions import OpenPage, code, open_route, wait_until_ready
from playwright.sync_api import expect
from server import serving

KEYED = "sessionStorage.setItem('hardmax-key', 'sesame')"


@pytest.fixture(scope="module")
def keyed(small_models: Path) -> Iterator[str]:
    """The URL of a server that requires the API key sesame."""
    with serving(small_models, api_keys="sesame") as running:
        yield running.url


def test_page_asks_for_the_key_and_reports_when_it_is_missing(open_page: OpenPage, keyed: str) -> None:
    page = open_page("#review", url=keyed)
    dialog = page.get_by_role("dialog")
    page.get_by_role("button", name="Not now").click()
    expect(page.locator("#review-error")).to_contain_text(re.compile("key", re.I))
    page.reload()
    for key in ("s\u20acsame", "\u201csesame\u201d"):  # not allowed in a header
        dialog.get_by_label("API key").fill(key)
        dialog.get_by_role("button", name="Use it").click()
        expect(page.locator("#key-reason")).to_contain_text("In this one there is another character")
    for key in ("wrong", "sesame"):
        dialog.get_by_label("API key").fill(key)
        dialog.get_by_role("button", name="Use it").click()
        page.wait_for_function("key => sessionStorage.getItem('hardmax-key') === key", arg=key)
    expect(page.locator("#verdict-score")).to_contain_text("sure")
    expect(dialog).to_be_hidden()


def test_key_is_used_and_stays_out_of_the_curl(open_page: OpenPage, keyed: str) -> None:
    page = wait_until_ready(open_page("docs", url=keyed))
    route = open_route(page, "POST /classify")
    expect(route.locator(".answer p")).to_contain_text("This server answered 401")
    page.get_by_label("API key").fill("\u201csesame\u201d")
    page.get_by_role("button", name="Use it").click()
    expect(page.locator("#docs-key-state")).to_contain_text("In this one there is another character")
    page.get_by_label("API key").fill(" sesame ")
    page.get_by_role("button", name="Use it").click()
    expect(page.locator("#docs-key-state")).to_have_text("A key is in use in this tab.")
    expect(route.locator(".answer p")).to_contain_text("This server answered 200")
    expect(route.locator(".curl")).to_contain_text("Authorization: Bearer $HARDMAX_KEY")
    assert "sesame" not in page.content()


def test_programs_take_the_key_from_the_environment(
    open_page: OpenPage, keyed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARDMAX_KEY", "sesame")
    page = open_page("#model", url=keyed, before=lambda page: page.add_init_script(KEYED))
    page.locator("#snippet-cloud pre").first.wait_for()
    programs = [code(page, snippet, "Python") for snippet in ("review", "cloud")]
    assert all("sesame" not in program for program in programs)
    for program, start in zip(programs, ("negative ", "certified 1\n"), strict=True):
        printed = subprocess.check_output([sys.executable, "-c", program], text=True, timeout=60)
        assert printed.startswith(start)


def test_programs_use_a_key_that_was_entered_later(open_page: OpenPage, keyed: str) -> None:
    page = open_page("#model", url=keyed)
    page.get_by_role("dialog").get_by_label("API key").fill("sesame")
    page.get_by_role("button", name="Use it").click()
    page.locator("#cards article").first.wait_for()
    for snippet in ("review", "cloud"):
        assert "$HARDMAX_KEY" in code(page, snippet, "curl")
