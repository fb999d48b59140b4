"""Heads: planes on a reader. The places of the words of whole texts, whom they follow there, what that adds
up to; and the verdict: labels, probabilities, and whether to act upon them.

    logit = bias + sum of the words' contributions

where a word counts at the place of the leader that it ends with. All of these are counted in units of 1e-7,
and the logit is their sum: printed numbers add up to the last digit.

Heads of one family differ in their weights alone, which their graph takes as inputs: they share one session,
and one run answers for all that are asked. What one head says of a text stands as a text of its own.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from service.errors import BundleError
from service.runtime.batcher import groups_by_length
from service.runtime.bundle import Bundle
from service.runtime.session import Runtime, Session
from service.text.encoder import Read, Reader, check_graph
from service.text.tokenizer import Ints, Reading

Array = NDArray[Any]

UNITS = 10_000_000  # of a logit
PAIRS = {"cpu": 1 << 22, "cuda": 1 << 26}  # of words that one run compares
INPUTS = {"states": "uint8", "words": "uint8", "members": "int64", "texts": "int64"}
JUDGED = {"bias": "double", "contribution": "double"}
KNOWS_ROWS = "unlike"  # of heads that know their rows: above 0 where a text is unlike them
EXPLAINED = {"target": "int64", "since": "int64", "plane": "double"}
PROBE = "A good film, and a bad one."
NOTHING_KNOWN, UNLIKE, EVEN = "nothing known", "unlike the rows", "even"
NEUTRAL = "neutral"


@dataclass(frozen=True, slots=True)
class HeadOutputs:
    """What heads say of B texts with M words, one after the other. Contributions are in units. C is the most
    logits that a head has; a text whose head has fewer has the last ones.
    """

    texts: Sequence[Read]
    labels: Sequence[tuple[str, ...]]  # of each text, those of its logits; none where it has one
    bounds: Ints  # [B+1]: text b has the words bounds[b] to bounds[b + 1]
    text: Ints  # [M] the text of each word
    bias: Ints  # [C, B]
    contribution: Ints  # [C, M]
    unlike: NDArray[np.bool_]  # [B] whether it is unlike the rows that the head learnt from
    # [M] the word it follows, in its text; -1 if several tie. None without reasons
    target: Ints | None = None
    since: Ints | None = None  # [M]
    plane: Sequence[Array] = ()  # of each text [K+1, N, d]

    @property
    def logit(self) -> Ints:
        """[C, B]"""
        sums = np.concatenate(([[0]] * len(self.bias), np.cumsum(self.contribution, axis=1)), axis=1)
        return np.asarray(self.bias + sums[:, self.bounds[1:]] - sums[:, self.bounds[:-1]])


@dataclass(frozen=True, slots=True)
class Rules:
    """What a card says of its labels, and when a verdict should not be acted upon."""

    labels: tuple[str, ...]
    even: float  # how near to one half a probability is even
    least_known: float  # the share of the words that must be known
    thresholds: tuple[float, ...] | None  # of each label, where they do not exclude each other

    @property
    def logits(self) -> tuple[str, ...]:
        """The labels that have a logit of their own: none of two that exclude each other, which share one."""
        return () if len(self.labels) == 2 and self.thresholds is None else self.labels


class Head:
    """One model. Thread-safe."""

    def __init__(self, name: str, session: Session, reader: Reader, card: Mapping[str, Any]) -> None:
        self.name = name
        self.reader = reader
        self.rules = rules_of(card)
        self.knows_rows = KNOWS_ROWS in {spec.name for spec in session.outputs}
        probe = reader.read(PROBE)  # the first inference is slow, and no caller should wait for it
        feeds, _, _ = assemble([Read(probe, reader.see(probe.split(), reasons=True))])
        bias, plane, *weights = session.run(feeds, ("bias", "plane", *session.defaults))
        self.weights = dict(zip(session.defaults, weights, strict=True))  # [1, ..]
        self.dimensions = plane.shape[-1]
        self.bias = _units(bias.reshape(1, -1).T)  # [C, 1] the same for every text
        if len(self.bias) != max(1, len(self.rules.logits)):
            raise BundleError(f"{name}: its graph has {len(self.bias)} logits", param="labels")
        self.session = reader.graphs.setdefault(session.family, session) if session.family else session

    @classmethod
    def load(cls, bundle: Bundle, runtime: Runtime, reader: Reader) -> Self:
        session = runtime.open(bundle.model)
        check_graph(bundle.name, session, INPUTS, JUDGED | EXPLAINED)
        return cls(bundle.name, session, reader, bundle.card)

    def told(self) -> dict[str, Any]:
        """What GET /models says beside the card."""
        numbers = (self.bias[:, 0] / UNITS).tolist()
        named = self.rules.logits
        return {"bias": dict(zip(named, numbers, strict=True)) if named else numbers[0]}


def outputs_of(
    heads: Sequence[Head], texts: Sequence[Read], *, reasons: bool
) -> Iterator[tuple[Sequence[Head], list[int], HeadOutputs]]:
    """For texts of similar length and heads of one family: the heads, the places of the texts, the outputs.
    A text without words is left out.
    """
    lengths = [len(text.reading) for text in texts]
    some = [i for i, length in enumerate(lengths) if length]
    most = PAIRS[heads[0].session.provider]
    families: dict[Session, list[Head]] = {}
    for head in heads:
        families.setdefault(head.session, []).append(head)
    for run in groups_by_length([lengths[i] for i in some], most, power=2):
        places = [some[i] for i in run]
        alike = [texts[i] for i in places]
        fed = assemble(alike)
        together = max(1, most // (len(places) * lengths[places[-1]] ** 2))
        for family in families.values():
            for begin in range(0, len(family), together):
                asked = family[begin : begin + together]
                yield asked, places, _run(asked, alike, *fed, reasons=reasons)


def _run(
    heads: Sequence[Head],
    texts: Sequence[Read],
    feeds: dict[str, Array],
    bounds: Ints,
    inside: NDArray[np.bool_],
    *,
    reasons: bool,
) -> HeadOutputs:
    outputs = (*JUDGED, *(EXPLAINED if reasons else ()), *([KNOWS_ROWS] if heads[0].knows_rows else []))
    found = heads[0].session.run({**feeds, **stacked(heads)}, outputs)
    values = dict(zip(outputs, found, strict=True))
    C, N = values["contribution"].shape[-2:]
    B, lengths = len(heads) * len(texts), np.tile(np.diff(bounds), len(heads))
    inside = np.tile(inside, (len(heads), 1))
    plane: list[Array] = []
    if reasons:
        whole = values["plane"].reshape(len(values["plane"]), B, N, -1)
        sizes = zip(lengths.tolist(), [head.dimensions for head in heads for _ in texts], strict=True)
        plane = [whole[:, b, :n, -d:] for b, (n, d) in enumerate(sizes)]
    return HeadOutputs(
        texts=[*texts] * len(heads),
        labels=[head.rules.logits for head in heads for _ in texts],
        bounds=np.concatenate(([0], np.cumsum(lengths))),
        text=np.repeat(np.arange(B), lengths),
        bias=_units(values["bias"].reshape(B, C).T),
        contribution=_units(values["contribution"].reshape(B, C, N).swapaxes(0, 1)[:, inside]),
        unlike=values[KNOWS_ROWS].reshape(B) > 0 if heads[0].knows_rows else np.zeros(B, np.bool_),
        target=values["target"].reshape(B, N)[inside] if reasons else None,
        since=values["since"].reshape(B, N)[inside] if reasons else None,
        plane=plane,
    )


def stacked(heads: Sequence[Head]) -> dict[str, Array]:
    """The weights of all heads for one run: those of a smaller head have zeros in front."""
    if len(heads) == 1:
        return heads[0].weights
    found: dict[str, Array] = {}
    for name in heads[0].weights:
        each = [head.weights[name][0] for head in heads]
        shape = np.max([weight.shape for weight in each], axis=0)
        found[name] = np.zeros((len(each), *shape), each[0].dtype)
        for whole, weight in zip(found[name], each, strict=True):
            last = (slice(most - size, most) for most, size in zip(shape, weight.shape, strict=True))
            whole[tuple(last)] = weight
    return found


def assemble(texts: Sequence[Read]) -> tuple[dict[str, Array], Ints, NDArray[np.bool_]]:
    """What the graph is fed, [B+1] where each text's words begin, and [B, N] where there is a word."""
    seen = [each for text in texts for each in text.seen]
    sizes = np.concatenate([np.diff(text.reading.bounds) for text in texts])  # pieces of each word
    lengths = np.array([len(text.reading) for text in texts])
    bounds = np.concatenate(([0], np.cumsum(lengths)))
    T, M = int(sizes.sum()), len(sizes)
    column = np.arange(sizes.max())
    members = np.where(column < sizes[:, None], (np.cumsum(sizes) - sizes)[:, None] + column, T)
    inside = np.arange(lengths.max()) < lengths[:, None]
    places = np.full(inside.shape, M)
    places[inside] = np.arange(M)
    feeds = {
        "states": np.concatenate([each.states for each in seen]),
        "words": np.concatenate([each.words for each in seen]),
        "members": members,
        "texts": places,
    }
    return feeds, bounds, inside


