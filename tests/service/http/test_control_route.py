"""POST /control: names that are no indices, and work that ends when its caller leaves or the server stops."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from refusals import refusal
from server import Server, eventually, serving


@pytest.mark.parametrize("name", ["+1", " 1", "1.0", "١", ""])
def test_control_refuses_names_that_are_no_indices(client: httpx.Client, name: str) -> None:
    body = {"points": [[1, 0], [0, 1]], "assignment": {"1": 1, name: 0}}
    assert refusal(client.post("/control", json=body))[:2] == (422, "invalid_input")


def long_work() -> dict[str, object]:
    """Return a body of many seconds of work: 1,500 points in 32 dimensions, and a leader for many of them."""
    rng = np.random.default_rng(0)
    points, B = rng.normal(size=(1500, 32)), rng.normal(size=(32, 32))
    leaders = (points @ (B @ B.T) @ points.T).argmax(axis=1)
    assignment = {str(i): int(j) for i, j in enumerate(leaders) if leaders[j] == j}
    return {"points": points.tolist(), "assignment": assignment}


def test_control_stops_when_its_caller_leaves(server: Server, client: httpx.Client) -> None:
    with pytest.raises(httpx.ReadTimeout), server.client() as caller:
        caller.post("/control", json=long_work(), timeout=httpx.Timeout(10, read=0.7))
    cpu_s = server.cpu_s
    response = client.post("/control", json={"points": [[1, 2]], "leaders": [0]})
    assert response.json()["margin"] is None  # answered once the queue is free
    assert server.cpu_s - cpu_s < 3  # all of the work takes half a minute


def test_control_does_not_delay_a_stop(models: Path) -> None:
    """SIGTERM comes in the middle of the work, with a grace period of one second."""
    with (
        serving(models, default_model="tiny", shutdown_grace_s=1) as server,
        ThreadPoolExecutor(1) as pool,
        server.client() as caller,
        server.client() as client,
    ):
        response = pool.submit(caller.post, "/control", json=long_work())
        eventually(lambda: "hardmax_requests_in_flight 1" in client.get("/metrics").text)
        time.sleep(0.2)
        assert server.stop() == 0
        assert response.result(10).status_code == 503
