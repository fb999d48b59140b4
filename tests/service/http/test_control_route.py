"""POST /control over HTTP: every verdict with its proof, and work that ends when nobody wants it any more."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import httpx
import numpy as np
import pytest
from server import Server, eventually, serving


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[Server]:
    with serving(models, default_model="tiny") as server:
        yield server


def ask(server: Server, **wish: object) -> dict[str, object]:
    with server.client() as client:
        answer = client.post("/control", json=wish)
    assert answer.status_code == 200, answer.text
    body: dict[str, object] = answer.json()
    return body


@pytest.mark.parametrize("least", [0.01, 0.001])
def test_control_finds_what_was_called_infeasible_or_was_an_error(server: Server, least: float) -> None:
    found = ask(server, points=[[1, 0], [2, least]], leaders=[0])
    assert found["feasible"] is True
    (a, b), (_, c) = ([Fraction(x) for x in row] for row in found["A"])  # type: ignore[attr-defined]
    assert a > 0
    assert a * c > b * b
    assert -a - b * Fraction(least) > 0  # <A z_0, z_0 - z_1>, of the numbers as they were sent
    assert found["dynamics"]["leaders"][0]["index"] == 0  # type: ignore[index]


def test_control_sends_the_proof_that_there_is_none(server: Server) -> None:
    found = ask(server, points=[[1, 0], [0.5, 0.5], [0, 1], [-1, -1]], leaders=[1])
    assert (found["feasible"], found["A"], found["bound"]) == (False, None, 0)
    assert found["certificate"] == [
        {"token": 1, "leader": 1, "rival": 0, "weight": "1"},
        {"token": 1, "leader": 1, "rival": 2, "weight": "1"},
    ]


def test_control_takes_a_lone_point(server: Server) -> None:
    """There is no rival, so there is no margin."""
    found = ask(server, points=[[1, 2]], leaders=[0])
    assert (found["feasible"], found["margin"]) == (True, None)


def long_work() -> dict[str, object]:
    """1,500 points in 32 dimensions and where each shall end: many seconds of work."""
    rng = np.random.default_rng(0)
    points, B = rng.normal(size=(1500, 32)), rng.normal(size=(32, 32))
    first = (points @ (B @ B.T) @ points.T).argmax(axis=1)
    wanted = {str(i): int(j) for i, j in enumerate(first) if first[j] == j}
    return {"points": points.tolist(), "assignment": wanted}


def leave_after(server: Server, seconds: float) -> None:
    with pytest.raises(httpx.ReadTimeout), httpx.Client(trust_env=False) as client:
        client.post(f"{server.url}/control", json=long_work(), timeout=httpx.Timeout(10, read=seconds))


def test_control_stops_when_its_caller_leaves(server: Server) -> None:
    leave_after(server, 0.7)
    left_s = server.cpu_s
    ask(server, points=[[1, 2]], leaders=[0])  # answered once the queue is free
    assert server.cpu_s - left_s < 3  # the whole work takes half a minute


def test_control_keeps_no_stop_waiting(models: Path) -> None:
    """SIGTERM with a grace of one second, in the middle of the work."""
    with serving(models, default_model="tiny", shutdown_grace_s=1) as server, ThreadPoolExecutor(1) as caller:

        def ask() -> int:
            return httpx.post(
                f"{server.url}/control", json=long_work(), timeout=60, trust_env=False
            ).status_code

        answer = caller.submit(ask)
        with server.client() as other:
            eventually(lambda: "hardmax_requests_in_flight 1" in other.get("/metrics").text)
        time.sleep(0.2)
        assert server.stop() == 0
        assert answer.result(10) == 503
