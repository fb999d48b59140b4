"""The part of an answer that needs no reason: labels, probabilities, and whether to act upon them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

from service.texts.heads import UNITS, Head, Rules
from service.texts.pieces import Ints, Reading

NOTHING_KNOWN, UNLIKE, EVEN = "nothing known", "unlike the rows", "even"
NEUTRAL = "neutral"


def values_of(units: Ints, labels: Sequence[tuple[str, ...]]) -> list[Any]:
    """[C, n] as n values, each with its labels: a number for each, or where there are none the last one."""
    return [
        dict(zip(names, each[-len(names) :], strict=True)) if names else each[-1]
        for names, each in zip(labels, (units.T / UNITS).tolist(), strict=True)
    ]


def judge(
    heads: Sequence[Head], readings: Sequence[Reading], logit: Ints, bias: Ints, unlike: Sequence[bool]
) -> list[dict[str, Any]]:
    """An answer for each text by its head. logit and bias [C, B] in units; `unlike` the rows of the head."""
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
    shared[NEUTRAL] = round(shared.get(NEUTRAL, 0.0) + 1 - rest, 7)
    return {**answer, "label": NEUTRAL, "score": shared[NEUTRAL], "probs": shared}


def _sigmoid(logit: float) -> float:
    return round((1 + math.tanh(logit / 2)) / 2, 7)


def _lead(probs: dict[str, float]) -> float:
    """How far the likeliest label is before the next."""
    first, second = sorted(probs.values(), reverse=True)[:2]
    return first - second
