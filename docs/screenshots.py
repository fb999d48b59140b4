"""Takes the pictures of the page that the README shows, from a server that it starts and stops.

Run from the root: python docs/screenshots.py
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).parent / "images"
SIZE = {"width": 1280, "height": 1100}


def show_review(page: Page) -> None:
    page.locator("#ledger tr.total").wait_for()


def show_reason(page: Page) -> None:
    """A cloud at its beginning, with a point that says why it goes where it goes."""
    page.get_by_role("button", name="Random").click()
    page.locator("#clusters tr").first.wait_for()
    page.get_by_role("slider", name="Layer of the cloud").fill("0")
    page.locator("#cloud").focus()
    for _ in range(5):
        page.keyboard.press(".")
    page.locator("h1:visible").click()


def show_many(page: Page) -> None:
    page.get_by_role("button", name="10,000 points").click()
    page.locator("#clusters tr").first.wait_for()
    page.get_by_role("slider", name="Layer of the cloud").fill("2.5")
    page.locator("h1:visible").click()


def show_model(page: Page) -> None:
    page.locator("#cards article").first.wait_for()


SCENES = {
    "review": ("#review", "light", show_review),
    "cloud": ("#cloud", "light", show_reason),
    "cloud-dark": ("#cloud", "dark", show_many),
    "model": ("#model", "light", show_model),
}


def save(name: str, png: bytes) -> None:
    """A palette of 256 colours shows the same in a third of the bytes: no pixel is off by more than 6 %."""
    IMAGES.mkdir(exist_ok=True)
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    picture.quantize(256, kmeans=2, dither=Image.Dither.NONE).save(IMAGES / f"{name}.png", optimize=True)


@contextmanager
def serving() -> Iterator[str]:
    """A server on a port of its own, and its address."""
    command = [str(Path(sys.executable).with_name("hardmax")), "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        try:
            yield next(found[0] for line in server.stdout if (found := re.search(r"http://[\w.:]+", line)))
        finally:
            server.terminate()


def main() -> None:
    with serving() as url, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (path, scheme, show) in SCENES.items():
            page = chromium.new_page(viewport=SIZE, color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
            page.goto(f"{url}/{path}")
            show(page)
            page.wait_for_timeout(800)
            save(name, page.screenshot(full_page=name in ("review", "model")))
            page.close()
        chromium.close()


if __name__ == "__main__":
    main()
