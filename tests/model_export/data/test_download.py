"""Downloads resume, are checked, and say what to do when there is no network."""

import hashlib
from pathlib import Path

import httpx
import pytest

from model_export.data.download import download
from service.errors import MalformedInput, NotFound

CONTENT = bytes(range(256)) * 40
SHA256 = hashlib.sha256(CONTENT).hexdigest()
URL = "http://archive.example/reviews.tar.gz"


def _serve(request: httpx.Request) -> httpx.Response:
    wanted = request.headers.get("range")
    if wanted is None:
        return httpx.Response(200, content=CONTENT)
    start = int(wanted.removeprefix("bytes=").rstrip("-"))
    if start >= len(CONTENT):
        return httpx.Response(416)
    return httpx.Response(206, content=CONTENT[start:])


def _client() -> httpx.Client:
    return httpx.Client(transport=httpx.MockTransport(_serve))


@pytest.mark.parametrize("had", [0, 1000, len(CONTENT)])
def test_download_goes_on_where_it_was(had: int, tmp_path: Path):
    path = tmp_path / "data" / "reviews.tar.gz"
    path.parent.mkdir()
    if had:
        path.with_name("reviews.tar.gz.part").write_bytes(CONTENT[:had])
    assert download(path, URL, SHA256, _client()).read_bytes() == CONTENT
    assert not path.with_name("reviews.tar.gz.part").exists()


def test_a_whole_file_is_not_fetched_again(tmp_path: Path):
    (tmp_path / "a").write_bytes(CONTENT)

    def refuse(request: httpx.Request) -> httpx.Response:
        raise AssertionError(f"asked for {request.url}")

    client = httpx.Client(transport=httpx.MockTransport(refuse))
    assert download(tmp_path / "a", URL, SHA256, client) == tmp_path / "a"


def test_a_damaged_file_is_refused(tmp_path: Path):
    (tmp_path / "a").write_bytes(CONTENT[:-1])
    with pytest.raises(MalformedInput, match="is damaged: sha256"):
        download(tmp_path / "a", URL, SHA256, _client())


def test_offline_says_what_to_do(tmp_path: Path):
    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no route", request=request)

    client = httpx.Client(transport=httpx.MockTransport(fail))
    with pytest.raises(NotFound, match=r"cannot fetch http://archive.*no route.*by hand"):
        download(tmp_path / "a", URL, SHA256, client)
