"""What people send, right and wrong, in the shares they send it, and what the right answer to each is.

The answers come from the same models in this process.
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
from tests.support.small import HEAD as MODEL
from tests.support.wire import NPY, npy, whole

REFUSALS = (429, 503, 504)  # overloaded, not ready, too late: no fault of the question
Judge = Callable[[bytes], str | None]  # why an answer of the wanted status is wrong, or None


@dataclass(frozen=True)
class Question:
    """A request as bytes, the statuses it may get, how its answer is judged; `leaves`: then hang up."""

    kind: str
    request: bytes
    statuses: tuple[int, ...]
    judge: Judge
    leaves: bool = False
    protocol: bool = False  # the Open Inference Protocol, whose refusals look different


Mix = list[tuple[float, list[Question]]]  # shares, and the questions of each kind


def prepare(models_dir: Path, seed: int = 0) -> Mix:
    """Questions to the models that are there; to those of sequences if there are any."""
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
            (7, [Question("caller who leaves", each.request, (200,), _accept, True) for each in short[:8]]),
            (10, _bad()),
            (4, [_get(path, 200) for path in ("/health", "/ready", "/models", "/info")]),
        ]


def _accept(body: bytes) -> None:
    return None


def _texts(local: Local, kind: str, texts: list[str], explain: Any) -> list[Question]:
    """Each is answered as it is alone, whoever else is asked for in the same run."""
    alone = [local.classify(text, explain=explain) for text in texts]
    return [
        Question(kind, _json("/classify", input=text, explain=explain), (200,), _equal([answer.document]))
        for text, answer in zip(texts, alone, strict=True)
    ]


def _batch(local: Local, texts: list[str]) -> Question:
    wanted = [answer.document for answer in local.classify(texts)]
    return Question("batch of texts", _json("/classify", input=texts), (200,), _equal(wanted))


def _tensor(local: Local, texts: list[str]) -> Question:
    tensor = {"name": "text", "datatype": "BYTES", "shape": [len(texts)], "data": texts}
    wanted = local.classify(texts, model=MODEL, explain="none")
    values = {"label": [each.label for each in wanted], "logit": [each.logit for each in wanted]}

    def judge(body: bytes) -> str | None:
        outputs = {each["name"]: each["data"] for each in json.loads(body)["outputs"]}
        return None if outputs | values == outputs else f"{outputs} instead of {values}"

    request = _json(f"/v2/models/{MODEL}/infer", inputs=[tensor])
    return Question("tensor of texts", request, (200,), judge, protocol=True)


def _sequences(local: Local, rng: random.Random, model: str) -> Question:
    sequences = [[[rng.randint(0, 5), rng.randint(0, 5)] for _ in range(1 + each)] for each in range(4)]
    wanted = [each.document for each in local.classify_sequences(model, sequences)]
    request = _json("/sequences/classify", model=model, sequences=sequences)
    return Question("sequences", request, (200,), _equal(wanted))


def _json(path: str, **body: object) -> bytes:
    return whole(json.dumps(body).encode(), path)


def _equal(wanted: list[dict[str, Any]]) -> Judge:
    """The answers are these to the last digit."""

    def judge(body: bytes) -> str | None:
        found = json.loads(body)["data"]
        return None if found == wanted else f"{found} instead of {wanted}"

    return judge


def _cloud(local: Local, rng: random.Random, n: int, d: int) -> Question:
    points = np.array([[rng.gauss(0, 1) for _ in range(d)] for _ in range(n)])
    wanted = local.dynamics(points)
    leaders = [leader.index for leader in wanted.leaders]

    def judge(body: bytes) -> str | None:
        answer = json.loads(body)
        same = answer["assignment"] == wanted.assignment and answer["status"] == wanted.status
        found = [leader["index"] for leader in answer["leaders"]]
        return None if same and found == leaders else f"other clusters: {found} instead of {leaders}"

    if n < 1000:
        return Question("cloud", _json("/dynamics", points=points.tolist()), (200,), judge)
    return Question("large cloud", whole(npy(points), "/dynamics", NPY), (200,), judge)


def _bad() -> list[Question]:
    deep = b'{"input": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    return [
        _refused("broken json", whole(b'{"input": '), 400),
        _refused("deep nesting", whole(deep), 400, 422),
        _refused("no encoding", whole(b'{"input": "\xff\xfe"}'), 400),
        _refused("lone surrogate", whole(b'{"input": "\\ud800"}'), 400, 422),
        _refused("empty text", whole(b'{"input": " "}'), 422),
        _refused("unknown model", whole(b'{"input": "a", "model": "none"}'), 404),
        _refused("nan", whole(b'{"points": [[NaN, 1]]}', "/dynamics"), 422),
        _refused("1e400", whole(b'{"points": [[1e400, 1]]}', "/dynamics"), 422),
        _refused("ragged", whole(b'{"points": [[1, 2], [1]]}', "/dynamics"), 422),
        _refused("no npy", whole(b"\x93NUMPY", "/dynamics", NPY), 400),
        _refused("media type", whole(b"{}", kind=b"text/html"), 415),
        _refused("unknown route", whole(b"{}", "/classifies"), 404),
        _get("/classify", 405),
    ]


def _refused(kind: str, request: bytes, *statuses: int) -> Question:
    return Question(f"bad: {kind}", request, statuses, _accept)


def _get(path: str, status: int) -> Question:
    return Question(
        f"get {path}", f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode(), (status,), _accept
    )