def _units(values: Array) -> Ints:
    return np.asarray(np.rint(values * UNITS).astype(np.int64))


def rules_of(card: Mapping[str, Any]) -> Rules:
    labels: Any = card.get("labels")
    named = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
    if not named or not 2 <= len(labels) == len(set(labels)):
        raise BundleError("card.json needs two labels or more; of two the negative one first", param="labels")
    even, least_known = _share(card, "even", 0.0), _share(card, "least_known", 0.5)
    return Rules(tuple(labels), even, least_known, _thresholds(card, len(labels)))


def _share(card: Mapping[str, Any], field: str, default: float) -> float:
    value = card.get(field, default)
    if not _is_share(value):
        raise BundleError(f"card.json needs {field} (a number from 0 to 1)", param=field)
    return float(value)


def _thresholds(card: Mapping[str, Any], count: int) -> tuple[float, ...] | None:
    multi = card.get("multi")
    if multi is None:
        return None
    thresholds = multi.get("thresholds") if isinstance(multi, dict) else None
    if not isinstance(thresholds, list) or len(thresholds) != count or not all(map(_is_share, thresholds)):
        problem = "card.json needs multi.thresholds (a number from 0 to 1 for each label)"
        raise BundleError(problem, param="multi")
    return tuple(map(float, thresholds))


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and type(value) is not bool and 0 <= value <= 1


