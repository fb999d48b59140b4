"""The exact construction: the blocks that random labels need, and the time to build and to answer.

    python -m benchmarks.exact

A bundle is written only if its graph classifies every sequence correctly; here they are classified again with
noise.
"""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.record import Record, argument_parser, run_times
from model_export.exact.command import build_classifier, write_verified
from model_export.exact.data import make_examples
from service.runtime.bundle import read_bundle
from service.runtime.session import Runtime
from service.sequences import SequenceClassifier

Rng = np.random.Generator
Points = NDArray[np.float64]
Family = Callable[[Rng, int, int], list[Points]]
LABELS = ["wine", "rose", 7]
REPEATS = 5


def random(rng: Rng, N: int, d: int) -> list[Points]:
    return [rng.normal(size=(rng.integers(1, 20), d)) for _ in range(N)]


def overlapping(rng: Rng, N: int, d: int) -> list[Points]:
    """Draw sequences of few distinct tokens."""
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
    """Draw sequences of the same four tokens, of which only the shares differ."""
    tokens = rng.normal(size=(4, d))
    return [np.repeat(tokens, rng.integers(1, 12, 4), axis=0) for _ in range(N)]


FAMILIES: list[Family] = [
    random, overlapping, nested_chain, leave_one_out, power_set, integer_grid, same_support,
]  # fmt: skip


def labelled(sequences: list[Points], rng: Rng, dtype: str = "float64") -> list[dict[str, Any]]:
    """Return rows with random labels; rows with the same measure have the same label."""
    label_of: dict[bytes, Any] = {}
    rows = []
    for tokens in sequences:
        distinct, count = np.unique(tokens.astype(dtype), axis=0, return_counts=True)
        key = distinct.tobytes() + (count // np.gcd.reduce(count)).tobytes()
        label = label_of.setdefault(key, LABELS[rng.integers(len(LABELS))])
        rows.append({"sequence": tokens, "label": label})
    return rows


def main() -> None:
    quick = argument_parser(__doc__).parse_args().quick
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
            verified = write_verified(
                built, Path(folder) / "model", description="a benchmark", license="none"
            )
            model = SequenceClassifier.load(read_bundle(Path(folder) / "model"), Runtime("cpu", 1))
        case = {"family": family.__name__.replace("_", " "), "d": d, "N": N}
        figures: dict[str, list[float]] = {
            "splits": [built.model.n_splits],
            "blocks": [len(built.model.blocks)],
            "wrong under noise": [wrong_under_noise(model, sequences, rng)],
            "radius": [verified.radius or float("inf")],
            "s to construct": [built.seconds],
            "ms to answer one": _milliseconds(model, sequences[:1]),
            "ms to answer 32": _milliseconds(model, sequences[:32]),
        }
        for subject, samples in figures.items():
            table.add(subject, case, samples)
    record.write(quick=quick)


def wrong_under_noise(model: SequenceClassifier, sequences: list[Points], rng: Rng) -> int:
    """Return how many labels change when every token moves by 99.9 % of the margin of its sequence."""
    answers, moved = model.classify(sequences), []
    for tokens, answer in zip(sequences, answers, strict=True):
        direction = rng.normal(size=tokens.shape)
        margin = 1.0 if answer["margin"] is None else answer["margin"]
        moved.append(tokens + 0.999 * margin * direction / np.linalg.norm(direction, axis=1, keepdims=True))
    return sum(a["label"] != b["label"] for a, b in zip(answers, model.classify(moved), strict=True))


def _milliseconds(model: SequenceClassifier, sequences: list[Points]) -> list[float]:
    return [1e3 * seconds for seconds in run_times(lambda: model.classify(sequences), REPEATS)]


if __name__ == "__main__":
    main()
