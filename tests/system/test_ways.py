"""A text has one answer, in whatever company it is run."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import pytest
from server import Server, serving
from wire import connect, read_answer, whole

from benchmarks.reviews import reviews
from service.settings import BUNDLED_MODELS

pytestmark = pytest.mark.system
CALLERS, TIMES = 48, 24
LENGTHS = (1, 2, 3, 5, 8, 13, 21, 34, 55, 150)  # words
TEXTS = [text for words in LENGTHS for text in reviews(words, 12, seed=3)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    models = tmp_path_factory.mktemp("models")
    for name in ("reader", "sentiment"):
        shutil.copytree(BUNDLED_MODELS / name, models / name)
    with serving(models, log_level="error") as server:
        yield server


def request_of(text: str, explain: str) -> bytes:
    return whole(json.dumps({"input": text, "explain": explain}).encode())


def ask(server: Server, requests: list[bytes]) -> list[dict[str, Any]]:
    """One after the other on one connection."""
    found = []
    with connect(server.port) as caller:
        for request in requests:
            caller.sendall(request)
            head, body = read_answer(caller)
            assert head.startswith(b"HTTP/1.1 200 OK"), body
            found.append(json.loads(body)["data"][0])
    return found


def batched(server: Server) -> dict[str, float]:
    """How many runs there were, and of how many texts."""
    with server.client() as client:
        page = client.get("/metrics").text
    return {name: float(n) for name, n in re.findall(r"^hardmax_batch_size_(sum|count) (\S+)$", page, re.M)}


@pytest.mark.parametrize("explain", ["leaders", "none"])
def test_text_in_any_company_is_answered_as_alone(server: Server, explain: str) -> None:
    """To the bit, with its reasons, whoever else is read in the same run."""
    one_by_one = ask(server, [request_of(text, explain) for text in TEXTS])
    alone = dict(zip(TEXTS, one_by_one, strict=True))
    before = batched(server)
    rng = random.Random(11)
    shares = [rng.sample(TEXTS, TIMES) for _ in range(CALLERS)]
    with ThreadPoolExecutor(CALLERS) as pool:
        requests = [[request_of(text, explain) for text in share] for share in shares]
        answers = list(pool.map(lambda each: ask(server, each), requests))
    assert list(chain(*answers)) == [alone[text] for text in chain(*shares)]
    after = batched(server)
    assert after["sum"] - before["sum"] == CALLERS * TIMES
    assert after["count"] - before["count"] < CALLERS * TIMES / 2, "texts ran each alone"
