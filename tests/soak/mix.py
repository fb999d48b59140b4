"""The mix of valid and invalid requests that callers send, with the right answer to each.

The right answers are computed with the same models in this process.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.reviews import reviews
from hardmax import Local
from service.settings import Settings
from tests.support.raw_http import NPY, npy, post_request
from tests.support.small_models import MODEL

REFUSAL_STATUSES = (429, 503, 504)  # overloaded, not ready, too late: no fault of the request
Check = Callable[[bytes], str | None]  # says why an answer with the expected status is wrong, or None


@dataclass(frozen=True)
class Scenario:
    """A request as bytes, the statuses it may get, and the check of its answer."""

    kind: str
    request: bytes
    statuses: tuple[int, ...]
    check: Check
    disconnects: bool = False  # at once, without waiting for the answer
    protocol: bool = False  # the Open Inference Protocol, whose errors have another shape


Mix = list[tuple[float, list[Scenario]]]  # the share and the scenarios of each kind


def build_mix(models_dir: Path, seed: int = 0) -> Mix:
    """Build requests to the models of a folder, also to those of sequences if there are any."""
    rng = random.Random(seed)
    with Local(Settings(models_dir=models_dir, pretrained_models=False)) as local:
        short = _texts(local, "short text", reviews(22, 256), "leaders")
        exact = [card.name for card in local.models() if card.kind == "sequences"]
        return [
            (4, [_tensor(local, reviews(22, 3, seed)) for seed in range(8)]),
            *((4, [_sequences(local, rng, name) for _ in range(6)]) for name in exact),
            (50, short),
            (8, _texts(local, "long text", reviews(800, 6), "none")),
            (4, _texts(local, "whole explanation", reviews(60, 6), "full")),
            (8, [_batch(local, reviews(22, 32, seed)) for seed in range(4)]),
            (8, [_cloud(local, rng, 60, 2) for _ in range(6)]),
            (1, [_cloud(local, rng, 3000, 3) for _ in range(2)]),
            (7, [Scenario("caller who leaves", text.request, (200,), _accept, True) for text in short[:8]]),
            (10, _invalid()),
            (4, [_get(path, 200) for path in ("/health", "/ready", "/models", "/info")]),
        ]


def _accept(body: bytes) -> None:
    return None


def _texts(local: Local, kind: str, texts: list[str], explain: Any) -> list[Scenario]:
    """Expect the answer that each text gets alone, whatever else is in its batch."""
    answers = [local.classify(text, explain=explain) for text in texts]
    return [
        Scenario(kind, _json("/classify", input=text, explain=explain), (200,), _equal([answer.document]))
        for text, answer in zip(texts, answers, strict=True)
    ]


def _batch(local: Local, texts: list[str]) -> Scenario:
    expected = [answer.document for answer in local.classify(texts)]
    return Scenario("batch of texts", _json("/classify", input=texts), (200,), _equal(expected))


def _tensor(local: Local, texts: list[str]) -> Scenario:
    tensor = {"name": "text", "datatype": "BYTES", "shape": [len(texts)], "data": texts}
    answers = local.classify(texts, model=MODEL, explain="none")
    expected = {name: [getattr(answer, name) for answer in answers] for name in ("label", "logit")}

    def check(body: bytes) -> str | None:
        outputs = {output["name"]: output["data"] for output in json.loads(body)["outputs"]}
        return None if outputs | expected == outputs else f"{outputs} instead of {expected}"

    request = _json(f"/v2/models/{MODEL}/infer", inputs=[tensor])
    return Scenario("tensor of texts", request, (200,), check, protocol=True)


def _sequences(local: Local, rng: random.Random, model: str) -> Scenario:
    sequences = [[[rng.randint(0, 5), rng.randint(0, 5)] for _ in range(length)] for length in range(1, 5)]
    expected = [answer.document for answer in local.classify_sequences(model, sequences)]
    request = _json("/sequences/classify", model=model, sequences=sequences)
    return Scenario("sequences", request, (200,), _equal(expected))


def _json(path: str, **body: object) -> bytes:
    return post_request(json.dumps(body).encode(), path)


def _equal(expected: list[dict[str, Any]]) -> Check:
    """Check that the answers are these to the last digit."""

    def check(body: bytes) -> str | None:
        answers = json.loads(body)["data"]
        return None if answers == expected else f"{answers} instead of {expected}"

    return check


def _cloud(local: Local, rng: random.Random, n: int, d: int) -> Scenario:
    points = np.array([[rng.gauss(0, 1) for _ in range(d)] for _ in range(n)])
    answer = local.dynamics(points).document
    expected = {name: answer[name] for name in ("assignment", "status", "leaders")}

    def check(body: bytes) -> str | None:
        document = json.loads(body)
        return None if document | expected == document else f"other clusters: {document['leaders']}"

    if n < 1000:
        return Scenario("cloud", _json("/dynamics", points=points.tolist()), (200,), check)
    return Scenario("large cloud", post_request(npy(points), "/dynamics", NPY), (200,), check)


def _invalid() -> list[Scenario]:
    deep = b'{"input": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    return [
        _refused("broken json", post_request(b'{"input": '), 400),
        _refused("deep nesting", post_request(deep), 400, 422),
        _refused("no encoding", post_request(b'{"input": "\xff\xfe"}'), 400),
        _refused("unknown model", post_request(b'{"input": "a", "model": "none"}'), 404),
        _refused("nan", post_request(b'{"points": [[NaN, 1]]}', "/dynamics"), 422),
        _refused("no npy", post_request(b"\x93NUMPY", "/dynamics", NPY), 400),
        _get("/classify", 405),
    ]


def _refused(kind: str, request: bytes, *statuses: int) -> Scenario:
    return Scenario(f"bad: {kind}", request, statuses, _accept)


def _get(path: str, status: int) -> Scenario:
    request = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()
    return Scenario(f"get {path}", request, (status,), _accept)
