"""POST /sequences/classify and /control: answers, proofs, refusals, and work that ends in time."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from refusals import refusal
from server import Server, eventually, serving


def ask(client: httpx.Client, **wish: object) -> Any:
    answer = client.post("/control", json=wish)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("name", ["+1", " 1", "1.0", "١", ""])
def test_control_refuses_names_that_are_no_indices(client: httpx.Client, name: str) -> None:
    body = {"points": [[1, 0], [0, 1]], "assignment": {"1": 1, name: 0}}
    assert refusal(client.post("/control", json=body))[:2] == (422, "invalid_input")


def long_work() -> dict[str, object]:
    """1,500 points in 32 dimensions and where each shall end: many seconds of work."""
    rng = np.random.default_rng(0)
    points, B = rng.normal(size=(1500, 32)), rng.normal(size=(32, 32))
    first = (points @ (B @ B.T) @ points.T).argmax(axis=1)
    wanted = {str(i): int(j) for i, j in enumerate(first) if first[j] == j}
    return {"points": points.tolist(), "assignment": wanted}


def test_control_stops_when_its_caller_leaves(server: Server, client: httpx.Client) -> None:
    with pytest.raises(httpx.ReadTimeout), server.client() as caller:
        caller.post("/control", json=long_work(), timeout=httpx.Timeout(10, read=0.7))
    left_s = server.cpu_s
    assert ask(client, points=[[1, 2]], leaders=[0])["margin"] is None  # answered once the queue is free
    assert server.cpu_s - left_s < 3  # the whole work takes half a minute


def test_control_keeps_no_stop_waiting(models: Path) -> None:
    """SIGTERM with a grace of one second, in the middle of the work."""
    with (
        serving(models, default_model="tiny", shutdown_grace_s=1) as server,
        ThreadPoolExecutor(1) as pool,
        server.client() as caller,
        server.client() as other,
    ):
        answer = pool.submit(caller.post, "/control", json=long_work())
        eventually(lambda: "hardmax_requests_in_flight 1" in other.get("/metrics").text)
        time.sleep(0.2)
        assert server.stop() == 0
        assert answer.result(10).status_code == 503
