"""Actions in the mode for many messages."""

import csv
import io
from collections.abc import Callable, Sequence

from page_actions import OpenPage
from playwright.sync_api import Page, expect
from sample_answers import Answer, Response, make_answer, mock_classify, word


def open_messages(
    open_page: OpenPage,
    query: str = "",
    *,
    answer: Response | None = None,
    before: Callable[[Page], None] | None = None,
    **options: object,
) -> Page:
    """Open the mode for many messages; `answer` replaces the service's."""

    def prepare(page: Page) -> None:
        if before:
            before(page)
        if answer:
            mock_classify(page, answer)

    page = open_page(f"#messages{query}", before=prepare, **options)
    expect(page.locator("#messages-model option").first).to_be_attached()
    return page


def paste(page: Page, texts: Sequence[str]) -> Page:
    """Paste messages, press the keys that classify them, and wait for the last."""
    box = page.get_by_label("Paste messages")
    box.fill("\n".join(texts))
    box.press("Control+Enter")
    return wait_for_rows(page, len(texts))


def wait_for_rows(page: Page, count: int) -> Page:
    expect(page.locator("#rows-state")).to_contain_text(f"{count} of {count} row")
    return page


def upload_file(page: Page, name: str, content: str | bytes) -> None:
    raw = content if isinstance(content, bytes) else content.encode()
    file = {"name": name, "mimeType": "text/plain", "buffer": raw}
    page.locator("#rows-file").set_input_files(file)


def download(page: Page, button: str, name: str) -> bytes:
    with page.expect_download() as downloaded:
        page.get_by_role("button", name=button).click()
    assert downloaded.value.suggested_filename == name
    return downloaded.value.path().read_bytes()


def download_text(page: Page, button: str, name: str) -> str:
    return download(page, button, name).decode()


def download_rows(page: Page, name: str, delimiter: str = ",") -> list[dict[str, str]]:
    text = download(page, "Download CSV", name).decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text), delimiter=delimiter))


def make_answers(count: int) -> Answer:
    """Return `count` answers to the text "fine"."""
    answer = make_answer("fine", [word("fine", 1.0, leader=True)])
    return {**answer, "data": answer["data"] * count}
