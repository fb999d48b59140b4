"""What tests of the cloud share: where points stand on the screen, and what is said of them."""

from pathlib import Path

from playwright.sync_api import FloatRect, Page, expect


def points(page: Page) -> list[list[float]]:
    lines = page.locator("#points").input_value().splitlines()
    return [[float(x) for x in line.split(",")] for line in lines]


def spoken(page: Page) -> str:
    """The sentence on the point that is looked at, with plain minus signs."""
    return page.locator("#why").inner_text().replace("\u2212", "-")


def place(page: Page) -> FloatRect:
    """Where the picture is on the screen."""
    page.locator("#cloud").scroll_into_view_if_needed()
    box = page.locator("#cloud").bounding_box()
    assert box is not None
    return box


def at(page: Page, i: int) -> tuple[float, float]:
    """Where point i stands on the screen at layer 0, by the page's own map of the plane."""
    x, y = points(page)[i]
    box = place(page)
    view = page.evaluate(
        """async ([points, width, height]) => {
            const { Viewport } = await import("/web/shared/viewport.js");
            const view = new Viewport();
            view.resize(width, height);
            view.fit(points.flat(), { least: 1 });
            return { x: view.centre[0], y: view.centre[1], scale: view.scale };
        }""",
        [points(page), box["width"], box["height"]],
    )
    left = box["x"] + box["width"] / 2 + (x - view["x"]) * view["scale"]
    return left, box["y"] + box["height"] / 2 - (y - view["y"]) * view["scale"]


def expect_count(page: Page, n: int) -> None:
    expect(page.locator("#outcome")).to_contain_text(f"{n} point")


def saved_svg(page: Page) -> str:
    """The picture that is taken away."""
    with page.expect_download() as download:
        page.locator("#cloud-export").get_by_role("button", name="SVG").click()
    assert download.value.suggested_filename == "cloud.svg"
    return Path(download.value.path()).read_text()
