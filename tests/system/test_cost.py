"""Requests from the OpenAPI document with every list at its bound delay other requests only briefly.

The delay is measured in CPU time of the service, which does not depend on the load of the machine. Lists that
a setting bounds are as large as the settings and a JSON body allow.
"""

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from bundles import write_sequence_model
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from paths import ROOT
from server import Server, serving
from small_models import link_small_models

from service.http.bodies import MAX_JSON_BYTES

pytestmark = pytest.mark.alone

DOCUMENT = json.loads((ROOT / "docs/openapi.json").read_text())
ROUTES = ("/classify", "/dynamics", "/control", "/sequences/classify", "/", "/predict")
BODY_BYTES = MAX_JSON_BYTES - 100_000  # for the numbers and texts of a request
MAX_TEXTS, MAX_TEXT_CHARS = 1024, 200_000  # MAX_CLIENT_BATCH_SIZE, MAX_TEXT_CHARS
MAX_WAIT_S = 1.0
MAX_MEMORY_MB = 1000  # docs/operate/operations.md
DEADLINE_S = 10
LIGATURE = "\N{ARABIC LIGATURE SALLALLAHOU ALAYHE WASALLAM}"  # 18 letters when it is normalized
FRAGMENTS = ("good bad film ", "?!", LIGATURE, "a", "<br />", "\N{PARTY POPPER} ", "not ")
SMALL_REQUEST = b'{"input": "a superb film"}'


def texts() -> st.SearchStrategy[Any]:
    """Draw one text of maximal length, or as many texts as a body may have."""

    def fill(fragment: str, batch: bool) -> str | list[str]:
        size = BODY_BYTES // MAX_TEXTS // len(fragment.encode()) if batch else MAX_TEXT_CHARS // len(fragment)
        return [fragment * size] * MAX_TEXTS if batch else fragment * size

    return st.builds(fill, st.sampled_from(FRAGMENTS), st.booleans())


