"""Texts to labels with the exact reason: read, run, add up.

    logit = bias + sum of cluster contributions = bias + sum of word contributions

is how the model decides, not an approximation. All of these are counted in units of 1e-7, and the logit is
their sum: printed numbers add up to the last digit, and no answer depends on the texts that it was computed
with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from service.engine.batching import by_length
from service.engine.bundle import Bundle
from service.engine.runtime import Runtime, Session
from service.errors import BundleError, InvalidInput
from service.schemas.texts import Explain, Spans
from service.texts.explanation import UNITS, Cloud, Explanation, Ints, values_of
from service.texts.reader import ENDINGS, MARKS, MOST, PAD, SPECIAL, UNKNOWN, Lists, Reader, Tokens

Array = NDArray[Any]

PLACES = {"cpu": 2560, "cuda": 1 << 16}  # of one inference: half as many or twice as many take longer
NOTHING_KNOWN, EVEN = "nothing known", "even"
LISTS = ("words", "names", "sometimes", "groups")  # of words.json
_INPUTS = {"tokens": "int64"}
_JUDGED = ("bias", "contribution")
_EXPLAINED = (*_JUDGED, "target", "since", "negator")
_FULL = (*_EXPLAINED, "states")


class Sentiment:
    """One model. Thread-safe."""

    def __init__(self, session: Session, reader: Reader, card: Mapping[str, Any]) -> None:
        self._session = session
        self._reader = reader
        self.labels = _labels(card)
        self.max_length, self._even, self._window = _numbers(card)
        self._guessed = np.zeros(len(reader.words), bool)
        self._guessed[[UNKNOWN, *range(len(SPECIAL) - len(ENDINGS), len(SPECIAL))]] = True
        self._tells = np.array([i >= len(SPECIAL) and w not in MARKS for i, w in enumerate(reader.words)])

    @classmethod
    def load(cls, bundle: Bundle, runtime: Runtime) -> Sentiment:
        session = runtime.open(bundle.model)
        _check(bundle.name, session)
        return cls(session, Reader(_lists(bundle)), bundle.card)

    def tokenise(self, text: str) -> Tokens:
        return self.tokenise_many((text,))[0]

    def tokenise_many(self, texts: Sequence[str]) -> list[Tokens]:
        """What is read of each text. Empty text is refused."""
        for i, text in enumerate(texts):
            if not text or text.isspace():
                raise InvalidInput("the text is empty", param=f"input[{i}]")
            try:
                text.encode()
            except UnicodeEncodeError:
                problem = "the text holds half a character (a lone surrogate)"
                raise InvalidInput(problem, param=f"input[{i}]") from None
        return self._reader.read_all(texts, self.max_length)

    def classify(
        self,
        texts: Sequence[Tokens],
        explain: Explain = "leaders",
        *,
        trajectory: bool = False,
        spans: Spans = "codepoints",
    ) -> list[dict[str, Any]]:
        """One answer a text. Texts of similar length run together, a few at a time."""
        if trajectory and explain != "full":
            raise InvalidInput('trajectory goes with "explain": "full"', param="trajectory")
        if not texts:
            return []
        answers: list[dict[str, Any]] = [{}] * len(texts)
        for together in by_length(list(map(len, texts)), PLACES[self._session.provider]):
            found = self._answer([texts[i] for i in together], explain, trajectory, spans)
            for i, answer in zip(together, found, strict=True):
                answers[i] = answer
        return answers

    def _answer(
        self, texts: Sequence[Tokens], explain: Explain, trajectory: bool, spans: Spans
    ) -> list[dict[str, Any]]:
        """The answers to texts that run together."""
        ids = _pad(texts)
        outputs = {"none": _JUDGED, "leaders": _EXPLAINED, "full": _FULL}[explain]
        values = dict(zip(outputs, self._session.run({"tokens": ids}, outputs), strict=True))
        bias, contribution = _units(values["bias"].T), _units(values["contribution"].swapaxes(0, 1))
        answers = self._judge(texts, ids, bias, bias + contribution.sum(axis=2))
        if explain == "none":
            return answers
        (there,) = ids.ravel().nonzero()
        target = values["target"].take(there)
        if "states" not in values and (target < 0).any():
            (values["states"],) = self._session.run({"tokens": ids}, ("states",))
        cloud = Cloud(
            texts=texts,
            bounds=np.array([0, *accumulate(map(len, texts))]),
            text=there // ids.shape[1],
            ids=ids.take(there),
            contribution=contribution.reshape(len(bias), -1).take(there, axis=1),
            target=target,
            since=values["since"].take(there),
            negator=values["negator"].take(there),
            states=values.get("states"),
        )
        explanation = Explanation(cloud, self.labels, self._reader.words, self._window, spans)
        explanation.tell_leaders(answers)
        if explain == "full":
            explanation.tell_words(answers)
        if trajectory:
            explanation.tell_trajectory(answers)
        return answers

    def _judge(self, texts: Sequence[Tokens], ids: Ints, bias: Ints, logit: Ints) -> list[dict[str, Any]]:
        """Label and probabilities, the part of an answer that needs no reason. bias and logit [C, B]."""
        columns = zip(
            texts,
            (logit.T / UNITS).tolist(),
            values_of(logit, self.labels),
            values_of(bias, self.labels),
            self._guessed[ids].sum(axis=1).tolist(),
            self._tells[ids].sum(axis=1).tolist(),
            strict=True,
        )
        answers = []
        for tokens, logits, logit_of, bias_of, guessed, tells in columns:
            probs = self._probabilities(logits)
            first, second = sorted(probs, key=probs.__getitem__, reverse=True)[:2]
            undecided = NOTHING_KNOWN if not tells else None
            if undecided is None and probs[first] - probs[second] < 2 * self._even:
                undecided = EVEN
            answers.append(
                {
                    "label": first,
                    "score": probs[first],
                    "probs": probs,
                    "undecided": undecided,
                    "logit": logit_of,
                    "bias": bias_of,
                    "tokens": len(tokens),
                    "unknown": guessed,
                    "truncated": tokens.truncated,
                }
            )
        return answers

    def _probabilities(self, logits: Sequence[float]) -> dict[str, float]:
        """By label; the numbers as printed sum to one."""
        if len(logits) == 1:
            p = round((1 + math.tanh(logits[0] / 2)) / 2, 7)
            return {self.labels[0]: round(1 - p, 7), self.labels[1]: p}
        largest = max(logits)
        power = [math.exp(logit - largest) for logit in logits]
        parts = [round(UNITS * each / sum(power)) for each in power]
        parts[parts.index(max(parts))] += UNITS - sum(parts)
        return {label: part / UNITS for label, part in zip(self.labels, parts, strict=True)}


def _units(values: Array) -> Ints:
    return np.rint(np.multiply(values, UNITS, dtype=np.float64)).astype(np.int64)


def _pad(texts: Sequence[Tokens]) -> Ints:
    """The ids [B, N], PAD behind each text. N is 2 at least: the graph asks for it."""
    ids = np.full((len(texts), max(2, *map(len, texts))), PAD, np.int64)
    for row, tokens in zip(ids, texts, strict=True):
        row[: len(tokens)] = tokens.ids
    return ids


def _lists(bundle: Bundle) -> Lists:
    try:
        held = orjson.loads(bundle.words or "")
    except ValueError as damage:
        raise BundleError(f"{bundle.name}: words.json is not JSON: {damage}", param="words.json") from None
    lists: dict[str, Any] = {name: held.get(name) if isinstance(held, dict) else None for name in LISTS}
    for name, words in lists.items():
        if not isinstance(words, list) or not set(map(type, words)) <= {str}:
            problem = f"{bundle.name}: words.json needs {name} (a list of words)"
            raise BundleError(problem, param="words.json")
    if tuple(lists["words"][: len(SPECIAL)]) != SPECIAL:
        problem = f"{bundle.name}: words.json must begin with the rows that this service reads"
        raise BundleError(problem, param="words.json")
    return Lists(**lists)


def _check(name: str, session: Session) -> None:
    """A graph that is not the one this module feeds is refused when it is loaded."""
    inputs = {spec.name: spec.dtype for spec in session.inputs}
    if inputs != _INPUTS:
        raise BundleError(f"{name}: its graph takes {inputs}, expected {_INPUTS}", param="model.onnx")
    missing = set(_FULL) - {spec.name for spec in session.outputs}
    if missing:
        raise BundleError(f"{name}: its graph lacks the outputs {sorted(missing)}", param="model.onnx")


def _numbers(card: Mapping[str, Any]) -> tuple[int, float, tuple[int, int]]:
    """How many tokens are read, how near to zero a logit is even, and how many words around a word count."""
    most, even, window = card.get("max_length", MOST), card.get("even", 0.0), card.get("window", [0, 0])
    if type(most) is not int or not 1 <= most <= MOST:
        problem = f"card.json needs max_length (a whole number from 1 to {MOST})"
        raise BundleError(problem, param="max_length")
    if type(even) not in (int, float) or not 0 <= even < math.inf:
        raise BundleError("card.json needs even (a number, 0 or more)", param="even")
    if (
        not isinstance(window, list)
        or [type(end) for end in window] != [int, int]
        or not -MOST <= window[0] <= 0 <= window[1] <= MOST
    ):
        raise BundleError("card.json needs window (two whole numbers around 0)", param="window")
    return most, even, (window[0], window[1])


def _labels(card: Mapping[str, Any]) -> tuple[str, ...]:
    labels = card.get("labels")
    if (
        not isinstance(labels, list)
        or len(labels) < 2
        or not all(isinstance(label, str) for label in labels)
        or len(set(labels)) < len(labels)
    ):
        raise BundleError("card.json needs two labels or more; of two the negative one first", param="labels")
    return tuple(labels)
