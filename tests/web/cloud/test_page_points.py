"""Input of points: typed, pasted, from a file, and from a link."""

import io
from itertools import product

import numpy as np
import pytest
from cloud_page import expect_n_points, read_points
from page_actions import OpenPage
from playwright.sync_api import expect


def test_points_are_read_from_text(open_cloud: OpenPage) -> None:
    page = open_cloud()
    page.locator("#points").fill("x,y\n1,1\n-1,0.5\n0.2,-1\n")
    page.get_by_role("button", name="Use these points").click()
    expect_n_points(page, 3)
    page.locator("#points").fill("1,1\n2,2,2")
    page.get_by_role("button", name="Use these points").click()
    expect(page.locator("#cloud-error")).to_have_text(
        "These points cannot be read: line 2 has 3 numbers, expected 2."
    )


def test_npy_files_are_read(open_cloud: OpenPage) -> None:
    page = open_cloud()
    formats = product(("float64", "float32", "int64"), "CF")
    for n, (dtype, order) in enumerate(formats, start=3):  # a different number of points for each
        expected = np.array([[k, (-1) ** k] for k in range(1, n + 1)], dtype, order=order)
        content = io.BytesIO()
        np.save(content, expected)
        file = {"name": "cloud.npy", "mimeType": "application/octet-stream", "buffer": content.getvalue()}
        page.locator("#points-file").set_input_files(file)
        expect_n_points(page, n)
        assert read_points(page) == expected.tolist(), (dtype, order)


def test_csv_file_is_dropped_on_the_plot(open_cloud: OpenPage) -> None:
    page = open_cloud()
    page.evaluate(
        """() => {
            const data = new DataTransfer();
            data.items.add(new File(["1;2\\n-1;0.5\\n0;-1\\n0.5;0.5\\n"], "cloud.csv"));
            const drop = new DragEvent("drop", { dataTransfer: data, cancelable: true });
            document.getElementById("cloud-stage").dispatchEvent(drop);
        }"""
    )
    expect_n_points(page, 4)


def test_pasted_rows_are_read_in_common_formats(open_cloud: OpenPage) -> None:
    page = open_cloud()
    for text in ("[[1,2],[3,4]]", "[[1. 2.]\n [3. 4.]]", "[(1, 2), (3, 4)]", "1 2\n3 4", "a;b\n1;2\n3;4\n"):
        page.get_by_role("button", name="Remove all points").click()
        expect(page.locator("#result")).to_have_text("Add a point to start.")
        page.evaluate("text => navigator.clipboard.writeText(text)", text)
        page.locator("#cloud-canvas").focus()
        page.keyboard.press("Control+v")
        expect_n_points(page, 2)
        assert read_points(page) == [[1, 2], [3, 4]], text


@pytest.mark.parametrize("name", ["constructor", "gone"])
def test_link_with_an_unknown_preset_opens_the_default(open_cloud: OpenPage, name: str) -> None:
    page = open_cloud(f"preset={name}")
    expect_n_points(page, 9)
