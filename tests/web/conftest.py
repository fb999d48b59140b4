"""A server and a Chromium that all tests of the page share.

subtle: while Playwright runs, this thread has a running event loop, and asyncio.run fails. Other tests may
follow in this process, so Playwright is stopped after this folder, which is a package for that reason.

`open_page` opens a URL at a width; the test fails at its end if a page logged an error or sent a request to
another host.
"""

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from page_actions import OpenPage, wait_until_ready
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright
from sample_answers import Response, mock_classify
from server import serving

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
TIMEOUT_MS = 60_000
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update"]
FLAGS += ["--host-resolver-rules=MAP hardmax.example 127.0.0.1"]  # a name that is not of this machine
FLAGS += ["--process-per-site"]  # starting a process per page takes as much CPU time as the page


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    for item in items:
        if folder in item.path.parents:
            item.add_marker(pytest.mark.browser)
            params = getattr(getattr(item, "callspec", None), "params", {})
            if params.get("width", 1440) < 1440 or params.get("scheme") == "dark":
                item.add_marker(pytest.mark.system)


@pytest.fixture(scope="session")
def server(small_models: Path) -> Iterator[str]:
    with serving(small_models) as running:
        yield running.url


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    expect.set_options(timeout=TIMEOUT_MS)  # a busy machine is slow
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="package")
def browser_context(browser: Browser, server: str) -> Callable[..., BrowserContext]:
    """Return a function that returns one browser context per set of options.

    A new context takes as much CPU time as a page. A page stays open in each, which keeps its process alive.
    """

    @cache
    def open_context(width: int, scheme: str, **extra: object) -> BrowserContext:
        context = browser.new_context(
            viewport={"width": width, "height": 900 if width > 500 else 844},
            color_scheme=scheme,  # type: ignore[arg-type]
            permissions=["clipboard-read", "clipboard-write"],
            **extra,  # type: ignore[arg-type]
        )
        context.set_default_timeout(TIMEOUT_MS)
        context.new_page().goto(f"{server}/health/live")
        return context

    return open_context


@pytest.fixture
def run_script(browser_context: Callable[..., BrowserContext]) -> Callable[..., Any]:
    """Evaluate a JavaScript function, which may import modules of the page, in the page that stays open."""
    return browser_context(1440, "light").pages[0].evaluate


@pytest.fixture
def open_page(browser_context: Callable[..., BrowserContext], server: str) -> Iterator[OpenPage]:
    """Open `path` of the page, as in open_page("#cloud", width=390); `before(page)` runs before that."""
    pages: list[Page] = []
    errors: list[str] = []

    def open_page(
        path: str = "",
        *,
        width: int = 1440,
        url: str = server,
        scheme: str = "light",
        before: Callable[[Page], None] | None = None,
        **extra: object,
    ) -> Page:
        page = browser_context(width, scheme, **extra).new_page()
        pages.append(page)
        page.on("pageerror", lambda error: errors.append(f"{error}"))
        page.on("console", lambda message: errors.extend(logged_errors(message)))
        page.on("request", lambda request: errors.extend(foreign_requests(request.url, url)))
        if before:
            before(page)
        page.goto(f"{url}/{path}")
        return page

    yield open_page
    for page in pages:
        if page.url.startswith("http"):
            page.evaluate("localStorage.clear()")  # the contexts are reused
        page.close()
    assert errors == []


@pytest.fixture
def open_review(open_page: OpenPage) -> OpenPage:
    """Open the mode for one text and its details, and wait; `response` replaces the service's."""

    def open_review(text: str = "", response: Response | None = None, **options: object) -> Page:
        before = (lambda page: mock_classify(page, response)) if response else None
        path = f"#review?details=1&text={text}" if text else "#review?details=1"
        return wait_until_ready(open_page(path, before=before, **options))

    return open_review


@pytest.fixture
def open_cloud(open_page: OpenPage) -> OpenPage:
    """Open the cloud view and wait for its clusters; it stays at layer 0 until it is played."""

    def open_cloud(view: str = "", **options: object) -> Page:
        path = f"#cloud?{view}" if view else "#cloud"
        return wait_until_ready(open_page(path, **{"reduced_motion": "reduce", **options}))

    return open_cloud


def logged_errors(message: ConsoleMessage) -> list[str]:
    """Return a message that the page logged as an error, except for a response with an error status."""
    expected = message.type != "error" or "Failed to load resource" in message.text
    return [] if expected else [message.text]


def foreign_requests(url: str, server: str) -> list[str]:
    return [] if url.startswith((server, "data:", "blob:")) else [f"a request to {url}"]
