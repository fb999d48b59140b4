"""Classify sequences of points with an exact classifier: a bundle of kind "sequences".

Batches sequences of different lengths, and reads the graph's answer: label, margin, leader. The graph's names
are those of model_export/exact/graph.py, which says what they mean.
"""

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from service.errors import BundleError, InvalidInput
from service.runtime.batcher import group_by_length
from service.runtime.bundle import Bundle
from service.runtime.session import Graph, Runtime, Session, TensorSpec

Points = NDArray[np.floating[Any]]
Label = str | int | float | bool

SEQUENCE_OUTPUTS = ("output", "margin", "leader")
FLOAT_TYPES = {"double": np.float64, "float": np.float32}
MAX_PADDED_TOKENS = 1 << 15  # of one run, whose arrays then fit the caches


class SequenceClassifier:
    """A served model. `labels` is empty if it was made for vector targets: then it answers with vectors."""

    def __init__(
        self, graph: Graph, tokens: TensorSpec, labels: Sequence[Label], *, collapses: bool, width: int
    ) -> None:
        self._graph = graph
        self._dtype = FLOAT_TYPES[tokens.dtype]
        self._collapses = collapses  # all tokens end at one output, which one of them leads to
        self._width = width
        self.labels = tuple(labels)
        self.dimension = int(tokens.shape[2] or 0)

    @classmethod
    def load(cls, bundle: Bundle, runtime: Runtime) -> Self:
        """Load the classifier of a bundle."""
        session = runtime.open(bundle.model)
        _check_graph(bundle, session)
        labels, outputs = bundle.card.get("labels"), bundle.card.get("outputs")
        if not isinstance(labels, list):
            raise BundleError(f"{bundle.name}: card.json needs labels (list)", param="labels")
        if not isinstance(outputs, dict) or not {"width", "per_sequence"} <= outputs.keys():
            problem = f"{bundle.name}: card.json needs outputs (width and per_sequence)"
            raise BundleError(problem, param="outputs")
        graph = runtime.graph(bundle.model)
        return cls(
            graph,
            session.inputs[0],
            labels,
            collapses=outputs["per_sequence"] == 1,
            width=int(outputs["width"]),
        )

    def classify(self, sequences: Sequence[Points]) -> list[dict[str, Any]]:
        """Return label, margin and leader of each sequence, or its output where there are no labels.

        The answer is the same while every token moves by less than `margin` (None: it cannot change).
        """
        tokens = [self._check(points, f"sequences[{i}]") for i, points in enumerate(sequences)]
        answers: list[dict[str, Any]] = [{} for _ in tokens]
        for batch in group_by_length(list(map(len, tokens)), MAX_PADDED_TOKENS):
            output, margin, leader = self._run([tokens[i] for i in batch])
            for row, i in enumerate(batch):
                answers[i] = self._answer(output[row, : len(tokens[i])], margin[row], leader[row])
        return answers

    def _check(self, points: Points, param: str) -> Points:
        if points.ndim != 2 or len(points) == 0:
            raise InvalidInput(f"{param} is not a non-empty list of points", param=param)
        if points.shape[1] != self.dimension:
            problem = f"the points of {param} have {points.shape[1]} numbers, expected {self.dimension}"
            raise InvalidInput(problem, param=param)
        with np.errstate(over="ignore"):
            tokens = points.astype(self._dtype)
        if not np.isfinite(tokens).all():
            field = f"{param}[{int(np.flatnonzero(~np.isfinite(tokens).all(axis=1))[0])}]"
            raise InvalidInput(f"{field} holds a number that is not finite", param=field)
        return tokens

    def _run(self, tokens: list[Points]) -> list[NDArray[Any]]:
        longest = max(map(len, tokens))
        padded = np.zeros((len(tokens), longest, self.dimension), self._dtype)
        mask = np.zeros((len(tokens), longest), bool)
        for row, points in enumerate(tokens):
            padded[row, : len(points)] = points
            mask[row, : len(points)] = True
        return self._graph.session.run({"tokens": padded, "mask": mask}, SEQUENCE_OUTPUTS)

    def _answer(self, output: Points, margin: Any, leader: Any) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "label": None,
            "margin": float(margin) if math.isfinite(margin) else None,
            "leader": int(leader) if self._collapses else None,
        }
        if self.labels:
            code = int(np.clip(np.rint(output[0, 1]), 0, len(self.labels) - 1))
            answer["label"] = self.labels[code]
        else:
            answer["output"] = output[: 1 if self._collapses else None, : self._width].tolist()
        return answer


def _check_graph(bundle: Bundle, session: Session) -> None:
    names = tuple(spec.name for spec in session.inputs), tuple(spec.name for spec in session.outputs)
    if names != (("tokens", "mask"), SEQUENCE_OUTPUTS):
        expected = f"not tokens and mask to {SEQUENCE_OUTPUTS}"
        problem = f"{bundle.name}: model.onnx maps {names[0]} to {names[1]}, {expected}"
        raise BundleError(problem, param="model.onnx")
    tokens = session.inputs[0]
    if tokens.dtype not in FLOAT_TYPES or len(tokens.shape) != 3 or not tokens.shape[2]:
        problem = f"tokens must be float or double [B, n, d], not {tokens.dtype} {tokens.shape}"
        raise BundleError(f"{bundle.name}: {problem}", param="model.onnx")
