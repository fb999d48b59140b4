"""The written lessons are probabilities of texts, and keep to themselves what tests ask for."""

from __future__ import annotations

from model_export.lessons import KEPT_FOR_TESTS, lessons


def test_lessons_leave_out_what_tests_ask_for():
    texts = {lesson.text for lesson in lessons()}
    assert not texts & KEPT_FOR_TESTS
    assert {"not bad", "not very good", "it is a film"} <= texts


def test_negation_turns_the_target_round():
    target = {lesson.text: lesson.probability for lesson in lessons()}
    assert target["very good"] > 0.5 > target["not very good"]
    assert target["boring"] < 0.5 < target["not boring"]
    assert target["the film takes place in Paris"] == 0.5
    assert all(0 < p < 1 for p in target.values())


def test_a_turned_lesson_names_the_phrase_it_needs():
    phrase = {lesson.text: lesson.phrase for lesson in lessons()}
    assert phrase["it was not dull"] == "not dull"
    assert phrase["not very dull"] == "not very dull"
    assert phrase["far from dull"] == "far from dull"
    assert phrase["very dull"] is None
