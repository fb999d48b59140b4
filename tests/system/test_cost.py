"""Requests drawn from the OpenAPI document with every list at its bound: nobody else waits long for them.

How long others wait is counted in CPU time that the service spends meanwhile, which a busy machine does not
change. Lists that a setting bounds are as large as the settings and a JSON body allow.
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
ROUTES = ("/classify", "/dynamics", "/control", "/sequences/classify", "/", "/predict", "/v1/classify")
BODY = MAX_JSON_BYTES - 100_000  # for the numbers and texts of a request
TEXTS, CHARS = 1024, 200_000  # MAX_CLIENT_BATCH_SIZE, MAX_TEXT_CHARS
WAIT_S = 1.0
MEMORY_MB = 1000  # docs/operations.md
DEADLINE_S = 10
LIGATURE = "\N{ARABIC LIGATURE SALLALLAHOU ALAYHE WASALLAM}"  # 18 letters when it is normalized
GRAINS = ("good bad film ", "?!", LIGATURE, "a", "<br />", "\N{PARTY POPPER} ", "not ")
SMALL = b'{"input": "a superb film"}'


def texts() -> st.SearchStrategy[Any]:
    """One text of as many characters as it may have, or as many texts as a body holds."""

    def fill(grain: str, many: bool) -> str | list[str]:
        size = BODY // TEXTS // len(grain.encode()) if many else CHARS // len(grain)
        return [grain * size] * TEXTS if many else grain * size

    return st.builds(fill, st.sampled_from(GRAINS), st.booleans())


def cloud(numbers: int = BODY // 8) -> st.SearchStrategy[Any]:
    """As many points as a body holds: in few dimensions or in many; whole numbers tie often."""

    def points(d: int, whole: bool, seed: int) -> Any:
        rng = np.random.default_rng(seed)
        n = min(numbers // d, 90_000)
        drawn = rng.integers(-9, 10, (n, d)) if whole else rng.normal(size=(n, d)).round(3)
        return (drawn + 0.0).tolist()

    return st.builds(points, st.sampled_from([1, 2, 3, 32, 256]), st.booleans(), st.integers(0, 9))


def matrix(d: int) -> Any:
    return (np.eye(d) * 2 + 1).tolist()


LIMITED = {
    ("MAX_CLIENT_BATCH_SIZE", "MAX_TEXT_CHARS"): texts(),
    ("MAX_POINTS", "MAX_DIMENSION"): cloud(),
    ("MAX_CLIENT_BATCH_SIZE", "MAX_POINTS", "MAX_DIMENSION"): st.one_of(
        cloud().map(lambda points: [points]), st.just([[[1.0, 2.0]] * 150] * TEXTS)
    ),
    ("MAX_LAYERS",): st.just(100_000),
    ("MAX_DIMENSION",): st.just(256).map(matrix),
}


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values of a schema whose lists and texts are as long as they may be."""
    if "$ref" in schema:
        return values(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    if limits := schema.get("x-limits"):
        return LIMITED[tuple(limits)]
    if "anyOf" in schema:
        return st.one_of(*map(values, schema["anyOf"]))
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "array":
            length = schema["maxItems"]
            some = st.lists(values(schema["items"]), min_size=1, max_size=min(16, length))
            return some.map(lambda found: (found * length)[:length])
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
    """Objects with the required fields and any of the others."""
    drawn = {name: values(field) for name, field in schema["properties"].items()}
    required = {name: drawn[name] for name in schema.get("required", ())}
    return st.fixed_dictionaries(
        required, optional={name: each for name, each in drawn.items() if name not in required}
    )


def requests() -> st.SearchStrategy[tuple[str, bytes]]:
    """A route and a body; half of the bodies name a model and points that are there."""

    def body_of(path: str) -> st.SearchStrategy[tuple[str, bytes]]:
        schema = DOCUMENT["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        return st.tuples(values(schema), st.booleans()).map(lambda pair: (path, written(path, *pair)))

    return st.sampled_from(ROUTES).flatmap(body_of)


def written(path: str, document: dict[str, Any], right: bool) -> bytes:
    """The body as JSON, made acceptable where a random one would be refused at once."""
    if right:
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
    """The service with the pretrained models and one of sequences, and a deadline that comes sooner."""
    models: Path = link_small_models(tmp_path_factory.mktemp("own") / "models")
    write_sequence_model(models)
    options = {"intra_op_threads": 1, "request_timeout_s": DEADLINE_S, "log_level": "error"}
    with serving(models, **options) as server:
        yield server


def longest_wait(server: Server, client: httpx.Client, other: Future[httpx.Response]) -> float:
    """The most CPU time that the service spends while somebody waits for the answer to a short text."""
    longest = 0.0
    while True:
        over = other.done()
        began_s = server.cpu_s
        assert client.post("/classify", content=SMALL).status_code in (200, 429, 503)
        longest = max(longest, server.cpu_s - began_s)
        if over:
            return longest
        time.sleep(0.01)


def peak_mb(server: Server) -> float:
    """The most memory that the service has had."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1000


@given(request=requests())
@settings(max_examples=30, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def ask(server: Server, request: tuple[str, bytes]) -> None:
    path, body = request
    headers = {"content-type": "application/json"}
    with server.client(headers=headers) as client, server.client(headers=headers) as caller:
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(client.post, path, content=body)
            waited_s = longest_wait(server, caller, other)
        status = other.result().status_code
    assert status < 500 or status in (503, 504), (path, status)
    assert waited_s < WAIT_S, (path, status, waited_s)
    assert peak_mb(server) < MEMORY_MB, (path, status)


@pytest.mark.timeout(900)
def test_nobody_waits_long_for_a_request_whose_lists_are_at_their_bounds(server: Server) -> None:
    ask(server)
