"""Labels and label_probabilities, what is abstain_reason, and what protocols hear that know only labels."""

from decimal import Decimal
from pathlib import Path

import pytest
from bundles import open_head

from service.text.decision import (
    LOW_CONFIDENCE,
    NO_KNOWN_WORDS,
    DecisionRule,
    abstain_as_neutral,
    abstain_reason,
    label_probabilities,
)
from service.text.head import Head
from service.text.pipeline import ClassifyOptions, classify_all, make_tasks

TWO = DecisionRule(("negative", "positive"), 0.15, 0.5, None)
THREE = DecisionRule(("a", "b", "c"), 0.1, 0.5, None)
SEVERAL = DecisionRule(("a", "b", "c"), 0.1, 0.5, (0.5, 0.2, 0.9))


@pytest.mark.parametrize("logits", [[0.0], [3.3], [-800.0], [800.0], [1e-9]])
def test_probabilities_of_two_labels_sum_to_one_as_printed(logits: list[float]) -> None:
    found = label_probabilities(TWO, logits)
    assert round(sum(found.values()), 12) == 1
    assert (found["positive"] > found["negative"]) == (logits[0] > 1e-7)


def test_probabilities_of_labels_that_exclude_each_other_sum_to_one() -> None:
    assert round(sum(label_probabilities(THREE, [1 / 3, 1e3, -1e3]).values()), 12) == 1
    assert label_probabilities(THREE, [0.0, 0.0, 0.0]) == {"a": 0.3333334, "b": 0.3333333, "c": 0.3333333}


def test_labels_that_do_not_exclude_each_other_are_told_one_by_one() -> None:
    assert label_probabilities(SEVERAL, [0.0, 100.0, -100.0]) == {"a": 0.5, "b": 1.0, "c": 0.0}


@pytest.mark.parametrize(
    ("rule", "probs", "known", "words", "why"),
    [
        (TWO, {"negative": 0.1, "positive": 0.9}, 5, 5, None),
        (TWO, {"negative": 0.1, "positive": 0.9}, 2, 4, None),
        (TWO, {"negative": 0.1, "positive": 0.9}, 1, 4, NO_KNOWN_WORDS),
        (TWO, {"negative": 0.1, "positive": 0.9}, 0, 0, NO_KNOWN_WORDS),
        (TWO, {"negative": 0.36, "positive": 0.64}, 5, 5, LOW_CONFIDENCE),
        (TWO, {"negative": 0.34, "positive": 0.66}, 5, 5, None),
        (THREE, {"a": 0.45, "b": 0.4, "c": 0.15}, 5, 5, LOW_CONFIDENCE),
        (SEVERAL, {"a": 0.5, "b": 0.5, "c": 0.5}, 5, 5, None),
    ],
)
def test_verdict_is_undecided_where_little_is_known_or_labels_are_even(
    rule: DecisionRule, probs: dict[str, float], known: int, words: int, why: str | None
) -> None:
    assert abstain_reason(rule, probs, known, words) == why


def test_undecided_verdict_becomes_neutral_with_what_it_lacks_of_a_lead() -> None:
    probs = {"negative": 0.4, "positive": 0.6}
    even = abstain_as_neutral(
        {"label": "positive", "score": 0.6, "probs": probs, "undecided": LOW_CONFIDENCE}
    )
    assert (even["label"], even["score"]) == ("neutral", 0.8)
    assert even["probs"] == {"negative": 0.08, "positive": 0.12, "neutral": 0.8}
    nothing = abstain_as_neutral(
        {"label": "positive", "score": 0.6, "probs": probs, "undecided": NO_KNOWN_WORDS}
    )
    assert (nothing["score"], nothing["probs"]["positive"]) == (1.0, 0.0)
    sure = {"label": "positive", "score": 0.6, "probs": probs, "undecided": None}
    assert abstain_as_neutral(sure) is sure


def test_neutral_and_the_other_labels_sum_to_one_as_printed() -> None:
    for probs in (
        {"a": 0.3461746, "b": 0.3623123, "c": 0.2915131},
        {"a": 0.3461746, "neutral": 0.3623123, "c": 0.2915131},
    ):
        found = abstain_as_neutral(
            {"label": "a", "score": 0.3461746, "probs": probs, "undecided": LOW_CONFIDENCE}
        )
        assert sum(Decimal(repr(p)) for p in found["probs"].values()) == 1


def test_several_labels_may_hold(folder: Path, head: Head) -> None:
    card = {"labels": ["a", "b"], "multi": {"thresholds": [0.0, 1.0]}}
    several = open_head(folder, "several", reader=head.encoder, **card)
    ((found,),) = classify_all(make_tasks(["a superb film"], ClassifyOptions((several,))))
    assert (found["labels"], set(found["logit"])) == (["a"], {"a", "b"})
