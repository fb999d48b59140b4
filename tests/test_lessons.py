"""The written lessons are probabilities of texts, and keep to themselves what tests ask for."""

from __future__ import annotations

from model_export.lessons import KEPT_FOR_TESTS, lessons


def test_lessons_leave_out_what_tests_ask_for():
    texts = {text for text, _ in lessons()}
    assert not texts & KEPT_FOR_TESTS
    assert {"not bad", "not very good", "it is a film"} <= texts


def test_negation_turns_the_target_round():
    target = dict(lessons())
    assert target["very good"] > 0.5 > target["not very good"]
    assert target["boring"] < 0.5 < target["not boring"]
    assert target["the film takes place in Paris"] == 0.5
    assert all(0 < p < 1 for p in target.values())
