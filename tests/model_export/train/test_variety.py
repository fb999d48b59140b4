"""Texts in other words stay near the text they came from."""

from __future__ import annotations

import random

import numpy as np

from model_export.train.variety import LONGEST, NEAR, neighbours, varied

WORDS = ["<unknown>", *(f"{group}{chr(97 + i)}" for group in ("north", "south") for i in range(15)), "odd"]


def vectors(rng):
    """Two groups of words that point opposite ways."""
    side = np.array([0, *[1] * 15, *[-1] * 15, 1])
    return (side[:, None] * [4.0, 4.0, 0.0] + rng.normal(size=(len(WORDS), 3))).astype(np.float32)


def test_neighbours_point_the_same_way_and_are_pretrained_words():
    near = neighbours(WORDS, vectors(np.random.default_rng(0)), [word for word in WORDS if word != "odd"])
    assert set(near) == set(WORDS) - {"<unknown>", "odd"}
    for word, others in near.items():
        assert len(set(others)) == NEAR
        assert word not in others
        assert {other[:5] for other in others} == {word[:5]}


def test_some_words_give_way_to_near_ones_and_others_stay():
    near = {"good": ["fine"], "room": ["hall"]}
    made = varied(["The Good room , 2 beds"], 200, near, random.Random(0))
    places = [set(column) for column in zip(*(text.split() for text in made), strict=True)]
    assert places == [{"The"}, {"Good", "fine"}, {"room", "hall"}, {","}, {"2"}, {"beds"}]


def test_a_long_text_gives_a_run_of_its_words():
    text = " ".join(map(str, range(90)))
    for made in varied([text], 20, {}, random.Random(0)):
        assert len(made.split()) == LONGEST
        assert made in text


def test_nothing_comes_of_no_texts():
    assert varied([], 5, {}, random.Random(0)) == []
