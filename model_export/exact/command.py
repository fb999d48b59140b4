"""`hardmax-export exact`: construct a transformer that classifies every one of some labelled sequences.

The command reads the data, constructs and exports the model, and classifies every sequence with the code of
the service. A bundle that misclassifies a sequence is not written.
"""

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hardmax.formatting import printable
from model_export.bundle import write_bundle
from model_export.exact.blocks import Transformer, build_transformer
from model_export.exact.data import Examples, ImpossibleData, compute_measures, read_examples, with_positions
from model_export.exact.graph import to_onnx
from service.runtime.session import Runtime
from service.sequences import SequenceClassifier

TARGET_TOLERANCE = {"float64": 1e-6, "float32": 1e-2}  # of the error, relative to the largest target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    data = 'JSON lines {"sequence": [[..],..], "label": ..}, or "target": [..], or "targets": [[..],..]'
    parser.add_argument("--data", type=Path, required=True, help=data)
    parser.add_argument(
        "--out", type=Path, required=True, help="the bundle's folder: its name is the model's"
    )
    parser.add_argument("--positions", action="store_true", help="the order of the tokens counts")
    parser.add_argument(
        "--dtype", choices=("float64", "float32"), default="float64", help="precision (default: float64)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the directions tried for the codes")
    parser.add_argument("--description", default="", help="text for the card")
    parser.add_argument("--license", "--licence", default="unknown", help="license of the data, for the card")


def run(arguments: argparse.Namespace) -> int:
    """Construct, check and write a classifier; return 0."""
    examples = read_examples(arguments.data, arguments.dtype)
    built = build_classifier(
        examples, dtype=arguments.dtype, positions=arguments.positions, seed=arguments.seed
    )
    print(printable(describe(built)), flush=True)
    description = arguments.description or f"Every sequence of {arguments.data.name}, classified exactly."
    print(write_verified(built, arguments.out.resolve(), description=description, license=arguments.license))
    print(printable(f"written      {arguments.out}"))
    return 0


@dataclass(frozen=True)
class BuiltClassifier:
    """A transformer, its examples and the options of its construction."""

    model: Transformer
    examples: Examples
    dtype: str
    positions: bool
    seed: int
    seconds: float

    @property
    def bound(self) -> int:
        """The maximum number of blocks: 3N, or 2N - 1 + outputs if sequences have several outputs."""
        N = len(self.examples.points)
        if self.examples.has_token_outputs:
            return 2 * N - 1 + sum(map(len, self.examples.outputs))
        return 3 * N


def build_classifier(
    examples: Examples, *, dtype: str = "float64", positions: bool = False, seed: int = 0
) -> BuiltClassifier:
    """Construct the exact classifier of some examples."""
    start_s = time.perf_counter()
    points = with_positions(examples.points) if positions else examples.points
    model = build_transformer(examples, compute_measures(examples, points), seed=seed)
    return BuiltClassifier(model, examples, dtype, positions, seed, time.perf_counter() - start_s)


def describe(built: BuiltClassifier) -> str:
    """Return a description of what was built, with the bounds of the theorem."""
    L, D, N = len(built.model.blocks), built.model.dimension, len(built.examples.points)
    kind = "2N - 1 + outputs" if built.examples.has_token_outputs else "3N"
    lengths = [len(points) for points in built.examples.points]
    outputs = f"{len(built.examples.labels)} labels" if built.examples.labels else "vector targets"
    tokens = f"{min(lengths)} to {max(lengths)} tokens in R^{built.examples.dimension}"
    return "\n".join(
        [
            f"sequences    N = {N}, {tokens}, {outputs}",
            f"blocks       L = {L}, bound {kind} = {built.bound}; {built.model.n_splits} splits",
            f"parameters   {built.model.n_parameters:,} = (10 * {D} + 5) * {L}",
            f"constructed  in {built.seconds:.2f} s",
        ]
    )


@dataclass(frozen=True)
class Verification:
    """The results of the exported graph for all sequences."""

    n_sequences: int
    n_errors: int
    max_error: float  # of a coordinate of a target
    radius: float | None  # all tokens may move by less at once; None: by any distance
    first_error: str  # the name of a misclassified sequence

    def __str__(self) -> str:
        n_correct = self.n_sequences - self.n_errors
        radius = "any noise" if self.radius is None else f"{self.radius:.3g} (each token, Euclidean distance)"
        share = f"{100 * n_correct / self.n_sequences:.6g} % ({n_correct} of {self.n_sequences}"
        lines = [f"accuracy     {share}, answered by the exported graph)", f"robust to    {radius}"]
        return "\n".join([*lines, f"worst error  {self.max_error:.1e}"] if self.max_error else lines)


def verify(built: BuiltClassifier, model: SequenceClassifier) -> Verification:
    """Classify every sequence with the model that will be served."""
    examples = built.examples
    answers = model.classify(examples.points)
    largest = max(float(np.abs(output).max()) for output in examples.outputs)
    errors = np.array([_error(examples, j, answer) for j, answer in enumerate(answers)])
    failed = np.flatnonzero(~(errors <= TARGET_TOLERANCE[built.dtype] * max(largest, 1e-300)))
    margins = [answer["margin"] for answer in answers if answer["margin"] is not None]
    return Verification(
        n_sequences=len(answers),
        n_errors=len(failed),
        max_error=float(errors.max()),
        radius=min(margins) if margins else None,
        first_error=examples.names[failed[0]] if len(failed) else "",
    )


def _error(examples: Examples, j: int, answer: dict[str, Any]) -> float:
    """Return the Hausdorff distance, in the maximum norm, between the expected and the actual outputs."""
    if examples.labels:
        return 0.0 if answer["label"] == examples.labels[int(examples.outputs[j][0, 1])] else np.inf
    distances = np.abs(np.array(answer["output"])[:, None] - examples.outputs[j][None]).max(axis=-1)
    return float(max(distances.min(axis=0).max(), distances.min(axis=1).max()))


def write_verified(built: BuiltClassifier, folder: Path, *, description: str, license: str) -> Verification:
    """Write the bundle if the code of the service gives the expected output for every sequence."""
    graph = to_onnx(built.model, built.dtype, built.examples.dimension, positions=built.positions)
    card = {"name": folder.name, "description": description, "license": license, **card_fields(built)}
    with tempfile.TemporaryDirectory() as draft:
        bundle = write_bundle(Path(draft), "sequences", card, graph)
        verification = verify(built, SequenceClassifier.load(bundle, Runtime("cpu")))
    if verification.n_errors:
        raise ImpossibleData(f"not written: wrong about {verification.first_error}\n{verification}")
    figures = {"radius": verification.radius, "largest_error": verification.max_error}
    card["figures"] |= {"accuracy": 1.0, **figures}
    write_bundle(folder.parent, "sequences", card, graph)
    return verification


def card_fields(built: BuiltClassifier) -> dict[str, Any]:
    """Return the fields of the card other than name and description."""
    model, examples = built.model, built.examples
    return {
        "seed": built.seed,
        "layers": len(model.blocks),
        "dimension": examples.dimension,
        "labels": list(examples.labels),
        "outputs": {
            "width": int(examples.outputs[0].shape[1]),
            "per_sequence": max(map(len, examples.outputs)),
        },
        "positions": built.positions,
        "dtype": built.dtype,
        "data": {"sequences": len(examples.points), "tokens": sum(map(len, examples.points))},
        "figures": {
            "blocks_bound": built.bound,
            "parameters": model.n_parameters,
            "splits": model.n_splits,
            "state_dimension": model.dimension,
        },
    }
