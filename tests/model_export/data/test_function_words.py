import numpy as np
import pytest
import torch

from model_export.data.function_words import function_words, is_function_word
from model_export.data.training_set import Batch
from model_export.head.leader_head import FUNCTION_WORD_COST, _reach_cost
from service.text.tokenizer import TokenizedText


@pytest.mark.parametrize("word", [".", "...", "!!!", ",", "The", "of", "it's", "just"])
def test_word_without_a_meaning_of_its_own_is_a_function_word(word):
    assert is_function_word(word)


@pytest.mark.parametrize("word", ["not", "never", "superb", ":)", "?!", "❤", "42", "no"])
def test_word_that_can_be_a_reason_is_not(word):
    assert not is_function_word(word)


def test_function_words_of_a_text_are_in_the_order_of_its_words():
    starts, ends = np.array([0, 4, 9]), np.array([3, 8, 10])
    no = np.zeros(0, np.int64)
    text = TokenizedText("The soup .", starts, ends, no, no, no, no, False)
    assert function_words(text).tolist() == [True, False, True]


def test_reach_of_a_function_word_costs_more_and_padding_nothing():
    word = torch.tensor([[0, 1, 3]])  # two words in the first text, one in the second
    batch = Batch(torch.ones(1, 3), word, 2, 2, torch.tensor([[True, False], [False, True]]))
    reach = torch.tensor([[0.5, 1.0], [9.0, 0.25]])  # the first word of the second text is padding
    expected = (0.5 * FUNCTION_WORD_COST + 1.0 + 0.25 * FUNCTION_WORD_COST) / 3
    assert float(_reach_cost(reach, batch)) == pytest.approx(expected)
