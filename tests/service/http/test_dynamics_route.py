"""POST /dynamics: npy bodies, memory, callers that leave, and what a response may include."""

import json
import re
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import raw_http
from raw_http import connect, npy, npy_with_shape, post_request
from refusals import refusal
from server import Server, eventually, in_process

from service.cloud.dynamics import Dynamics, Limits
from service.http.bodies import MAX_SENT_BYTES
from service.loaders import domain_loaders
from service.runtime.registry import Loader
from service.runtime.session import Runtime
from service.settings import Settings

NPY = {"content-type": "application/x-npy"}


# An open bracket was found by fuzzing: it was answered 500.
INVALID_SHAPES = ("(-3, -2)", "(True, 2)", "(3, 2.0)", "(3, None)", "(2**70, 2)", "(3,", "3", "(300000, 4)")
MALFORMED = (400, "malformed_input", None)
VALID_NPY = npy(np.ones((3, 2)))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", MALFORMED),
        (b"\x93NUMPY\x09\x00", MALFORMED),
        (b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f8', 'shape': (99, 2)}", MALFORMED),
        (VALID_NPY[:-1], MALFORMED),
        (VALID_NPY + b"x", MALFORMED),
        *((npy_with_shape(shape), MALFORMED) for shape in INVALID_SHAPES),
        (npy(np.array([["a", "b"]])), (415, "unsupported_media_type", "points")),
        (npy(np.array([[1.0, None]])), (415, "unsupported_media_type", "points")),  # a pickle
        (npy(np.ones((2, 33))), (413, "too_large", "points")),
    ],
)
def test_dynamics_refuses_npy_bodies_that_are_wrong(
    client: httpx.Client, body: bytes, expected: tuple[Any, ...]
) -> None:
    assert refusal(client.post("/dynamics", content=body, headers=NPY)) == expected


def test_npy_that_is_too_large_as_doubles_is_refused_before_it_is_converted(models: Path) -> None:
    """Eight megabytes of small integers are 64 MB of doubles."""

    def loaders(runtime: Runtime, settings: Settings) -> Mapping[str, Loader]:
        limits = Limits(max_bytes=2**28)
        limited = {"dynamics": lambda bundle: Dynamics.load(bundle, runtime, limits)}
        return {**domain_loaders(runtime, settings), **limited}

    body = npy(np.ones((1_000_000, 8), np.int8))
    with in_process(models, loaders) as client:
        tracemalloc.start()
        try:
            response = client.post("/dynamics", content=body, headers=NPY)
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert refusal(response) == (413, "too_large", "points")
    assert "need 1.6 GiB" in response.json()["error"]["message"]
    assert peak_bytes < 40e6


def test_result_of_a_stream_is_one_line_sent_in_pieces(client: httpx.Client) -> None:
    points = np.random.default_rng(0).normal(size=(2_000, 8)).tolist()
    body = {"points": points, "include": ["limits"]}
    with client.stream(
        "POST", "/dynamics", json=body, headers={"accept": "application/x-ndjson"}
    ) as response:
        content = b"".join(response.iter_bytes())
    *progress, result = content.splitlines()
    assert len(result) > MAX_SENT_BYTES
    assert all("progress" in json.loads(line) for line in progress)
    assert json.loads(result)["limits"] == client.post("/dynamics", json=body).json()["limits"]


def test_progress_is_not_buffered_by_a_proxy(client: httpx.Client) -> None:
    headers = {"accept": "application/x-ndjson"}
    response = client.post("/dynamics", json={"points": [[1, 2]]}, headers=headers)
    assert response.headers["x-accel-buffering"] == "no"  # docker/edge/nginx.conf


def test_client_that_leaves_stops_its_cloud(server: Server, client: httpx.Client) -> None:
    """The cloud takes some seconds, in layers of a fraction of a second."""
    cloud = npy(np.random.default_rng(3).normal(size=(60_000, 32)))

    def count() -> int:
        match = re.search(r'route="/dynamics",status="499"} (\d+)', client.get("/metrics").text)
        return int(match[1]) if match else 0

    before = count()
    with connect(server.port) as connection:
        connection.sendall(post_request(cloud, "/dynamics", raw_http.NPY))
        eventually(lambda: "hardmax_requests_in_flight 1" in client.get("/metrics").text)
    eventually(lambda: count() == before + 1)
    assert client.post("/dynamics", json={"points": [[1, 2]]}).status_code == 200


def test_dynamics_includes_argmax_sets_softmax_and_a_trajectory(client: httpx.Client) -> None:
    body = {"points": [[1, 1], [0.5, -0.5], [0.2, 0.1]], "include": ["argmax", "softmax"]}
    document = client.post("/dynamics", json=body | {"temperature": 0.05}).json()
    assert document["argmax"] == [[[0], [1], [0]]]
    assert (document["certified_layer"], document["layers"]) == (0, 30)
    assert len(document["trajectory"]["points"]) == len(document["softmax"]["points"]) == 31
    assert document["softmax"]["distance"][0] == 0 < document["softmax"]["distance"][1] < 0.01
    assert refusal(client.post("/dynamics", json=body)) == (422, "invalid_input", "temperature")
    unused = {"points": body["points"], "temperature": 0.05}
    assert refusal(client.post("/dynamics", json=unused)) == (422, "invalid_input", "temperature")
    stopped = client.post("/dynamics", json=body | {"temperature": 0.05, "stop": "certified"}).json()
    assert stopped["layers"] == 0
