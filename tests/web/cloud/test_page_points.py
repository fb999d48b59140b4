"""The ways points come in: typed, pasted, opened, dropped, and from a link."""

import io
from itertools import product

import numpy as np
import pytest
from looking import expect_count, points
from playwright.sync_api import expect
from visiting import Visit


def test_points_are_read_from_text(cloud: Visit) -> None:
    page = cloud()
    page.locator("#points").fill("x,y\n1,1\n-1,0.5\n0.2,-1\n")
    page.get_by_role("button", name="Use these").click()
    expect_count(page, 3)
    page.locator("#points").fill("1,1\n2,2,2")
    page.get_by_role("button", name="Use these").click()
    expect(page.locator("#cloud-problem")).to_have_text(
        "These points cannot be read: line 2 has 3 numbers, expected 2."
    )


def test_npy_files_are_read(cloud: Visit) -> None:
    page = cloud()
    kinds = product(("float64", "float32", "int64"), "CF")
    for n, (dtype, order) in enumerate(kinds, start=3):  # of as many points as no other has
        given = np.array([[k, (-1) ** k] for k in range(1, n + 1)], dtype, order=order)
        content = io.BytesIO()
        np.save(content, given)
        file = {"name": "cloud.npy", "mimeType": "application/octet-stream", "buffer": content.getvalue()}
        page.locator("#points-file").set_input_files(file)
        expect_count(page, n)
        assert points(page) == given.tolist(), (dtype, order)


def test_csv_file_is_dropped_on_the_picture(cloud: Visit) -> None:
    page = cloud()
    page.evaluate(
        """() => {
            const data = new DataTransfer();
            data.items.add(new File(["1;2\\n-1;0.5\\n0;-1\\n0.5;0.5\\n"], "cloud.csv"));
            const drop = new DragEvent("drop", { dataTransfer: data, cancelable: true });
            document.getElementById("cloud-stage").dispatchEvent(drop);
        }"""
    )
    expect_count(page, 4)


def test_rows_are_pasted_as_programs_print_them(cloud: Visit) -> None:
    page = cloud()
    for pasted in ("[[1,2],[3,4]]", "[[1. 2.]\n [3. 4.]]", "[(1, 2), (3, 4)]", "1 2\n3 4", "a;b\n1;2\n3;4\n"):
        page.get_by_role("button", name="Empty the plane").click()
        expect(page.locator("#outcome")).to_have_text("Place a point, and see.")
        page.evaluate("text => navigator.clipboard.writeText(text)", pasted)
        page.locator("#cloud").focus()
        page.keyboard.press("Control+v")
        expect_count(page, 2)
        assert points(page) == [[1, 2], [3, 4]], pasted


@pytest.mark.parametrize("name", ["constructor", "toString", "gone"])
def test_link_that_names_no_preset_opens_the_first(cloud: Visit, name: str) -> None:
    page = cloud(f"preset={name}")
    expect_count(page, 9)
