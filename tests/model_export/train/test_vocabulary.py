"""Names are counted, groups folded, rated words kept, and reach says who may lead."""

from __future__ import annotations

import numpy as np
import pytest

from model_export.train import lexicon
from model_export.train.material import Texts
from model_export.train.reach import ENDING, FOLLOWS, LEAST, UNRATED, function_words, lean, reach, shares
from model_export.train.vocabulary import Count, choose
from service.texts.reader import GROUP, NAME, SPECIAL, Reader

TEXTS = [
    "We saw Lisbon there. Lisbon is warm.",
    "in Lisbon the river is wide",
    "the WARM river",
    "a hope, my Hope",
] * 5


@pytest.fixture(scope="module")
def lists():
    count = Count()
    count.add(TEXTS, cased=True)
    count.add(["lisbon is cold"] * 50, cased=False)  # says nothing of names
    return choose(count, ["the", "river", "zebra", "warm"], {"warm": 1.5, "vile": -2.0}, 60)


def test_a_name_is_a_word_written_with_a_capital_inside_sentences(lists):
    assert "lisbon" in lists.names
    assert "hope" in lists.sometimes
    assert not {"warm", "river"} & (set(lists.names) | set(lists.sometimes))


def test_words_are_in_order_of_frequency_then_rated_then_known(lists):
    words = lists.words[len(SPECIAL) :]
    assert words.index("is") < words.index("zebra")
    assert "lisbon" not in words
    assert "zebra" in words


def test_names_and_groups_are_folded_in_reading(lists):
    reader = Reader(lists)
    assert reader.read("lisbon").ids.tolist() == [NAME]
    assert reader.read("a gay friend").ids.tolist()[1] == GROUP


def test_the_lexicon_rates_words_emoticons_and_emoji():
    rated = lexicon.ratings()
    assert rated["excellent"] > 2 > -2 > rated["horrible"]
    assert rated[":)"] > 1 > -1 > rated[":("]
    assert rated["😀"] > 0
    assert all(-4 <= rating <= 4 for rating in rated.values())


def test_shares_count_texts_and_not_occurrences():
    texts = Texts.of([[7, 7, 8], [7], [8]], [1, 0, 0], 10)
    found = shares(texts, 9)  # negative, positive
    assert found[:, 7].tolist() == [5_000, 10_000]
    assert found[:, 8].tolist() == [5_000, 10_000]


def test_lean_tells_the_side_of_a_word():
    texts = Texts.of([[7, 9], [7], [8, 9], [8]], [1, 1, 0, 0], 10)
    found = lean([(texts, 1.0)], 10)
    assert found[7] == -found[8] > 5
    assert found[9] == 0


def test_reach_is_for_words_with_a_meaning():
    words = (*SPECIAL, "superb", "the", "table", "rare", "!")
    leaning = np.zeros(len(words))
    leaning[[-5, -4, -1]] = 2.0  # whatever the texts say of "the" and "!"
    found = dict(zip(words, reach(words, leaning, {"rare": 3.0}).tolist(), strict=True))
    assert found["superb"] == pytest.approx(UNRATED)
    assert found["the"] == found["!"] == pytest.approx(FOLLOWS)
    assert found["table"] == pytest.approx(LEAST)
    assert found["rare"] == pytest.approx(3 / 8)
    assert found["<pad>"] == 0.0
    assert found["<name>"] == pytest.approx(LEAST)
    assert found["<~ing>"] == pytest.approx(ENDING)


def test_charged_words_are_no_function_words():
    found = function_words({"serious": -0.3, "cry": -2.1})
    assert {"the", "not", "serious"} <= found
    assert "cry" not in found


def test_of_words_that_lean_as_far_those_that_people_rated_lead():
    words = [*SPECIAL, "plot", "superb"]
    plot, superb = reach(words, np.full(len(words), 3.0), {"superb": 3.0, "plot": 0.2})[-2:]
    assert plot < superb == 1.0
