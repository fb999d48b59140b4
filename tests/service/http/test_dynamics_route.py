"""POST /dynamics over a socket: answers by value, refusals by status, type and place."""

import io
import json
import re
import time
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import wire
from clouds import TRIANGLE as CLOUD
from refusals import refusal
from server import Server, eventually, in_process
from wire import connect, npy, npy_said_to_be, whole

from service.cloud.dynamics import Dynamics, Limits
from service.runtime.registry import Loader
from service.runtime.session import Runtime
from service.settings import Settings
from service.state import domain_loaders

TRIANGLE = CLOUD.tolist()
NPY = {"content-type": "application/x-npy"}


def test_dynamics_answers_the_papers_triangle(client: httpx.Client) -> None:
    answer = client.post("/dynamics", json={"points": TRIANGLE, "alpha": 0.5}).json()
    assert (answer["n"], answer["d"], answer["alpha"], answer["status"]) == (9, 2, 0.5, "certified")
    assert [leader["index"] for leader in answer["leaders"]] == [0, 1, 2]
    assert [leader["point"] for leader in answer["leaders"]] == [[1, 1], [0.5, -0.5], [-1, -1]]
    assert len(answer["assignment"]) == 9
    assert sum(cluster["size"] for cluster in answer["clusters"]) == 9
    assert set(answer) & {"limits", "trajectory", "polytope"} == set()


def test_dynamics_includes_what_it_is_asked_for(client: httpx.Client) -> None:
    body = {
        "points": TRIANGLE, "alpha": 0.5, "stop": "never", "max_layers": 4, "trajectory_every": 2,
        "include": ["limits", "trajectory", "polytope"],
    }  # fmt: skip
    answer = client.post("/dynamics", json=body).json()
    assert answer["layers"] == 4
    assert "assignment" not in answer
    assert sorted(answer["polytope"]["vertices"]) == [0, 1, 2]
    assert answer["trajectory"]["layers"] == [0, 2, 4]
    assert answer["trajectory"]["points"][0] == TRIANGLE
    assert answer["limits"][0] == [1, 1]


def test_dynamics_takes_and_gives_numpy_arrays(client: httpx.Client) -> None:
    query = {"alpha": "0.5", "include": "assignment,limits", "A": "[[1, 0], [0, 1]]"}
    response = client.post(
        "/dynamics", params=query, content=npy(CLOUD), headers=NPY | {"accept": "application/x-npz"}
    )
    assert response.headers["content-type"] == "application/x-npz"
    with np.load(io.BytesIO(response.content)) as arrays:
        plain = client.post("/dynamics", json={"points": TRIANGLE, "alpha": 0.5, "include": ["limits"]})
        assert arrays["leaders"].tolist() == [0, 1, 2]
        assert arrays["limits"].tolist() == plain.json()["limits"]
        assert json.loads(str(arrays["summary"]))["status"] == "certified"
    fortran = npy(np.asfortranarray(CLOUD.astype(np.float32)))
    again = client.post("/dynamics?alpha=0.5", content=fortran, headers=NPY)
    assert [leader["index"] for leader in again.json()["leaders"]] == [0, 1, 2]


def test_dynamics_streams_its_layers_and_the_result_last(client: httpx.Client) -> None:
    body = {"points": TRIANGLE, "alpha": 0.5}
    with client.stream("POST", "/dynamics", json=body, headers={"accept": "application/x-ndjson"}) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        lines = [json.loads(line) for line in answer.iter_lines()]
    assert [set(line) for line in lines[:-1]] == [{"progress"}] * (len(lines) - 1)
    assert lines[-2]["progress"]["leaders"] == 3
    whole = client.post("/dynamics", json=body).json()
    assert {**lines[-1], "id": 0} == {**whole, "id": 0}


def test_dynamics_says_up_to_which_temperature_softmax_does_the_same(client: httpx.Client) -> None:
    body = {"points": [[1, 0.2], [-0.9, 0.5], [0.1, -1]], "include": ["temperature"]}
    answer = client.post("/dynamics", json=body).json()
    found = answer["temperature"]
    assert (answer["certified_layer"], found["layers"]) == (0, 1)
    assert found["distance"] == pytest.approx(0.01 * 1.06**0.5)
    assert 0.01 < found["t"] < 1
    assert "temperature" not in client.post("/dynamics", json=body | {"include": []}).json()


