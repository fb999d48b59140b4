"""The largest JSON bodies (90,000 points), and other long work, stall the event loop only briefly.

This is measured by the CPU time of what could stall it (stall_server.py), which does not depend on the load
of the machine.
"""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stall_server
from server import Server, serving
from stall_server import MAX_PARSE_STALL_S, TARGET_STALL_S, measure_stall

pytestmark = pytest.mark.alone

N = 90_000
ANGLES = np.linspace(0, 2 * np.pi, N // 4, endpoint=False)
CIRCLE = np.stack([np.cos(ANGLES), np.sin(ANGLES)], 1).tolist()
CLOUD = np.random.default_rng(0).normal(size=(N, 2)).tolist()
SEQUENCES = np.reshape(CLOUD, (20, -1, 2)).tolist()
SCALES = np.where(np.arange(800) < 2, 0.1, 1.0)[:, None]
INNER_POINTS = np.random.default_rng(0).normal(size=(800, 32)) * SCALES
INCLUDE = ["assignment", "limits", "polytope"]


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[Server]:
    options = {"default_model": "tiny", "intra_op_threads": 1, "log_level": "error"}
    with serving(models, command=(stall_server.__file__,), **options) as server:
        yield server


@pytest.mark.parametrize(
    ("path", "document", "status"),
    [
        ("/dynamics", {"points": CLOUD, "include": INCLUDE, "max_layers": 1}, 200),
        ("/dynamics", {"points": [*CLOUD, [1.0, float("nan")]]}, 422),
        # All points lead: twenty thousand leaders and clusters in the response.
        ("/dynamics", {"points": CIRCLE, "include": INCLUDE}, 200),
        ("/sequences/classify", {"model": "scenes", "sequences": SEQUENCES}, 200),
        ("/control", {"points": INNER_POINTS.tolist(), "leaders": [0, 1]}, 200),
        ("/classify", {"input": ["?!" * 254] * 16}, 200),
    ],
    ids=["numbers", "refused", "leaders", "sequences", "wish", "marks"],
)
def test_long_json_stalls_the_event_loop_for_one_short_step(
    server: Server, path: str, document: dict[str, Any], status: int
) -> None:
    with server.client(headers={"content-type": "application/json"}) as client:
        stall = measure_stall(server, client, path, json.dumps(document).encode(), status)
    assert stall["turn_s"] < TARGET_STALL_S, stall
    assert stall["step_s"] < MAX_PARSE_STALL_S, stall


def test_monitor_distinguishes_holding_from_sharing_the_interpreter_lock() -> None:
    def hold_lock() -> None:
        sum(range(10_000_000))  # one call that never releases the lock

    def share_lock() -> None:
        for _ in range(100_000):
            abs(0)

    async def longest_step(work: Any) -> tuple[float, str]:
        monitor = stall_server.StallMonitor()
        monitor.install_profiler()
        monitor.start(asyncio.get_running_loop())
        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive():
            await asyncio.sleep(0.01)
        return monitor.step

    try:
        held, shared = (asyncio.run(longest_step(work)) for work in (hold_lock, share_lock))
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
    assert held[0] > TARGET_STALL_S
    assert "sum" in held[1]
    assert shared[0] < TARGET_STALL_S