def values_of(units: Ints, labels: Sequence[tuple[str, ...]]) -> list[Any]:
    """[C, n] as n values: of each a number by label, or the last number where its head names no labels."""
    return [
        dict(zip(names, each[-len(names) :], strict=True)) if names else each[-1]
        for names, each in zip(labels, (units.T / UNITS).tolist(), strict=True)
    ]


def judge(
    heads: Sequence[Head], readings: Sequence[Reading], logit: Ints, bias: Ints, unlike: Sequence[bool]
) -> list[dict[str, Any]]:
    """An answer to each text by its head. logit and bias are [C, B] in units."""
    labels = [head.rules.logits for head in heads]
    numbers = zip(heads, readings, values_of(logit, labels), values_of(bias, labels), unlike, strict=True)
    known_of = cache(heads[0].reader.known)
    answers = []
    for head, reading, logit_of, bias_of, is_unlike in numbers:
        rules = head.rules
        probs = probabilities(rules, [*logit_of.values()] if rules.logits else [logit_of])
        label = max(probs, key=probs.__getitem__)
        known = known_of(reading)
        sizes = int((known == 1).sum()), int((known >= 0).sum())
        answer = {
            "label": label,
            "score": probs[label],
            "probs": probs,
            "undecided": undecided(rules, probs, *sizes, is_unlike),
            "logit": logit_of,
            "bias": bias_of,
            "tokens": len(reading),
            "unknown": sizes[1] - sizes[0],
            "truncated": reading.truncated,
        }
        if rules.thresholds is not None:
            over = zip(probs.items(), rules.thresholds, strict=True)
            answer["labels"] = [name for (name, p), threshold in over if p >= threshold]
        answers.append(answer)
    return answers


def undecided(
    rules: Rules, probs: dict[str, float], known: int, words: int, is_unlike: bool = False
) -> str | None:
    """Why the label should not be acted upon, where it should not. `known` of `words` are."""
    if not words or known < rules.least_known * words:
        return NOTHING_KNOWN
    if is_unlike:
        return UNLIKE
    return EVEN if rules.thresholds is None and _lead(probs) < 2 * rules.even else None


def probabilities(rules: Rules, logits: Sequence[float]) -> dict[str, float]:
    """By label. The numbers as printed sum to one, unless the labels do not exclude each other."""
    if rules.thresholds is not None:
        return {label: _sigmoid(logit) for label, logit in zip(rules.labels, logits, strict=True)}
    if len(logits) == 1:
        p = _sigmoid(logits[0])
        return {rules.labels[0]: round(1 - p, 7), rules.labels[1]: p}
    largest = max(logits)
    power = [math.exp(logit - largest) for logit in logits]
    parts = [round(UNITS * each / sum(power)) for each in power]
    parts[parts.index(max(parts))] += UNITS - sum(parts)
    return {label: part / UNITS for label, part in zip(rules.labels, parts, strict=True)}


def with_neutral(answer: dict[str, Any]) -> dict[str, Any]:
    """For protocols that know only labels: an undecided answer is `neutral`, with what is missing from a lead
    of one.

    Where nothing is known that is all; the other labels share the rest.
    """
    if not answer["undecided"]:
        return answer
    probs = answer["probs"]
    rest = _lead(probs) if answer["undecided"] == EVEN else 0.0
    shared = {label: round(rest * p, 7) for label, p in probs.items()}
    shared[NEUTRAL] = round(shared.get(NEUTRAL, 0.0) + 1 - sum(shared.values()), 7)  # they sum to one
    return {**answer, "label": NEUTRAL, "score": shared[NEUTRAL], "probs": shared}


def _sigmoid(logit: float) -> float:
    return round((1 + math.tanh(logit / 2)) / 2, 7)


def _lead(probs: dict[str, float]) -> float:
    """How far the likeliest label is before the next."""
    first, second = sorted(probs.values(), reverse=True)[:2]
    return first - second
