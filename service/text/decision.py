"""From logits to an answer: labels, probabilities, and whether to abstain."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from service.errors import BundleError
from service.text.tokenizer import Ints, TokenizedText

UNITS_PER_LOGIT = 10_000_000  # contributions and probabilities are counted in steps of 1e-7
NO_KNOWN_WORDS = "no_known_words"
OUT_OF_DISTRIBUTION = "out_of_distribution"
LOW_CONFIDENCE = "low_confidence"
EMPTY = "empty"
NEUTRAL = "neutral"
MAX_LABELS, MAX_LABEL_CHARS = 1_000, 200
MAX_NEUTRAL_THRESHOLD = 100.0
MIXED_RATIO = 5  # of the sums of two chunks that disagree, at most


@dataclass(frozen=True)
class DecisionRule:
    """How a card turns logits into a label, and when the label should not be acted upon."""

    labels: tuple[str, ...]
    abstain_margin: float = 0.0  # the confidence is low for a probability this near to one half
    min_known_share: float = 0.5  # of the words
    thresholds: tuple[float, ...] | None = None  # of each label, where several may apply at once
    neutral_threshold: float | None = None  # t of proportional odds: three labels from one logit

    @cached_property
    def logit_labels(self) -> tuple[str, ...]:
        """The labels that have a logit each; none where all labels share one logit."""
        shared = self.neutral_threshold is not None or (len(self.labels) == 2 and self.thresholds is None)
        return () if shared else self.labels

    @cached_property
    def n_logits(self) -> int:
        """The number of logits of the head's graph."""
        return max(1, len(self.logit_labels))


def read_decision_rule(card: Mapping[str, Any]) -> DecisionRule:
    """Read the decision rule of a card.

    Raises:
        BundleError: The card has no usable rule; it names the field.
    """
    labels: Any = card.get("labels")
    are_strings = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
    if not are_strings or not 2 <= len(labels) == len(set(labels)):
        raise BundleError("card.json needs two labels or more; of two the negative one first", param="labels")
    if len(labels) > MAX_LABELS or max(map(len, labels)) > MAX_LABEL_CHARS:
        problem = f"card.json may have {MAX_LABELS} labels of {MAX_LABEL_CHARS} characters"
        raise BundleError(problem, param="labels")
    min_known_share = _read_share(card, "min_known_share", 0.5)
    thresholds = _read_thresholds(card, len(labels))
    neutral = _read_neutral_threshold(card, labels, thresholds is not None)
    if neutral is not None:
        return DecisionRule((labels[0], NEUTRAL, labels[-1]), 0.0, min_known_share, None, neutral)
    return DecisionRule(tuple(labels), _read_share(card, "abstain_margin", 0.0), min_known_share, thresholds)


def describe_labels(card: Mapping[str, Any]) -> dict[str, Any]:
    """Return the labels of a card in the order of the probabilities, and by index as in transformers.

    A card with a neutral threshold lists only its two ends; its answers have `neutral` between them.
    """
    labels = read_decision_rule(card).labels
    return {"labels": list(labels), "id2label": {str(index): label for index, label in enumerate(labels)}}


def _read_neutral_threshold(card: Mapping[str, Any], labels: list[str], multi_label: bool) -> float | None:
    value = card.get("neutral_threshold")
    if value is None:
        return None
    fits = not multi_label and labels[1:-1] in ([], [NEUTRAL]) and NEUTRAL not in (labels[0], labels[-1])
    is_number = isinstance(value, int | float) and type(value) is not bool
    if not fits or not is_number or not 0 <= value <= MAX_NEUTRAL_THRESHOLD:
        problem = (
            f"neutral_threshold (0 to {MAX_NEUTRAL_THRESHOLD:g}) goes with a negative and a positive label"
        )
        raise BundleError(f"card.json: {problem}", param="neutral_threshold")
    return float(value)


def _read_share(card: Mapping[str, Any], field: str, default: float) -> float:
    value = card.get(field, default)
    if not _is_share(value):
        raise BundleError(f"card.json needs {field} (a number from 0 to 1)", param=field)
    return float(value)


def _read_thresholds(card: Mapping[str, Any], count: int) -> tuple[float, ...] | None:
    multi_label = card.get("multi_label")
    if multi_label is None:
        return None
    thresholds = multi_label.get("thresholds") if isinstance(multi_label, dict) else None
    if not isinstance(thresholds, list) or len(thresholds) != count or not all(map(_is_share, thresholds)):
        problem = "card.json needs multi_label.thresholds (a number from 0 to 1 for each label)"
        raise BundleError(problem, param="multi_label")
    return tuple(map(float, thresholds))


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and type(value) is not bool and 0 <= value <= 1


