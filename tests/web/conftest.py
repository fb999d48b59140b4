"""A real server of this project and a real Chromium, once for all tests of the page.

subtle: while Playwright runs, this thread has a running event loop, and asyncio.run fails. Other tests may
follow in this process, so Playwright ends with this folder, which is a package for that.

Pages come from `visit`: it opens an address at a width and, at the end of the test, fails it if the page
logged an error or spoke to any other host.
"""

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from answers import Says, answering
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright
from server import serving
from visiting import Visit, settle

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE_MS = 60_000
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update"]
FLAGS += ["--process-per-site"]  # a process for each page takes as much CPU time as the page in it


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
            asked = getattr(item, "callspec", None)
            if asked and (asked.params.get("width", 1440) < 1440 or asked.params.get("scheme") == "dark"):
                item.add_marker(pytest.mark.system)


@pytest.fixture(scope="session")
def server(small_models: Path) -> Iterator[str]:
    with serving(small_models) as running:
        yield running.url


@pytest.fixture(scope="session")
def keyed(small_models: Path) -> Iterator[str]:
    """One that wants the key sesame."""
    with serving(small_models, api_keys="sesame") as running:
        yield running.url


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    expect.set_options(timeout=PATIENCE_MS)  # a busy machine answers late
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="package")
def window(browser: Browser, server: str) -> Callable[..., BrowserContext]:
    """One for each way to look at a page: a new one takes as much CPU time as the page in it.

    In each a page stays open, so that its process stays.
    """

    @cache
    def open_window(width: int, scheme: str, **more: object) -> BrowserContext:
        context = browser.new_context(
            viewport={"width": width, "height": 900 if width > 500 else 844},
            color_scheme=scheme,  # type: ignore[arg-type]
            permissions=["clipboard-read", "clipboard-write"],
            **more,  # type: ignore[arg-type]
        )
        context.set_default_timeout(PATIENCE_MS)
        context.new_page().goto(f"{server}/health/live")
        return context

    return open_window


@pytest.fixture
def visit(window: Callable[..., BrowserContext], server: str) -> Iterator[Visit]:
    """Opens `path` of the page, e.g. visit("#cloud", width=390); `before(page)` comes before it is opened."""
    pages: list[Page] = []
    troubles: list[str] = []

    def open_page(
        path: str = "",
        *,
        width: int = 1440,
        url: str = server,
        scheme: str = "light",
        before: Callable[[Page], None] | None = None,
        **more: object,
    ) -> Page:
        page = window(width, scheme, **more).new_page()
        pages.append(page)
        page.on("pageerror", lambda error: troubles.append(f"{error}"))
        page.on("console", lambda message: troubles.extend(complaint(message)))
        page.on("request", lambda request: troubles.extend(foreign(request.url, url)))
        if before:
            before(page)
        page.goto(f"{url}/{path}")
        return page

    yield open_page
    for page in pages:
        if page.url.startswith("http"):
            page.evaluate("localStorage.clear()")  # the windows stay
        page.close()
    assert troubles == []


@pytest.fixture
def review(visit: Visit) -> Visit:
    """Opens the first room with `text` and waits for its sum; `says` is heard in place of the service."""

    def open_review(text: str = "", says: Says | None = None, **how: object) -> Page:
        before = (lambda page: answering(page, says)) if says else None
        return settle(visit(f"#review?text={text}" if text else "#review", before=before, **how))

    return open_review


@pytest.fixture
def cloud(visit: Visit) -> Visit:
    """Opens the second room with its clusters, at layer 0 until somebody plays it."""

    def open_cloud(view: str = "", **how: object) -> Page:
        return settle(visit(f"#cloud?{view}" if view else "#cloud", **{"reduced_motion": "reduce", **how}))

    return open_cloud


def complaint(message: ConsoleMessage) -> list[str]:
    """What the page logged as an error; that an answer had an error status is told by the page itself."""
    expected = message.type != "error" or "Failed to load resource" in message.text
    return [] if expected else [message.text]


def foreign(url: str, own: str) -> list[str]:
    return [] if url.startswith((own, "data:", "blob:")) else [f"a request to {url}"]
