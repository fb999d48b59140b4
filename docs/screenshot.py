"""Takes the picture of the page that the README shows, from a server that it starts and stops.

Run from the root, when the page or the pretrained models change: python docs/screenshot.py
"""

import io
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).parent / "images/review.png"
SIZE = {"width": 880, "height": 1600}  # one column, and all of the picture without scrolling
MARGIN = 20


def save(png: bytes) -> None:
    """A palette of 256 colours shows the same in a third of the bytes: no pixel is off by more than 6 %."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    picture.quantize(256, kmeans=2, dither=Image.Dither.NONE).save(PICTURE, optimize=True)


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
    """The weightiest leader is pointed at: lines lead to the words that it has read."""
    with serving() as url, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = chromium.new_page(viewport=SIZE, reduced_motion="reduce")  # type: ignore[arg-type]
        page.goto(f"{url}/#review?details=1")
        page.locator("#contributions tr.total").wait_for()
        page.wait_for_load_state("networkidle")  # what would change it pushes the sum down
        page.locator("#contributions tr[data-cluster]").first.hover()
        page.wait_for_timeout(800)
        parts = (".workspace", ".card:has(#contributions)")
        top, table = (page.locator(part).bounding_box() for part in parts)
        assert top is not None
        assert table is not None
        height = table["y"] + table["height"] - top["y"] + 2 * MARGIN
        clip = {"x": 0, "y": top["y"] - MARGIN, "width": SIZE["width"], "height": height}
        save(page.screenshot(full_page=True, clip=clip))  # type: ignore[arg-type]
        chromium.close()


if __name__ == "__main__":
    main()
