"""Nearly valid input to everything that reads untrusted input is accepted or refused, and crashes nothing.

A parser may refuse an input with an `InputError` (bundles: `BundleError`). Where an independent parser exists
(json, numpy), both must read the same, and ours must not refuse what is valid to the other.
"""

import io
import json
import random
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from mutations import JSON_VALUES, cloud_documents, mutate, npy_files, texts
from raw_http import npy
from starlette.requests import Request

from model_export.measure.served import ServedModel
from service.cloud.points import Floats
from service.errors import BundleError, InputError, InvalidInput
from service.http.bodies import JSON, NPY, body_type
from service.runtime.bundle import read_bundle
from service.runtime.session import Runtime
from service.settings import PRETRAINED_FOLDER
from service.text.pipeline import ClassificationTask, ClassifyOptions, classify_all
from service.wire.arrays import read_npy, read_rows
from service.wire.documents import parse, write
from service.wire.requests import ClassifyRequest, ControlParameters, DynamicsParameters

LIMITS = {"max_rows": 1000, "max_columns": 64}


@dataclass(frozen=True)
class Target:
    """An input that is accepted, a strategy for others, and the check of an input."""

    name: str
    accepted: Any
    inputs: st.SearchStrategy[Any]
    check: Callable[[Any], None]
    mutants: int = 19  # mutated copies of each drawn input: drawing takes long, mutating does not


def check_cloud(body: bytes) -> None:
    """Compare our parser with json: equal numbers, and no valid cloud is refused."""
    expected = _read_cloud_with_json(body)
    try:
        points = read_rows(body, "points", **LIMITS)[0]
    except InputError:
        assert expected is None or _has_duplicate_names(body), f"refused, though json reads {expected}"
        raise
    assert expected is not None, f"accepted as {points}, though it is no cloud"
    assert np.array_equal(points, expected)


def check_npy(body: bytes) -> None:
    """Compare our parser with numpy's: what we accept, numpy reads as the same numbers."""
    points = read_npy(body, "points", **LIMITS)
    assert np.array_equal(points, np.load(io.BytesIO(body), allow_pickle=False))
    assert points.dtype == np.float64


def check_written(document: dict[str, Any]) -> None:
    """Check that a document written in parts is equal JSON."""
    expected = json.loads(json.dumps(_without_nan(document)))
    try:
        written = json.loads(write(document))
    except orjson.JSONEncodeError as error:  # an integer of more than 64 bits: no answer has one
        raise InvalidInput(str(error)) from None
    assert written == expected


def check_request(schema: Any, body: bytes) -> None:
    try:
        parse(body, schema)
    except InputError as error:
        error.message.encode()  # the response contains it
        raise
    json.loads(body)


def check_media_type(header: bytes) -> None:
    request = Request({"type": "http", "headers": [(b"content-type", header)]})
    assert body_type(request, (JSON, NPY)) in (JSON, NPY)


def check_bundle(card: bytes) -> None:
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "tiny"
        folder.mkdir()
        (folder / "model.onnx").write_bytes(b"")
        (folder / "card.json").write_bytes(card)
        assert read_bundle(folder).name == "tiny"


def check_text(text: str) -> None:
    """Explain a text: all contributions add up to the logit, and every span lies in the text."""
    [result] = classify_all(
        [ClassificationTask(text, ClassifyOptions((HEAD_OF_TEXTS(),), "full", trajectory=True))]
    )
    if isinstance(result, Exception):
        raise AssertionError from result
    [answer] = result
    for parts in (answer["clusters"], answer["words"]):
        total = answer["bias"] + sum(part["contribution"] for part in parts)
        assert abs(total - answer["logit"]) < 1e-4, (total, answer["logit"])
    for word in answer["words"]:
        assert all(0 <= start < end <= len(text) for start, end in word["spans"])
    json.dumps(answer, allow_nan=False)


def _has_duplicate_names(body: bytes) -> bool:
    """Whether an object in the document has two members of one name, which has no defined meaning."""
    objects: list[list[tuple[str, Any]]] = []

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        objects.append(pairs)
        return dict(pairs)

    json.loads(body, object_pairs_hook=collect)
    return any(len(dict(pairs)) < len(pairs) for pairs in objects)


