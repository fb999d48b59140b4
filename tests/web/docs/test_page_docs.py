"""Swagger UI at /docs, served from this host under the content-security policy of the page.

`open_page` fails a test whose page logs an error, as a violation of the policy does, or asks another host.
"""

import httpx
from page_actions import OpenPage


def test_reference_lists_every_route(open_page: OpenPage, server: str) -> None:
    page = open_page("docs")
    page.locator(".opblock").first.wait_for()
    document = httpx.get(f"{server}/openapi.json").json()
    routes = [f"{method.upper()} {path}" for path, item in document["paths"].items() for method in item]
    shown = page.locator(".opblock-summary").evaluate_all(
        "rows => rows.map(row => row.querySelector('.opblock-summary-method').textContent + ' '"
        " + row.querySelector('.opblock-summary-path').dataset.path)"
    )
    assert sorted(shown) == sorted(routes)


def test_page_is_sent_compressed_only_where_that_is_accepted(server: str) -> None:
    address = f"{server}/web/docs/swagger-ui-bundle.js"
    plain = httpx.get(address, headers={"accept-encoding": "identity"})
    packed = httpx.get(address)
    assert packed.content == plain.content
    assert ("content-encoding" in plain.headers, packed.headers["content-encoding"]) == (False, "gzip")
    assert int(packed.headers["content-length"]) < len(plain.content) / 2
