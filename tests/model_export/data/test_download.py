"""Downloads resume, are checked, and say what to do when there is no network."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from model_export.data.download import download
from service.errors import MalformedInput, NotFound

CONTENT = bytes(range(256)) * 40
SHA256 = hashlib.sha256(CONTENT).hexdigest()
URL = "http://archive.example/reviews.tar.gz"


def serve(request: httpx.Request) -> httpx.Response:
    wanted = request.headers.get("range")
    if wanted is None:
        return httpx.Response(200, content=CONTENT)
    start = int(wanted.removeprefix("bytes=").rstrip("-"))
    if start >= len(CONTENT):
        return httpx.Response(416)
    return httpx.Response(206, content=CONTENT[start:])


def refuse(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError(f"no route to {request.url}", request=request)


def got(path: Path, handler: Callable[[httpx.Request], httpx.Response] = serve) -> Path:
    return download(path, URL, SHA256, httpx.Client(transport=httpx.MockTransport(handler)))


@pytest.mark.parametrize("had", [0, 1000, len(CONTENT)])
def test_download_goes_on_where_it_was(had: int, tmp_path: Path):
    path = tmp_path / "data" / "reviews.tar.gz"
    path.parent.mkdir()
    if had:
        path.with_name("reviews.tar.gz.part").write_bytes(CONTENT[:had])
    assert got(path).read_bytes() == CONTENT
    assert not path.with_name("reviews.tar.gz.part").exists()


def test_a_whole_file_is_not_fetched_again(tmp_path: Path):
    (tmp_path / "a").write_bytes(CONTENT)
    assert got(tmp_path / "a", refuse) == tmp_path / "a"


def test_a_damaged_file_is_refused(tmp_path: Path):
    (tmp_path / "a").write_bytes(CONTENT[:-1])
    with pytest.raises(MalformedInput, match="is damaged: sha256"):
        got(tmp_path / "a")


def test_offline_says_what_to_do(tmp_path: Path):
    with pytest.raises(NotFound, match=r"cannot fetch http://archive.*no route.*by hand"):
        got(tmp_path / "a", refuse)
