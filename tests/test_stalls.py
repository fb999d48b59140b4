"""200,000 points in JSON never hold up the event loop of a started server (stalls.py): 50 ms are promised."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import stalls
from server import Server, eventually, serving
from test_api import write_models

LONGEST_S = 0.025  # half of what is promised: a whole document at once takes as long
N = 200_000
ANGLES = np.linspace(0, 2 * np.pi, N // 10, endpoint=False)
CLOUD = np.random.default_rng(0).normal(size=(N, 2)).tolist()
EVERYTHING = ["assignment", "limits", "polytope"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    models = write_models(tmp_path_factory.mktemp("models"))
    options = {"default_model": "tiny", "intra_op_threads": 1, "log_level": "error"}
    with serving(models, command=(stalls.__file__,), **options) as server:
        yield server


def told(server: Server) -> dict[str, Any]:
    """The longest stalls since this was last asked."""
    before = len(server.lines)
    server.process.send_signal(signal.SIGUSR1)
    eventually(lambda: len(server.lines) > before)
    return dict(json.loads(server.lines[before]))


def stall_of(server: Server, client: httpx.Client, path: str, body: bytes, status: int) -> dict[str, Any]:
    """The longest stalls during a request; the least of three, for what holds the loop does so every time."""
    found = []
    for _ in range(3):
        told(server)
        assert client.post(path, content=body).status_code == status
        found.append(told(server))
        if max(found[-1]["turn_s"], found[-1]["step_s"]) < LONGEST_S:
            break
    return min(found, key=lambda stall: max(stall["turn_s"], stall["step_s"]))


@pytest.mark.parametrize(
    ("path", "document", "status"),
    [
        ("/dynamics", {"points": CLOUD, "include": EVERYTHING, "max_layers": 1}, 200),
        ("/dynamics", {"points": [*CLOUD, [1.0, float("nan")]]}, 422),
        (
            "/dynamics",  # everybody leads: twenty thousand leaders and clusters in the answer
            {"points": np.stack([np.cos(ANGLES), np.sin(ANGLES)], 1).tolist(), "include": EVERYTHING},
            200,
        ),
        (
            "/sequences/classify",
            {"model": "scenes", "sequences": np.reshape(CLOUD, (20, -1, 2)).tolist()},
            200,
        ),
    ],
    ids=["numbers", "refused", "leaders", "sequences"],
)
def test_long_json_never_holds_up_the_event_loop(
    server: Server, path: str, document: dict[str, Any], status: int
) -> None:
    with server.client(headers={"content-type": "application/json"}) as client:
        stall = stall_of(server, client, path, json.dumps(document).encode(), status)
    assert stall["turn_s"] < LONGEST_S, stall
    assert stall["step_s"] < LONGEST_S, stall


def test_watch_tells_who_keeps_the_interpreter_from_who_shares_it() -> None:
    def keep() -> None:
        sum(range(10_000_000))  # one call that never lets go

    def share() -> None:
        for _ in range(100_000):
            abs(0)

    async def watch(work: Any) -> tuple[float, str]:
        watch = stalls.Watch()
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
    assert kept[0] > LONGEST_S
    assert "sum" in kept[1]
    assert shared[0] < LONGEST_S
