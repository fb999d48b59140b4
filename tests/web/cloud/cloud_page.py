"""Helpers for tests of the Cloud view: positions of points on the screen, and explanations."""

from pathlib import Path

from page_actions import read_points
from playwright.sync_api import FloatRect, Page, expect


def explanation_text(page: Page) -> str:
    """Return the explanation of the selected point, with ASCII minus signs."""
    return page.locator("#explanation").inner_text().replace("\u2212", "-")


def canvas_box(page: Page) -> FloatRect:
    """Scroll to the plot and return its bounding box."""
    page.locator("#cloud-canvas").scroll_into_view_if_needed()
    box = page.locator("#cloud-canvas").bounding_box()
    assert box is not None
    return box


def point_position(page: Page, i: int) -> tuple[float, float]:
    """Return the position of point i on the screen at layer 0, computed by the page's code."""
    x, y = read_points(page)[i]
    box = canvas_box(page)
    view = page.evaluate(
        """async ([points, width, height]) => {
            const { Viewport } = await import("/web/shared/viewport.js");
            const view = new Viewport();
            view.resize(width, height);
            view.fit(points.flat(), { minReach: 1 });
            return { x: view.centre[0], y: view.centre[1], scale: view.scale };
        }""",
        [read_points(page), box["width"], box["height"]],
    )
    left = box["x"] + box["width"] / 2 + (x - view["x"]) * view["scale"]
    return left, box["y"] + box["height"] / 2 - (y - view["y"]) * view["scale"]


def expect_n_points(page: Page, n: int) -> None:
    expect(page.locator("#result")).to_contain_text(f"{n} point")


def download_svg(page: Page) -> str:
    """Download the plot and return its SVG source."""
    with page.expect_download() as download:
        page.locator("#cloud-export").get_by_role("button", name="SVG").click()
    assert download.value.suggested_filename == "cloud.svg"
    return Path(download.value.path()).read_text()