def cloud(numbers: int = BODY_BYTES // 8) -> st.SearchStrategy[Any]:
    """Draw as many points as a body may have, in few or many dimensions; integers often tie."""

    def points(d: int, integers: bool, seed: int) -> Any:
        rng = np.random.default_rng(seed)
        n = min(numbers // d, 90_000)
        points = rng.integers(-9, 10, (n, d)) if integers else rng.normal(size=(n, d)).round(3)
        return (points + 0.0).tolist()

    return st.builds(points, st.sampled_from([1, 2, 3, 32, 256]), st.booleans(), st.integers(0, 9))


def matrix(d: int) -> Any:
    return (np.eye(d) * 2 + 1).tolist()


VALUES_AT_LIMIT = {
    ("MAX_CLIENT_BATCH_SIZE", "MAX_TEXT_CHARS"): texts(),
    ("MAX_POINTS", "MAX_DIMENSION"): cloud(),
    ("MAX_CLIENT_BATCH_SIZE", "MAX_POINTS", "MAX_DIMENSION"): st.one_of(
        cloud().map(lambda points: [points]), st.just([[[1.0, 2.0]] * 150] * MAX_TEXTS)
    ),
    ("MAX_LAYERS",): st.just(100_000),
    ("MAX_DIMENSION",): st.just(256).map(matrix),
}


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Draw values of a schema, with lists and texts of maximal length."""
    if "$ref" in schema:
        return values(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    if limits := schema.get("x-limits"):
        return VALUES_AT_LIMIT[tuple(limits)]
    if "anyOf" in schema:
        return st.one_of(*map(values, schema["anyOf"]))
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "array":
            length = schema["maxItems"]
            items = st.lists(values(schema["items"]), min_size=1, max_size=min(16, length))
            return items.map(lambda drawn: (drawn * length)[:length])
        case "object" if "properties" in schema:
            return objects(schema)
        case "object":
            names = [str(number) for number in range(schema["maxProperties"])]
            return values(schema["additionalProperties"]).map(lambda value: dict.fromkeys(names, value))
        case "string":
            return st.just("a" * schema["maxLength"])
        case "integer":
            return st.integers(schema.get("minimum", 0), schema.get("maximum", 1000))
        case "number":
            return st.sampled_from([1e-9, 0.5, 1.0, 1e9])
        case "boolean":
            return st.booleans()
    return st.none()


def objects(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Draw objects with the required fields and any of the others."""
    fields = {name: values(field) for name, field in schema["properties"].items()}
    required = {name: fields[name] for name in schema.get("required", ())}
    optional = {name: field for name, field in fields.items() if name not in required}
    return st.fixed_dictionaries(required, optional=optional)


class Request:
    """A route and a body. No dataclass: Hypothesis would print all of the body."""

    def __init__(self, path: str, body: bytes) -> None:
        self.path = path
        self.body = body

    def __repr__(self) -> str:
        return f"Request({self.path}, {len(self.body)} bytes: {self.body[:80]!r} ... {self.body[-80:]!r})"


def requests() -> st.SearchStrategy[Request]:
    """Draw a route and a body; half of the bodies are valid."""

    def body_of(path: str) -> st.SearchStrategy[Request]:
        schema = DOCUMENT["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        return st.tuples(values(schema), st.booleans()).map(
            lambda drawn: Request(path, serialize(path, *drawn))
        )

    return st.sampled_from(ROUTES).flatmap(body_of)


def serialize(path: str, document: dict[str, Any], valid: bool) -> bytes:
    """Return the body as JSON; `valid`: changed where a random one would be refused at once."""
    if valid:
        document.pop("model", None)
        if path == "/sequences/classify":
            document["model"] = "scenes"
        if isinstance(document.get("input"), list):
            document.pop("without", None)  # spans are for one text
            document.update({name: False for name in ("flip", "sufficient") if name in document})
        if document.get("A"):
            document["A"] = matrix(len(document["points"][0]))
        if path == "/control":
            document.pop("assignment", None)
            document["leaders"] = list(range(min(32, len(document["points"]))))
        if "parameters" in document:
            document["parameters"].pop("candidate_labels", None)
    return json.dumps(document).encode()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The service with the pretrained models and one of sequences, and a short deadline."""
    models: Path = link_small_models(tmp_path_factory.mktemp("server") / "models")
    write_sequence_model(models)
    options = {"intra_op_threads": 1, "request_timeout_s": DEADLINE_S, "log_level": "error"}
    with serving(models, **options) as server:
        yield server


def longest_wait(server: Server, client: httpx.Client, response: Future[httpx.Response]) -> float:
    """Return the most CPU time that the service spends during a short request, until `response` is done."""
    longest_s = 0.0
    while True:
        done = response.done()
        start_s = server.cpu_s
        assert client.post("/classify", content=SMALL_REQUEST).status_code in (200, 429, 503)
        longest_s = max(longest_s, server.cpu_s - start_s)
        if done:
            return longest_s
        time.sleep(0.01)


def peak_mb(server: Server) -> float:
    """Return the peak memory of the service."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert match
    return int(match[1]) / 1000


@given(request=requests())
@settings(max_examples=30, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def check_request(server: Server, request: Request) -> None:
    headers = {"content-type": "application/json"}
    with server.client(headers=headers) as client, server.client(headers=headers) as other_client:
        with ThreadPoolExecutor(1) as pool:
            response = pool.submit(client.post, request.path, content=request.body)
            waited_s = longest_wait(server, other_client, response)
        status = response.result().status_code
    assert status < 500 or status in (503, 504), (request, status)
    assert waited_s < MAX_WAIT_S, (request, status, waited_s)
    assert peak_mb(server) < MAX_MEMORY_MB, (request, status)


@pytest.mark.timeout(900)
def test_requests_at_their_bounds_delay_others_briefly(server: Server) -> None:
    check_request(server)