# An open bracket was found by fuzzing: it was answered 500.
IMPOSSIBLE = ("(-3, -2)", "(True, 2)", "(3, 2.0)", "(3, None)", "(2**70, 2)", "(3,", "3", "(300000, 4)")
MALFORMED = (400, "malformed_input", None)
WHOLE = npy(np.ones((3, 2)))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", MALFORMED),
        (b"\x93NUMPY\x09\x00", MALFORMED),
        (b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f8', 'shape': (99, 2)}", MALFORMED),
        (WHOLE[:-1], MALFORMED),
        (WHOLE + b"x", MALFORMED),
        *((npy_said_to_be(shape), MALFORMED) for shape in IMPOSSIBLE),
        (npy(np.ones(3)), (422, "invalid_input", "points")),
        (npy(np.array([["a", "b"]])), (415, "unsupported_media_type", "points")),
        (npy(np.array([[1.0, None]])), (415, "unsupported_media_type", "points")),  # a pickle
        (npy(np.array([[1.0, np.nan]])), (422, "invalid_input", "points[0][1]")),
        (npy(np.ones((2, 33))), (413, "too_large", "points")),
    ],
)
def test_dynamics_believes_an_npy_header_only_as_far_as_bytes_follow(
    client: httpx.Client, body: bytes, expected: tuple[Any, ...]
) -> None:
    assert refusal(client.post("/dynamics", content=body, headers=NPY)) == expected


def test_npy_that_is_too_large_as_doubles_is_refused_before_it_becomes_them(models: Path) -> None:
    """Eight megabytes of small integers are 64 MB of doubles."""

    def loaders(runtime: Runtime, settings: Settings) -> Mapping[str, Loader]:
        limits = Limits(max_bytes=2**28)
        own = {"dynamics": lambda bundle: Dynamics.load(bundle, runtime, limits)}
        return {**domain_loaders(runtime, settings), **own}

    body = npy(np.ones((1_000_000, 8), np.int8))
    with in_process(models, loaders) as client:
        tracemalloc.start()
        try:
            answer = client.post("/dynamics", content=body, headers=NPY)
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert refusal(answer) == (413, "too_large", "points")
    assert "need 1.6 GiB" in answer.json()["error"]["message"]
    assert most < 40e6


def test_client_that_leaves_stops_its_cloud(server: Server, client: httpx.Client) -> None:
    """Some seconds of work, in layers of a fraction of a second."""
    cloud = npy(np.random.default_rng(3).normal(size=(60_000, 32)))

    def left() -> int:
        told = re.search(r'route="/dynamics",status="499"} (\d+)', client.get("/metrics").text)
        return int(told[1]) if told else 0

    before = left()
    with connect(server.port) as connection:
        connection.sendall(whole(cloud, "/dynamics", wire.NPY))
        time.sleep(0.5)
    eventually(lambda: left() == before + 1)
    assert client.post("/dynamics", json={"points": [[1, 2]]}).status_code == 200


def test_dynamics_includes_argmax_sets_softmax_and_a_whole_trajectory(client: httpx.Client) -> None:
    body = {"points": [[1, 1], [0.5, -0.5], [0.2, 0.1]], "include": ["trajectory", "argmax", "softmax"]}
    answer = client.post("/dynamics", json=body | {"temperature": 0.05}).json()
    assert answer["argmax"] == [[[0], [1], [0]]]
    assert (answer["certified_layer"], answer["layers"]) == (0, 30)
    assert len(answer["trajectory"]["points"]) == len(answer["softmax"]["points"]) == 31
    assert answer["softmax"]["distance"][0] == 0 < answer["softmax"]["distance"][1] < 0.01
    assert refusal(client.post("/dynamics", json=body)) == (422, "invalid_input", "temperature")
    stopped = client.post("/dynamics", json=body | {"temperature": 0.05, "stop": "certified"}).json()
    assert stopped["layers"] == 0


@pytest.mark.parametrize(
    ("array", "place"),
    [
        (np.array([[1, 2], [3, 2**53 + 1]]), "points[1][1]"),
        (np.array([[2**63 - 1, 1]]), "points[0][0]"),
        (np.array([[2**64 - 1, 1]], np.uint64), "points[0][0]"),
        (np.array([[1, 1 + np.longdouble(2) ** -60]]), "points[0][1]"),
    ],
)
def test_dynamics_refuses_numbers_that_double_precision_rounds(
    client: httpx.Client, array: np.ndarray[Any, Any], place: str
) -> None:
    """They were rounded, and "certified" was said of another cloud."""
    headers = {"content-type": "application/x-npy"}
    assert refusal(client.post("/dynamics", content=npy(array), headers=headers)) == (
        422,
        "invalid_input",
        place,
    )
    if array.dtype.kind in "iu":
        answer = client.post("/dynamics", json={"points": array.tolist()})
        assert refusal(answer) == (422, "invalid_input", place)


def test_dynamics_takes_large_integers_that_are_exact(client: httpx.Client) -> None:
    array = np.array([[2**62, 1], [-(2**53), 3]])
    sent = client.post("/dynamics", content=npy(array), headers=NPY)
    assert sent.json()["status"] == "certified"
    assert client.post("/dynamics", json={"points": array.tolist()}).json()["status"] == "certified"
