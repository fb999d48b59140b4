"""The page behind a real nginx: below a path, and by a name that is not of this machine, with a port."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from edge import edge, run_nginx
from page_actions import POSITIVE_TEXT, OpenPage, write_text
from paths import ROOT
from playwright.sync_api import Page, expect
from server import serving

from benchmarks.servers import free_port
from hardmax import Client

GUIDE = (ROOT / "docs/operate/gateway.md").read_text()
NAME = "hardmax.example"

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(shutil.which("nginx") is None, reason="no nginx on this machine"),
]


@contextmanager
def gateway(folder: Path, upstream: int, target: str) -> Iterator[str]:
    """Run the server block of the guide, with `target` after the address of proxy_pass; yield its URL."""
    (block,) = re.findall(r"```nginx\n(.*?)```", GUIDE, re.DOTALL)
    port = free_port()
    replaced = {"listen 80": f"listen 127.0.0.1:{port}", "hardmax:8000": f"127.0.0.1:{upstream}{target}"}
    for old, new in replaced.items():
        assert old in block
        block = block.replace(old, new)
    paths = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    text = f"pid {folder}/pid; events {{}} http {{ access_log off; {paths}\n{block} }}"
    with run_nginx(folder, text, port):
        yield f"http://{NAME}:{port}"


def classify(page: Page) -> None:
    """Type a text, and expect an answer of the service, which got only requests that it allows."""
    statuses: list[int] = []
    page.on("response", lambda response: statuses.append(response.status))
    with page.expect_response("**/classify") as answered:
        write_text(page, POSITIVE_TEXT)
    assert answered.value.status == 200
    expect(page.locator("#verdict-score")).to_contain_text("sure")
    assert max(statuses) < 400


@pytest.mark.parametrize("target", ["", "/"])
def test_page_works_below_a_path_whether_the_gateway_strips_it_or_not(
    target: str, small_models: Path, tmp_path: Path, open_page: OpenPage
) -> None:
    settings = {"root_path": "/sentiment", "allowed_hosts": NAME}
    with serving(small_models, **settings) as server, gateway(tmp_path, server.port, target) as url:
        page = open_page("sentiment", url=url)
        classify(page)
        page.locator("a", has_text="API reference").first.click()
        page.wait_for_url(f"{url}/sentiment/docs")
        page.get_by_text("/classify").first.wait_for()
        local = url.replace(NAME, "127.0.0.1")
        with Client(f"{local}/sentiment") as client:
            assert client.classify("superb").label == "positive"
        assert httpx.get(f"{local}/sentiment/metrics").status_code == 404
        assert httpx.get(f"{local}/sentiment/openapi.json").json()["servers"] == [{"url": "/sentiment"}]


def test_page_behind_the_edge_may_call_by_a_plain_http_name_and_port(
    small_models: Path, tmp_path: Path, open_page: OpenPage
) -> None:
    with serving(small_models, allowed_hosts=NAME) as server, edge(tmp_path, server.port) as (_, port):
        classify(open_page(url=f"http://{NAME}:{port}", path="#review"))
        origins = {f"http://127.0.0.1:{port}": 200, "http://127.0.0.1": 403, "http://127.0.0.1:1": 403}
        for origin, status in origins.items():
            response = httpx.post(
                f"http://127.0.0.1:{port}/classify", json={"input": "superb"}, headers={"origin": origin}
            )
            assert response.status_code == status, origin
