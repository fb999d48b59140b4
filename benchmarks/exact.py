"""The exact built: how many blocks random labels take, and how long it is in the making.

    python -m benchmarks.exact

Every sequence of every family is asked of the exported graph before a bundle is written, which is refused if
one is wrong; here all are asked again with noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.record import Record, arguments
from model_export.exact.command import build_classifier, write_verified
from model_export.exact.data import make_examples
from service.runtime.bundle import read_bundle
from service.runtime.session import Runtime
from service.sequences.classifier import SequenceClassifier

Rng = np.random.Generator
Points = NDArray[np.float64]
Family = Callable[[Rng, int, int], list[Points]]
LABELS = ["wine", "rose", 7]
ANSWERS = 5


def random(rng: Rng, N: int, d: int) -> list[Points]:
    return [rng.normal(size=(rng.integers(1, 20), d)) for _ in range(N)]


def overlapping(rng: Rng, N: int, d: int) -> list[Points]:
    """Few tokens, many repeats."""
    vocabulary = rng.normal(size=(max(6, N // 3), d))
    return [vocabulary[rng.integers(0, len(vocabulary), rng.integers(1, 20))] for _ in range(N)]


def nested_chain(rng: Rng, N: int, d: int) -> list[Points]:
    tokens = rng.normal(size=(N, d))
    return [tokens[: k + 1] for k in range(N)]


def leave_one_out(rng: Rng, N: int, d: int) -> list[Points]:
    tokens = rng.normal(size=(N, d))
    return [np.delete(tokens, k, axis=0) for k in range(N)]


def power_set(rng: Rng, N: int, d: int) -> list[Points]:
    tokens = rng.normal(size=(int(np.log2(N)) + 1, d))
    return [tokens[[i for i in range(len(tokens)) if s >> i & 1]] for s in range(1, N + 1)]


def integer_grid(rng: Rng, N: int, d: int) -> list[Points]:
    return [rng.integers(0, 4, (rng.integers(1, 12), d)).astype(float) for _ in range(N)]


def same_support(rng: Rng, N: int, d: int) -> list[Points]:
    """Only the shares of the same four tokens differ."""
    tokens = rng.normal(size=(4, d))
    return [np.repeat(tokens, rng.integers(1, 12, 4), axis=0) for _ in range(N)]


FAMILIES: list[Family] = [
    random, overlapping, nested_chain, leave_one_out, power_set, integer_grid, same_support,
]  # fmt: skip


def labelled(sequences: list[Points], rng: Rng, dtype: str = "float64") -> list[dict[str, Any]]:
    """Rows with random labels; what has the measure of an earlier row has its label."""
    known: dict[bytes, Any] = {}
    rows = []
    for tokens in sequences:
        distinct, count = np.unique(tokens.astype(dtype), axis=0, return_counts=True)
        key = distinct.tobytes() + (count // np.gcd.reduce(count)).tobytes()
        label = known.setdefault(key, LABELS[rng.integers(len(LABELS))])
        rows.append({"sequence": tokens, "label": label})
    return rows


def main() -> None:
    quick = arguments(__doc__).parse_args().quick
    record = Record("exact", "The exact construction", ["numpy", "onnxruntime"])
    record.note("Three labels at random; a proof says 3 N blocks at most. Answers take one thread.")
    record.note("Every token of a sequence is moved at random by 99.9 % of the margin that its answer names.")
    table = record.table("Size and time of the construction")
    for family, N, d in [*((family, 200, 3) for family in FAMILIES), (random, 2_000, 8)]:
        N = N // 10 if quick else N
        rng = np.random.default_rng([d, N])
        sequences = family(rng, N, d)
        built = build_classifier(make_examples(labelled(sequences, rng)))
        with TemporaryDirectory() as folder:
            found = write_verified(built, Path(folder) / "model", description="a benchmark", license="none")
            model = SequenceClassifier.load(read_bundle(Path(folder) / "model"), Runtime("cpu", 1))
        case = {"family": family.__name__.replace("_", " "), "d": d, "N": N}
        figures: dict[str, list[float]] = {
            "splits": [built.model.n_splits],
            "blocks": [len(built.model.blocks)],
            "wrong under noise": [wrong_under_noise(model, sequences, rng)],
            "radius": [found.radius or float("inf")],
            "s to construct": [built.seconds],
            "ms to answer one": [_milliseconds(model, sequences[:1]) for _ in range(ANSWERS)],
            "ms to answer 32": [_milliseconds(model, sequences[:32]) for _ in range(ANSWERS)],
        }
        for subject, samples in figures.items():
            table.add(subject, case, samples)
    record.write(quick=quick)


def wrong_under_noise(model: SequenceClassifier, sequences: list[Points], rng: Rng) -> int:
    """How many labels change when every token moves by nearly as much as its sequence stands."""
    answers, moved = model.classify(sequences), []
    for tokens, answer in zip(sequences, answers, strict=True):
        way = rng.normal(size=tokens.shape)
        margin = 1.0 if answer["margin"] is None else answer["margin"]
        moved.append(tokens + 0.999 * margin * way / np.linalg.norm(way, axis=1, keepdims=True))
    after = model.classify(moved)
    return sum(a["label"] != b["label"] for a, b in zip(answers, after, strict=True))


def _milliseconds(model: SequenceClassifier, sequences: list[Points]) -> float:
    began = time.perf_counter()
    model.classify(sequences)
    return 1e3 * (time.perf_counter() - began)


if __name__ == "__main__":
    main()
