"""Sentiment of texts with its exact reason: text -> tokens -> inference -> label, leaders, clusters, words.

    logit = bias + sum of cluster contributions = bias + sum of word contributions

is how the model decides, not an approximation. Words that the model does not know are no part of the cloud:
they are counted (`unknown`) and add nothing; a text without any known word is answered by the bias alone.
Knows nothing of HTTP, queues or how many texts should run together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from service.bundle import Bundle
from service.errors import BundleError, InvalidInput
from service.explanation import DECIMALS, Clusters, Outputs, cluster, describe, follow, resolve_tie
from service.runtime import Runtime, Session
from service.tokens import Tokens, Words

Explain = Literal["none", "leaders", "full"]
Array = NDArray[Any]

SCORES = 1 << 17  # token pairs of one inference on a CPU: half a megabyte, which a core keeps at hand
MAX_LENGTH = 2560  # words; what a card without max_length means
_INPUTS = {"tokens": "int64", "counts": "float", "detail": "bool"}
_EXPLAINED = ("logit", "contribution", "target", "size", "since")
_FULL = (*_EXPLAINED, "start", "end")


@dataclass(frozen=True)
class Batch:
    """The feeds of one inference: every text is a row of distinct tokens, padded with 0."""

    words: Sequence[Words]
    tokens: NDArray[np.int64]
    counts: NDArray[np.float32]


class Sentiment:
    """One model. Thread-safe."""

    def __init__(self, session: Session, tokens: Tokens, card: Mapping[str, Any]) -> None:
        self._session = session
        self._tokens = tokens
        self.labels: tuple[str, str] = _labels(card)
        self.bias = _bias(card)
        self.max_length = tokens.max_length

    @classmethod
    def load(cls, bundle: Bundle, runtime: Runtime) -> Sentiment:
        session = runtime.open(bundle.model)
        _check(bundle.name, session)
        max_length = bundle.card.get("max_length", MAX_LENGTH)
        return cls(session, Tokens(bundle.tokenizer or "", int(max_length)), bundle.card)

    def tokenise(self, text: str, *, truncate: bool = True) -> Words:
        """Empty text is refused, and a long one where `truncate` is off."""
        return self.tokenise_many((text,), truncate=truncate)[0]

    def tokenise_many(self, texts: Sequence[str], *, truncate: bool = True) -> list[Words]:
        """The same for many texts, faster than one by one."""
        return self._tokens.read(texts, truncate=truncate)

    def names(self, words: Words) -> list[str]:
        """The text's distinct tokens as they are spelt in the vocabulary."""
        spelt: list[str] = self._tokens.names[words.ids].tolist()
        return spelt

    def classify(
        self, batch: Sequence[Words], explain: Explain = "leaders", *, trajectory: bool = False
    ) -> list[dict[str, Any]]:
        """One answer a text, in one inference (and one more for a text in which tokens tie)."""
        if trajectory and explain != "full":
            raise InvalidInput('trajectory goes with "explain": "full"', param="trajectory")
        if not batch:
            return []
        feeds = _pad(batch)
        names = {"none": ("logit",), "leaders": _EXPLAINED, "full": _FULL}[explain]
        values = dict(zip(names, self._run(feeds, names), strict=True))
        answers = self._judge(batch, values["logit"])
        if explain != "none":
            self._explain(feeds, values, answers, explain)
        if trajectory:
            self._trace(feeds, answers)
        return answers

    def _run(self, feeds: Batch, outputs: Sequence[str]) -> list[Array]:
        """The cheap outputs, of a few texts at a time: as many as have scores that stay in the cache."""
        lengths = np.array([words.length for words in feeds.words])
        if self._session.provider != "cpu" or len(lengths) * feeds.tokens.shape[1] ** 2 <= SCORES:
            return self._infer(feeds, outputs)
        order = np.argsort(lengths, kind="stable")[::-1]
        whole: list[Array] = []
        at = 0
        while at < len(order):
            width = max(int(lengths[order[at]]), 1)
            rows = order[at : at + max(1, SCORES // width**2)]
            part = self._infer(Batch((), feeds.tokens[rows, :width], feeds.counts[rows, :width]), outputs)
            if not whole:  # the longest texts come first: their width is that of all
                whole = [np.zeros((len(order), *array.shape[1:]), array.dtype) for array in part]
            for all_rows, array in zip(whole, part, strict=True):
                if array.ndim == 1:
                    all_rows[rows] = array
                else:
                    all_rows[rows, :width] = array
            at += len(rows)
        return whole

    def _infer(self, feeds: Batch, outputs: Sequence[str], *, detail: bool = False) -> list[Array]:
        arrays: dict[str, Array] = {
            "tokens": feeds.tokens,
            "counts": feeds.counts,
            "detail": np.array(detail),
        }
        return self._session.run(arrays, outputs)

    def _judge(self, batch: Sequence[Words], logit: Array) -> list[dict[str, Any]]:
        """Label and probability, the part of an answer that needs no reason."""
        z = logit.astype(np.float64)
        probability = np.round(1 / (1 + np.exp(-z)), DECIMALS).tolist()
        negative, positive = self.labels
        answers = []
        for words, value, p in zip(batch, np.round(z, DECIMALS).tolist(), probability, strict=True):
            q = round(1 - p, DECIMALS)
            answers.append(
                {
                    "label": positive if value > 0 else negative,
                    "score": p if value > 0 else q,
                    "probs": {negative: q, positive: p},
                    "logit": value,
                    "bias": self.bias,
                    "tokens": words.tokens,
                    "unknown": words.unknown,
                    "truncated": words.truncated,
                }
            )
        return answers

    def _explain(
        self, feeds: Batch, values: Mapping[str, Array], answers: list[dict[str, Any]], explain: Explain
    ) -> None:
        outputs = Outputs(feeds.counts, *(values[name] for name in _EXPLAINED[1:]))
        root = follow(outputs.target)
        ties = self._resolve_ties(feeds, outputs, root)
        clusters = cluster(outputs, root)
        names = self._tokens.names[feeds.tokens]
        found = describe(outputs, clusters, ties, names, lambda b, i: feeds.words[b].spans(i))
        for b, (answer, explanation) in enumerate(zip(answers, found, strict=True)):
            answer |= explanation
            if explain == "full":
                answer["words"] = _words(b, feeds.words[b], names[b], clusters, values)

    def _resolve_ties(self, feeds: Batch, outputs: Outputs, root: Array) -> dict[int, tuple[int, ...]]:
        """Ties are rare: the texts that have some run once more, for the members of every C_i."""
        ties: dict[int, tuple[int, ...]] = {}
        tied = (outputs.size > 1) & (outputs.counts > 0)
        for b in np.flatnonzero(tied.any(axis=1)).tolist():
            n = feeds.words[b].length
            alone = Batch([feeds.words[b]], feeds.tokens[b : b + 1, :n], feeds.counts[b : b + 1, :n])
            (members,) = self._infer(alone, ("members",), detail=True)
            ties |= resolve_tie(root, members[0], b * outputs.width)
        return ties

    def _trace(self, feeds: Batch, answers: list[dict[str, Any]]) -> None:
        (layers,) = self._infer(feeds, ("trajectory",), detail=True)
        for b, (answer, words) in enumerate(zip(answers, feeds.words, strict=True)):
            answer["trajectory"] = _rounded(layers[:, b, words.reading_order()])


def _pad(batch: Sequence[Words]) -> Batch:
    lengths = np.array([words.length for words in batch])
    width = max(int(lengths.max()), 1)
    tokens = np.zeros((len(batch), width), dtype=np.int64)
    counts = np.zeros((len(batch), width), dtype=np.float32)
    there = np.arange(width) < lengths[:, None]
    tokens[there] = np.concatenate([words.ids for words in batch])
    counts[there] = np.concatenate([words.counts for words in batch])
    return Batch(batch, tokens, counts)


def _words(
    b: int,
    words: Words,
    names: Array,
    clusters: Clusters,
    values: Mapping[str, Array],
) -> list[dict[str, Any]]:
    """Every word of text b in the order in which they are first met."""
    width = values["size"].shape[1]
    contribution = np.round(values["contribution"][b].astype(np.float64), DECIMALS).tolist()
    leads = (values["size"][b] == 1) & (values["target"][b] == np.arange(width))
    start, end = _rounded(values["start"][b]), _rounded(values["end"][b])
    return [
        {
            "text": names[i],
            "spans": words.spans(i),
            "cluster": int(clusters.number[b * width + i]) - clusters.start[b],
            "leader": bool(leads[i]),
            "contribution": contribution[i],
            "start": start[i],
            "end": end[i],
        }
        for i in words.reading_order()
    ]


def _rounded(values: Array) -> Any:
    return np.round(values.astype(np.float64), DECIMALS).tolist()


def _check(name: str, session: Session) -> None:
    """A graph that is not the one this module feeds is refused when it is loaded."""
    inputs = {spec.name: spec.dtype for spec in session.inputs}
    if inputs != _INPUTS:
        raise BundleError(f"{name}: its graph takes {inputs}, expected {_INPUTS}", param="model.onnx")
    missing = {*_FULL, "trajectory", "members"} - {spec.name for spec in session.outputs}
    if missing:
        raise BundleError(f"{name}: its graph lacks the outputs {sorted(missing)}", param="model.onnx")


def _labels(card: Mapping[str, Any]) -> tuple[str, str]:
    labels = card.get("labels")
    if (
        not isinstance(labels, list)
        or len(labels) != 2
        or not all(isinstance(label, str) for label in labels)
    ):
        raise BundleError("card.json needs two labels, the negative one first", param="labels")
    return labels[0], labels[1]


def _bias(card: Mapping[str, Any]) -> float:
    try:
        return round(float(card["readout"]["bias"]), DECIMALS)
    except (KeyError, TypeError, ValueError):
        raise BundleError("card.json needs readout.bias (number)", param="readout") from None
