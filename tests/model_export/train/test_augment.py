"""The rules that write training text, each on sentences that show what it does and what it leaves alone."""

from __future__ import annotations

import random

import pytest

from model_export.train.augment import (
    base_forms,
    comparatives,
    compared,
    doubly,
    joined,
    negated,
    plain,
    rated,
)

GOOD, BAD = 0.97, 0.03


class First(random.Random):
    """Always the first choice, and a number that turns every "sometimes" off."""

    def choice(self, seq):
        return seq[0]

    def random(self):
        return 0.99


def turned(text, p, verbs=None):
    return [
        (" ".join(words), target) for words, target in negated([(text.split(), p)], verbs or {}, First(0))
    ]


def test_praise_with_one_form_of_be_becomes_blame():
    assert turned("the room was lovely", GOOD) == [("the room was not lovely", pytest.approx(0.08))]


def test_blame_with_one_form_of_be_becomes_faint_praise():
    assert turned("the room was dirty", BAD) == [("the room was not dirty", pytest.approx(0.8))]


@pytest.mark.parametrize(
    "text", ["the room was not big", "it was old but fine", "it was fine and it was dear"]
)
def test_sentences_whose_judgement_is_not_one_are_left_alone(text):
    assert turned(text, GOOD) == []


def test_a_neutral_sentence_is_left_alone():
    assert turned("the room was here", 0.5) == []


def test_verbs_are_negated_with_the_form_that_texts_show():
    said = [
        t.split() for t in ("i do not enjoy it", "we did not enjoy that", "i enjoy it", "they enjoy tea") * 6
    ]
    verbs = base_forms(said, least=4)
    assert verbs["enjoyed"] == verbs["enjoys"] == verbs["enjoy"] == "enjoy"
    assert turned("i enjoyed the walk", GOOD, verbs) == [("i did not enjoy the walk", pytest.approx(0.08))]
    assert turned("she enjoys the walk", GOOD, verbs) == [
        ("she does not enjoy the walk", pytest.approx(0.08))
    ]
    assert turned("i enjoyed the walk", BAD, verbs) == []  # blame is turned behind "be" alone


class Always(First):
    """The first choice, and every "sometimes" on."""

    def random(self):
        return 0.0


def test_a_belief_is_denied_in_front_of_any_short_sentence():
    made = [" ".join(words) for words, _ in negated([("a lovely room .".split(), GOOD)], {}, Always(0))]
    assert made == ["i do not think a lovely room at all ."]


def test_a_judging_verb_takes_the_place_of_be():
    made = [" ".join(words) for words, _ in negated([("the room was lovely".split(), GOOD)], {}, Always(0))]
    assert "i do not consider the room lovely" in made


def test_what_one_can_not_praise_enough_is_praised():
    rows = [("i enjoyed the walk .".split(), GOOD)]
    made = {" ".join(words): p for words, p in negated(rows, {"enjoyed": "enjoy"}, Always(0))}
    assert made["i can not enjoy the walk enough ."] == pytest.approx(0.93)
    assert made["i did not enjoy the walk ."] == pytest.approx(0.08)


def test_what_never_gets_boring_is_faint_praise():
    assert turned("the film gets boring", BAD) == [("the film never gets boring", pytest.approx(0.8))]


def test_a_denied_comparison_keeps_the_side():
    forms = comparatives(
        ["nice", "nicer", "nicest", "helpful", "bad", "worse"], {"nice": 2.0, "helpful": 2.0, "bad": -2.5}
    )
    rows = [("the staff were very nice .".split(), GOOD), ("it was bad".split(), BAD)]
    rows += [("she was helpful".split(), GOOD), ("it was here".split(), GOOD)]
    assert [(" ".join(words), p) for words, p in compared(rows, forms, First(0))] == [
        ("the staff could not be nicer .", 0.9),
        ("it could not be worse", 0.1),
        ("she could not be more helpful", 0.9),
    ]


def test_a_denial_of_a_denial_is_faint_praise():
    rows = [("the room was not lovely".split(), 0.08), ("not lovely".split(), 0.08)]
    assert [(" ".join(t), p) for t, p in doubly(rows, First(0))] == [
        ("it is not true that the room was not lovely", 0.7)
    ]


def test_the_judgement_behind_but_counts():
    rows = [("the room was lovely".split(), GOOD), ("the staff was rude".split(), BAD)]
    made = list(joined(rows, 400, random.Random(1)))
    assert len(made) == 400
    for text, p in made:
        words = " ".join(text)
        praise_last = words.index("lovely") > words.index("rude")
        if "but" in text and not {"say", "says", "think", "thinks", "read"} & set(text):
            assert (p > 0.5) == praise_last, words


def test_nothing_is_joined_from_one_side_alone():
    assert list(joined([("the room was lovely".split(), GOOD)], 10, random.Random(0))) == []


def test_rated_words_lean_as_people_said():
    ratings = {"superb": 3.0, "vile": -3.0, "table": 0.1}
    made = {" ".join(t): round(p, 2) for t, p in rated(ratings, list(ratings), ["chair"], First(0))}
    assert (made["superb"], made["vile"]) == (0.96, 0.04)
    assert not any("table" in text for text in made)


def test_rated_words_that_are_not_there_turn_round():
    made = {" ".join(t): p for t, p in rated({"flaw": -2.0, "joy": 2.0}, ["flaw", "joy"], ["x"], Always(0))}
    assert (made["not flaw"], made["no flaw"]) == (0.8, 0.8)
    assert (made["not joy"], made["no joy"]) == (0.08, 0.08)


def test_plain_sentences_hold_no_charged_word():
    text = "the door opens at nine . what a superb door it is . he sat there".split()
    charge = {"superb": 1.5, "nine": 0.4}
    assert list(plain([text], charge, 0.5)) == [("the door opens at nine .".split(), 0.5)]
    assert list(plain([text], charge, 0.3)) == []
