"""The ways points come in: typed, pasted, opened, dropped, and from a link."""

from __future__ import annotations

import io

import numpy as np
import pytest
from looking import STILL, expect_count, points, settle
from playwright.sync_api import expect
from visiting import Visit


def test_points_are_read_from_text(visit: Visit) -> None:
    page = settle(visit("#cloud", **STILL))
    page.locator("#points").fill("x,y\n1,1\n-1,0.5\n0.2,-1\n")
    page.get_by_role("button", name="Use these").click()
    expect_count(page, 3)
    page.locator("#points").fill("1,1\n2,2,2")
    page.get_by_role("button", name="Use these").click()
    expect(page.locator("#cloud-problem")).to_have_text(
        "These points cannot be read: line 2 has 3 numbers, expected 2."
    )


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_files_are_read(visit: Visit, dtype: str, order: str) -> None:
    cloud = np.array([[1, 2], [-3, 1], [2, -2]], dtype=dtype, order=order)  # type: ignore[call-overload]
    content = io.BytesIO()
    np.save(content, cloud)
    page = settle(visit("#cloud", **STILL))
    file = {"name": "cloud.npy", "mimeType": "application/octet-stream", "buffer": content.getvalue()}
    page.locator("#points-file").set_input_files(file)  # type: ignore[arg-type]
    expect_count(page, 3)
    assert points(page) == cloud.tolist()


def test_csv_file_is_dropped_on_the_picture(visit: Visit) -> None:
    page = settle(visit("#cloud", **STILL))
    page.evaluate(
        """() => {
            const data = new DataTransfer();
            data.items.add(new File(["1;2\\n-1;0.5\\n0;-1\\n0.5;0.5\\n"], "cloud.csv"));
            const drop = new DragEvent("drop", { dataTransfer: data, cancelable: true });
            document.getElementById("cloud-stage").dispatchEvent(drop);
        }"""
    )
    expect_count(page, 4)


@pytest.mark.parametrize(
    "pasted", ["[[1,2],[3,4]]", "[[1. 2.]\n [3. 4.]]", "[(1, 2), (3, 4)]", "1 2\n3 4", "a;b\n1;2\n3;4\n"]
)
def test_rows_are_pasted_as_programs_print_them(visit: Visit, pasted: str) -> None:
    page = settle(visit("#cloud", **STILL))
    page.evaluate("text => navigator.clipboard.writeText(text)", pasted)
    page.locator("#cloud").focus()
    page.keyboard.press("Control+v")
    expect_count(page, 2)
    assert points(page) == [[1, 2], [3, 4]]


@pytest.mark.parametrize("name", ["constructor", "toString", "gone"])
def test_link_that_names_no_preset_opens_the_first(visit: Visit, name: str) -> None:
    page = settle(visit(f"#cloud?preset={name}", **STILL))
    expect_count(page, 9)
