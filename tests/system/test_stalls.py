"""90,000 points in JSON, the most that a body holds, never hold up the event loop for longer than is said;
nor does what strangers made long.

Shown twice: by the CPU time of what could hold it (stalls.py), which a busy machine does not change, and by
how long others wait meanwhile, in the best of some rounds.
"""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import stall_server
from bundles import write_models
from raw_http import connect, post_request, read_response
from server import Server, serving
from stall_server import MAX_PARSE_STALL_S, TARGET_STALL_S, measure_stall

pytestmark = pytest.mark.alone

ROUNDS = 4
N = 90_000
ANGLES = np.linspace(0, 2 * np.pi, N // 4, endpoint=False)
CIRCLE = np.stack([np.cos(ANGLES), np.sin(ANGLES)], 1).tolist()
CLOUD = np.random.default_rng(0).normal(size=(N, 2)).tolist()
SEQUENCES = np.reshape(CLOUD, (20, -1, 2)).tolist()
INNER = np.random.default_rng(0).normal(size=(800, 32)) * np.where(np.arange(800) < 2, 0.1, 1.0)[:, None]
EVERYTHING = ["assignment", "limits", "polytope"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[Server]:
    options = {"default_model": "tiny", "intra_op_threads": 1, "log_level": "error"}
    with serving(models, command=(stall_server.__file__,), **options) as server:
        yield server


@pytest.mark.parametrize(
    ("path", "document", "status"),
    [
        ("/dynamics", {"points": CLOUD, "include": EVERYTHING, "max_layers": 1}, 200),
        ("/dynamics", {"points": [*CLOUD, [1.0, float("nan")]]}, 422),
        # Everybody leads: twenty thousand leaders and clusters in the answer.
        ("/dynamics", {"points": CIRCLE, "include": EVERYTHING}, 200),
        ("/sequences/classify", {"model": "scenes", "sequences": SEQUENCES}, 200),
        ("/control", {"points": INNER.tolist(), "leaders": [0, 1]}, 200),
        ("/classify", {"input": ["?!" * 254] * 16}, 200),
    ],
    ids=["numbers", "refused", "leaders", "sequences", "wish", "marks"],
)
def test_long_json_holds_up_the_event_loop_for_one_short_step(
    server: Server, path: str, document: dict[str, Any], status: int
) -> None:
    with server.client(headers={"content-type": "application/json"}) as client:
        stall = measure_stall(server, client, path, json.dumps(document).encode(), status)
    assert stall["turn_s"] < TARGET_STALL_S, stall
    assert stall["step_s"] < MAX_PARSE_STALL_S, stall


def longest_wait(port: int, request: bytes, other: Future[httpx.Response]) -> float:
    """Of somebody who asks again and again for as long as the other request takes."""
    longest = 0.0
    with connect(port) as caller:
        while not other.done():
            began = time.perf_counter()
            caller.sendall(request)
            read_response(caller)
            longest = max(longest, time.perf_counter() - began)
            time.sleep(0.001)
    return longest


def test_others_never_wait_long_for_a_cloud_in_json(models: Path) -> None:
    """The least of the longest waits: what holds others up does so every time, a busy machine does not."""
    body = json.dumps({"points": CLOUD, "include": EVERYTHING, "max_layers": 1}).encode()
    headers = {"content-type": "application/json"}
    others = [b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n", post_request(b'{"input": "superb film"}')]
    with (
        serving(models, default_model="tiny", intra_op_threads=1, log_level="error") as server,
        server.client(headers=headers) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        for request in others:
            waits: list[float] = []
            while len(waits) < ROUNDS and min(waits, default=MAX_PARSE_STALL_S) >= MAX_PARSE_STALL_S:
                posting = pool.submit(client.post, "/dynamics", content=body)
                waits.append(longest_wait(server.port, request, posting))
                assert posting.result().status_code == 200
            assert min(waits) < MAX_PARSE_STALL_S, (request, waits)


def test_watch_tells_who_keeps_the_interpreter_from_who_shares_it() -> None:
    def keep() -> None:
        sum(range(10_000_000))  # one call that never lets go

    def share() -> None:
        for _ in range(100_000):
            abs(0)

    async def watch(work: Any) -> tuple[float, str]:
        watch = stall_server.StallMonitor()
        watch.follow()
        watch.start(asyncio.get_running_loop())
        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive():
            await asyncio.sleep(0.01)
        return watch.step

    try:
        kept, shared = asyncio.run(watch(keep)), asyncio.run(watch(share))
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
    assert kept[0] > TARGET_STALL_S
    assert "sum" in kept[1]
    assert shared[0] < TARGET_STALL_S