def _read_cloud_with_json(body: bytes) -> Floats | None:
    """Return the cloud in a document, or None if it is not valid to Python's json."""
    try:
        text = body.decode()
        document = json.loads(text)
        text.encode("utf-16-le", "strict")
        json.dumps(document, ensure_ascii=False).encode()  # lone surrogates
    except (ValueError, RecursionError):
        return None
    rows = document.get("points") if isinstance(document, dict) else None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, list) for row in rows):
        return None
    if {len(row) for row in rows} != {len(rows[0])} or not 0 < len(rows[0]) <= LIMITS["max_columns"]:
        return None
    if any(type(number) not in (int, float) for row in rows for number in row):
        return None
    try:
        points = np.array(rows, np.float64)
    except OverflowError:
        return None
    return points if np.isfinite(points).all() else None


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _card(**changes: Any) -> bytes:
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    card = {"format": 2, "name": "tiny", "kind": "dynamics", "description": "d", "license": "l"}
    return json.dumps({**card, "model_sha256": empty, **changes}).encode()


def _objects(valid_fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[bytes]:
    """Draw JSON objects of these members, each mostly valid, sometimes anything."""
    members = {name: st.one_of(valid, valid, valid, JSON_VALUES) for name, valid in valid_fields.items()}
    return st.fixed_dictionaries({}, optional=members).map(lambda body: json.dumps(body).encode())


KINDS = st.sampled_from(["dynamics", "sequences"])
CARDS = _objects({"format": st.just(2), "name": st.just("tiny"), "kind": KINDS}).map(
    lambda fields: _card(**json.loads(fields))
)
CLASSIFY = st.fixed_dictionaries(
    {"input": st.one_of(st.text(max_size=20), st.lists(st.text(max_size=8), max_size=3), JSON_VALUES)},
    optional={"model": JSON_VALUES, "explain": st.sampled_from(["none", "leaders", "full", "all"])},
).map(lambda body: json.dumps(body).encode())
DYNAMICS = _objects(
    {
        "alpha": st.floats(0.1, 10),
        "A": st.just([[1.0, 0.0], [0.0, 1.0]]),
        "max_layers": st.integers(1, 99),
        "stop": st.sampled_from(["certified", "never"]),
        "tolerance": st.floats(0, 1),
        "include": st.lists(st.sampled_from(["limits", "trajectory"]), max_size=2),
    }
)
CONTROL = _objects({"leaders": st.lists(st.integers(0, 9)), "assignment": st.just({"0": 1})})
HEADERS = b"application/json", b"application/x-npy; charset=utf-8", b"text/plain", b"application/json;charset"
DOCUMENTS = st.dictionaries(st.text(max_size=8), JSON_VALUES, max_size=5)

HEAD_OF_TEXTS = cache(lambda: ServedModel(PRETRAINED_FOLDER, "sentiment-small", Runtime("cpu", 1)).head)
NPY_BODY = npy(np.ones((2, 2)))
TARGETS = (
    Target("cloud in json", b'{"points":[[1,2]]}', cloud_documents(), check_cloud),
    Target("cloud in npy", NPY_BODY, npy_files(), check_npy),
    Target("answer to json", {"a": [1.5]}, DOCUMENTS, check_written, mutants=0),
    Target("classify request", b'{"input":"a"}', CLASSIFY, partial(check_request, ClassifyRequest)),
    Target("dynamics parameters", b'{"alpha":1}', DYNAMICS, partial(check_request, DynamicsParameters)),
    Target("control wish", b'{"leaders":[0]}', CONTROL, partial(check_request, ControlParameters)),
    Target("media type", HEADERS[0], st.sampled_from(HEADERS), check_media_type),
    Target("bundle card", _card(), CARDS, check_bundle),
    Target("text to explanation", "a film", texts(), check_text, mutants=0),
)


@pytest.mark.filterwarnings("ignore:Reading `.npy`")  # numpy on headers that it takes for Python 2's
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_parser_accepts_or_refuses_and_never_crashes(target: Target) -> None:
    target.check(target.accepted)

    @settings(suppress_health_check=list(HealthCheck))
    @given(target.inputs, st.integers(0, 2**32 - 1))
    def check_drawn(drawn: Any, seed: int) -> None:
        rng = random.Random(seed)
        for case in [drawn, *(mutate(drawn, rng) for _ in range(target.mutants))]:
            note(f"input: {case!r}")
            with suppress(InputError, BundleError):
                target.check(case)

    check_drawn()
