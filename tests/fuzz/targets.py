"""What is fuzzed: each target draws an input, gives it to a parser, and judges what comes back.

A parser may accept or refuse with an `InputError` (bundles: `BundleError`); all else is a crash. Where an
independent reader exists (json, numpy) what we accept must be what it reads, and what is flawless to it must
not be refused.
"""

import io
import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from starlette.requests import Request

from service.answers.arrays import read_npy, read_rows
from service.answers.writing import write_document
from service.cloud.points import Floats
from service.errors import BundleError, InputError, InvalidInput
from service.http.bodies import JSON, NPY, body_type
from service.loaders import domain_loaders
from service.runtime.bundle import read_bundle
from service.runtime.card import HEAD
from service.runtime.registry import Registry
from service.runtime.session import Runtime
from service.schemas.reading import parse
from service.schemas.requests import ClassifyRequest, ControlParameters, DynamicsParameters
from service.settings import PRETRAINED_FOLDER, Settings
from service.text.head import Head
from service.text.pipeline import ClassificationTask, ClassifyOptions, classify_all
from tests.fuzz.mutations import JSON_VALUES, cloud_documents, npy_files, texts, wounded

LIMITS = {"max_rows": 1000, "max_columns": 64}
ROUND = 250  # draws: hypothesis keeps a tree of them, and each round grows another


@dataclass(frozen=True)
class Target:
    """A name, how to draw an input, and what must hold of it; `check` raises the refusal of a parser."""

    name: str
    inputs: st.SearchStrategy[Any]
    check: Callable[[Any], None]
    mutants: int = 19  # damaged copies tried of each drawn input: drawing takes long, damaging does not

    def run(self, cases: int, counts: Counter[str], *, repeatable: bool = False) -> None:
        """At least `cases` inputs unless there are no more; raises what the first failing one raised."""
        before = -1
        while cases > counts.total() > before:
            before = counts.total()
            draws = -(-(cases - before) // (1 + self.mutants))
            self._round(min(ROUND, draws), counts, repeatable)

    def _round(self, draws: int, counts: Counter[str], repeatable: bool) -> None:
        @settings(
            max_examples=draws, deadline=None, database=None, derandomize=repeatable,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(self.inputs, st.integers(0, 2**32 - 1))
        def judge(drawn: Any, seed: int) -> None:
            rng = random.Random(seed)
            for case in [drawn, *(wounded(drawn, rng) for _ in range(self.mutants))]:
                note(f"input: {case!r}")
                try:
                    self.check(case)
                except (InputError, BundleError):
                    counts["refused"] += 1
                else:
                    counts["accepted"] += 1

        judge()


def check_cloud(body: bytes) -> None:
    """Our reader against json: same numbers, and no refusal of a flawless cloud."""
    flawless = _cloud_by_json(body)
    try:
        points = read_rows(body, "points", **LIMITS)[0]
    except InputError:
        assert flawless is None or _says_twice(body), f"refused, though json reads {flawless}"
        raise
    assert flawless is not None, f"accepted as {points}, though it is no cloud"
    assert np.array_equal(points, flawless)


def check_npy(body: bytes) -> None:
    """Our reader against numpy's: what we accept, numpy reads as the same numbers."""
    points = read_npy(body, "points", **LIMITS)
    assert np.array_equal(points, np.load(io.BytesIO(body), allow_pickle=False))
    assert points.dtype == np.float64


def check_written(document: dict[str, Any]) -> None:
    """What we write piecewise is JSON that says the same."""
    expected = json.loads(json.dumps(_without_nan(document)))
    try:
        written = json.loads(b"".join(write_document(document)))
    except orjson.JSONEncodeError as refused:  # an integer of more than 64 bits: no answer has one
        raise InvalidInput(str(refused)) from None
    assert written == expected


def check_request(schema: Any, body: bytes) -> None:
    try:
        parse(body, schema)
    except InputError as refused:
        refused.message.encode()  # the answer must be able to say it
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
    """A text to its explanation: everything adds up to the logit, every span lies in the text."""
    [result] = classify_all(
        [ClassificationTask(text, ClassifyOptions((_sentiment(),), "full", trajectory=True))]
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


@cache
def _sentiment() -> Head:
    registry = Registry([PRETRAINED_FOLDER], domain_loaders(Runtime("cpu", 1), Settings()))
    registry.load("sentiment-small")
    head: Head = registry.find("sentiment-small", HEAD)
    return head


def _says_twice(body: bytes) -> bool:
    """Whether an object in the document has two members of one name: what that means is anyone's guess."""
    objects: list[list[tuple[str, Any]]] = []

    def keep(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        objects.append(pairs)
        return dict(pairs)

    json.loads(body, object_pairs_hook=keep)
    return any(len(dict(pairs)) < len(pairs) for pairs in objects)


def _cloud_by_json(body: bytes) -> Floats | None:
    """The cloud in a document that is flawless in the eyes of Python's json, or None."""
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
        return {name: _without_nan(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _card(**changes: Any) -> bytes:
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    card = {"format": 2, "name": "tiny", "kind": "dynamics", "description": "d", "license": "l"}
    return json.dumps({**card, "model_sha256": empty, **changes}).encode()


def _objects(right: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[bytes]:
    """JSON objects of these members, each mostly right, sometimes anything."""
    members = {name: st.one_of(good, good, good, JSON_VALUES) for name, good in right.items()}
    return st.fixed_dictionaries({}, optional=members).map(lambda body: json.dumps(body).encode())


CHANGES = {"format": st.just(2), "name": st.just("tiny"), "kind": st.sampled_from(["dynamics", "sequences"])}
CARDS = _objects(CHANGES).map(lambda changes: _card(**json.loads(changes)))
CLASSIFY = st.fixed_dictionaries(
    {"input": st.one_of(st.text(max_size=20), st.lists(st.text(max_size=8), max_size=3), JSON_VALUES)},
    optional={"model": JSON_VALUES, "explain": st.sampled_from(["none", "leaders", "full", "all"])},
).map(lambda body: json.dumps(body).encode())
PARAMETERS = _objects(
    {
        "alpha": st.floats(0.1, 10),
        "A": st.just([[1.0, 0.0], [0.0, 1.0]]),
        "max_layers": st.integers(1, 99),
        "stop": st.sampled_from(["certified", "never"]),
        "tolerance": st.floats(0, 1),
        "include": st.lists(st.sampled_from(["limits", "trajectory"]), max_size=2),
    }
)
WISHES = _objects({"leaders": st.lists(st.integers(0, 9)), "assignment": st.just({"0": 1})})
HEADERS = b"application/json", b"application/x-npy; charset=utf-8", b"text/plain", b"application/json;charset"
ANSWERS = st.dictionaries(st.text(max_size=8), JSON_VALUES, max_size=5)

TARGETS = (
    Target("cloud in json", cloud_documents(), check_cloud),
    Target("cloud in npy", npy_files(), check_npy),
    Target("answer to json", ANSWERS, check_written, mutants=0),
    Target("classify request", CLASSIFY, partial(check_request, ClassifyRequest)),
    Target("dynamics parameters", PARAMETERS, partial(check_request, DynamicsParameters)),
    Target("control wish", WISHES, partial(check_request, ControlParameters)),
    Target("media type", st.sampled_from(HEADERS), check_media_type),
    Target("bundle card", CARDS, check_bundle),
    Target("text to explanation", texts(), check_text, mutants=0),
)