def predict(
    rule: DecisionRule,
    texts: Sequence[TokenizedText],
    known_counts: Sequence[tuple[int, int]],
    logit: Ints,
    bias: Ints,
    is_ood: Sequence[bool],
) -> list[dict[str, Any]]:
    """Return the answer to each text, from logits and biases [C, B] in units.

    `known_counts` holds for each text how many words are known, and of how many.
    """
    labels = rule.logit_labels
    columns = zip(
        texts, label_values(logit, labels), label_values(bias, labels), is_ood, known_counts, strict=True
    )
    answers = []
    for text, logits, biases, ood, (n_known, n_meaningful) in columns:
        probs = label_probabilities(rule, [*logits.values()] if labels else [logits])
        label = max(probs, key=probs.__getitem__)
        answer = {
            "label": label,
            "score": probs[label],
            "probs": probs,
            "abstain_reason": abstain_reason(rule, probs, n_known, n_meaningful, ood),
            "logit": logits,
            "bias": biases,
            "n_words": len(text),
            "n_tokens": len(text.token_ids),
            "unknown": n_meaningful - n_known,
            "truncated": text.truncated,
        }
        if rule.thresholds is not None:
            pairs = zip(probs.items(), rule.thresholds, strict=True)
            answer["labels"] = [name for (name, p), threshold in pairs if p >= threshold]
        answers.append(answer)
    return answers


def label_values(units: Ints, labels: Sequence[str]) -> list[Any]:
    """[C, n] units -> n values: a number for each label, or one number where the head has one logit."""
    columns = (units.T / UNITS_PER_LOGIT).tolist()
    return [dict(zip(labels, column, strict=True)) if labels else column[0] for column in columns]


def label_probabilities(rule: DecisionRule, logits: Sequence[float]) -> dict[str, float]:
    """Return the probability of each label.

    The numbers as printed sum to one, unless several labels may apply at once.
    """
    if rule.thresholds is not None:
        return {label: _sigmoid(logit) for label, logit in zip(rule.labels, logits, strict=True)}
    if rule.neutral_threshold is not None:
        negative, positive = (
            _sigmoid(-logits[0] - rule.neutral_threshold),
            _sigmoid(logits[0] - rule.neutral_threshold),
        )
        positive = min(positive, round(1 - negative, 7))  # without a band both may be rounded up
        neutral = round(1 - negative - positive, 7)
        return dict(zip(rule.labels, (negative, neutral, positive), strict=True))
    if len(logits) == 1:
        p = _sigmoid(logits[0])
        return {rule.labels[0]: round(1 - p, 7), rule.labels[1]: p}
    largest = max(logits)
    powers = [math.exp(logit - largest) for logit in logits]
    shares = [UNITS_PER_LOGIT * power / sum(powers) for power in powers]
    parts = list(map(int, shares))
    # rounding up the largest remainders keeps the order of the logits
    by_remainder = sorted(range(len(parts)), key=lambda i: parts[i] - shares[i])
    for i in by_remainder[: UNITS_PER_LOGIT - sum(parts)]:
        parts[i] += 1
    return {label: part / UNITS_PER_LOGIT for label, part in zip(rule.labels, parts, strict=True)}


def abstain_reason(
    rule: DecisionRule, probs: Mapping[str, float], n_known: int, n_words: int, is_ood: bool = False
) -> str | None:
    """Return why the label should not be acted upon, or None. `n_known` of `n_words` words are known."""
    if not n_words or n_known < rule.min_known_share * n_words:
        return NO_KNOWN_WORDS
    if is_ood:
        return OUT_OF_DISTRIBUTION
    is_close = rule.thresholds is None and _top_two_gap(probs) < 2 * rule.abstain_margin
    return LOW_CONFIDENCE if is_close else None


def abstain_as_neutral(answer: dict[str, Any]) -> dict[str, Any]:
    """Answer `neutral` instead of abstaining, for protocols that know only labels.

    The labels keep a share of their probability: the gap between the two most probable ones, or nothing where
    the reason is not low confidence. `neutral` gets the remainder.
    """
    if not answer["abstain_reason"]:
        return answer
    probs = answer["probs"]
    kept_share = _top_two_gap(probs) if answer["abstain_reason"] == LOW_CONFIDENCE else 0.0
    shared = {label: round(kept_share * p, 7) for label, p in probs.items()}
    shared[NEUTRAL] = round(shared.get(NEUTRAL, 0.0) + 1 - sum(shared.values()), 7)  # they sum to one
    return {**answer, "label": NEUTRAL, "score": shared[NEUTRAL], "probs": shared}


def abstain_as_empty(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a blank text: `neutral` where the model has it. No label of several applies."""
    label = NEUTRAL if NEUTRAL in answer["probs"] else answer["label"]
    score = answer["probs"][label]
    applicable: dict[str, list[str]] = {"labels": []} if "labels" in answer else {}
    return {**answer, "label": label, "score": score, "abstain_reason": EMPTY, **applicable}


def chunks_disagree(sums: Ints) -> bool:
    """Return whether chunks disagree, by the sum in each of the contributions to the label's logit.

    The most negative sum is at least a fifth of the most positive one in size, or the reverse.
    """
    positive, negative = max(0, int(sums.max())), max(0, -int(sums.min()))
    return 0 < max(positive, negative) <= MIXED_RATIO * min(positive, negative)


def _sigmoid(logit: float) -> float:
    return round((1 + math.tanh(logit / 2)) / 2, 7)


def _top_two_gap(probs: Mapping[str, float]) -> float:
    """Return the gap between the two largest probabilities."""
    first, second = sorted(probs.values(), reverse=True)[:2]
    return first - second
