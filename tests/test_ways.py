"""A text has one answer, by whichever way it comes and in whatever company it is run."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import pytest
from server import Server, serving
from wire import connect, is_express, read_answer, whole

from benchmarks.reviews import reviews
from service.settings import BUNDLED_MODELS

WAYS = ("lane", "gate")
CALLERS, TIMES = 48, 24
LENGTHS = (1, 2, 3, 5, 8, 13, 21, 34, 55, 150)  # words; the last is too long for the express lane
TEXTS = [text for words in LENGTHS for text in reviews(words, 12, seed=3)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    models = tmp_path_factory.mktemp("models")
    shutil.copytree(BUNDLED_MODELS / "sentiment", models / "sentiment")
    with serving(models, log_level="error") as server:
        yield server


def request_of(text: str, explain: str, way: str) -> bytes:
    request = whole(json.dumps({"input": text, "explain": explain}).encode())
    return request.replace(b"host: x", b"host: x\r\norigin: http://elsewhere") if way == "gate" else request


def ask(server: Server, requests: list[bytes]) -> list[tuple[bool, dict[str, Any]]]:
    """One after the other on one connection: whether the lane answered, and what."""
    found = []
    with connect(server.port) as caller:
        for request in requests:
            caller.sendall(request)
            head, body = read_answer(caller)
            assert head.startswith(b"HTTP/1.1 200 OK"), body
            found.append((is_express(head), json.loads(body)["data"][0]))
    return found


def reasons(answer: dict[str, Any]) -> tuple[set[Any], set[Any]]:
    """Who leads since when and leads how many, and who belongs together."""
    leaders = {(each["word"], each["since_layer"], each["followers"]) for each in answer["leaders"]}
    clusters = {
        (each["kind"], frozenset(each["leaders"]), frozenset(each["words"])) for each in answer["clusters"]
    }
    return leaders, clusters


def batched(server: Server) -> dict[str, float]:
    """How many runs there were, and of how many texts."""
    with server.client() as client:
        page = client.get("/metrics").text
    return {name: float(n) for name, n in re.findall(r"^hardmax_batch_size_(sum|count) (\S+)$", page, re.M)}


@pytest.mark.parametrize("explain", ["leaders", "none"])
def test_text_in_any_company_is_answered_as_alone_by_both_ways(server: Server, explain: str) -> None:
    one_by_one = ask(server, [request_of(text, explain, "gate") for text in TEXTS])
    alone = {text: answer for text, (_, answer) in zip(TEXTS, one_by_one, strict=True)}
    before = batched(server)
    rng = random.Random(11)
    shares = [[(text, rng.choice(WAYS)) for text in rng.sample(TEXTS, TIMES)] for _ in range(CALLERS)]
    with ThreadPoolExecutor(CALLERS) as pool:
        requests = [[request_of(text, explain, way) for text, way in share] for share in shares]
        answers = list(pool.map(lambda each: ask(server, each), requests))
    ways: Counter[tuple[str, bool]] = Counter()
    for (text, way), (express, answer) in zip(chain(*shares), chain(*answers), strict=True):
        ways[way, express] += 1
        assert answer["label"] == alone[text]["label"]
        assert answer["logit"] == pytest.approx(alone[text]["logit"], rel=0, abs=1e-5)
        if explain == "leaders":
            assert reasons(answer) == reasons(alone[text])
    after = batched(server)
    assert ways["gate", True] == 0
    assert ways["lane", True] > CALLERS * TIMES / 4
    assert after["sum"] - before["sum"] == CALLERS * TIMES
    runs = after["count"] - before["count"]
    assert runs < min(ways["gate", False], ways["lane", True]), "neither way ran its texts each alone"
