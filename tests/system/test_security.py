"""SECURITY.md and reliability.md promise only what a test holds; unforeseen failures tell callers nothing."""

from __future__ import annotations

import ast
import asyncio
import logging
import re
from pathlib import Path

import httpx
import pytest
from bundles import write_head
from faulty import reading_with
from paths import ROOT

from service.app import create_app
from service.settings import Settings
from service.texts.pieces import Reading
from service.texts.reader import Reader

SECURITY = (ROOT / "SECURITY.md").read_text()


class Failing(Reader):
    """A model with a fault that nobody foresaw, told in words that no caller may read."""

    def read(self, text: str) -> Reading:
        if text == "fail":
            raise ZeroDivisionError("the password is swordfish")
        return super().read(text)


def test_unforeseen_failure_is_a_fixed_sentence_for_callers_and_a_traceback_for_the_log(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    write_head(tmp_path)
    settings = Settings(models_dir=tmp_path, bundled_models=False, default_model="tiny")
    app = create_app(settings, loaders=reading_with(Failing))

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://test") as client,
        ):
            return await client.post("/classify", json={"input": "fail"})

    with caplog.at_level(logging.ERROR):
        answer = asyncio.run(ask())
    assert answer.status_code == 500
    assert "swordfish" not in answer.text
    assert "swordfish" in caplog.text
    assert answer.json()["error"]["request_id"] == answer.headers["x-request-id"]


def test_every_claim_of_security_names_the_test_that_shows_it() -> None:
    rows = [line for line in SECURITY.splitlines() if line.startswith("| ") and not line.startswith("| -")]
    claims = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    claims = [claim for claim in claims if claim[-1] != "shown by"]
    unshown = [claim[0] for claim in claims if not re.search(r"`test_\w+`", claim[-1])]
    assert len(claims) >= 15
    assert unshown == ["who can set the environment or flags"], "the operator, who may do everything"


def test_every_test_that_a_page_names_exists() -> None:
    trees = [ast.parse(path.read_text()) for path in (ROOT / "tests").rglob("test_*.py")]
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    here = {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, functions)}
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        named = set(re.findall(r"`(test_\w+)`", page.read_text()))
        assert named <= here, f"{page.name}: {sorted(named - here)}"
        assert len(named) > 10 or page.name not in ("SECURITY.md", "reliability.md", "operations.md")
