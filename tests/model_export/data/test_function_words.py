import numpy as np
import pytest
import torch
from encoders import TINY, random_encoder, random_head

from model_export.data.function_words import function_words, is_function_word
from model_export.data.training_set import Batch
from model_export.head.leader_head import FUNCTION_WORD_COST
from service.text.tokenizer import TokenizedText


@pytest.mark.parametrize("word", [".", "...", "!!!", ",", "The", "of", "it's", "just"])
def test_word_without_a_meaning_is_a_function_word(word):
    assert is_function_word(word)


@pytest.mark.parametrize("word", ["not", "never", "superb", ":)", "?!", "❤", "42", "no"])
def test_word_that_can_be_a_reason_is_not(word):
    assert not is_function_word(word)


def test_function_words_of_a_text_are_in_the_order_of_its_words():
    starts, ends = np.array([0, 4, 9]), np.array([3, 8, 10])
    empty = np.zeros(0, np.int64)
    text = TokenizedText("The soup .", starts, ends, empty, empty, empty, empty, False)
    assert function_words(text).tolist() == [True, False, True]


def test_reach_of_a_function_word_costs_more_and_padding_nothing():
    """The first text has two words, the second one and padding."""
    head, scales = random_head(), random_encoder().output_scales
    codes = torch.from_numpy(np.random.default_rng(0).integers(-128, 128, (2, 1, 3, TINY.width))).float()

    def cost(*function_words):
        mask = torch.zeros(4, dtype=torch.bool)
        mask[list(function_words)] = True
        batch = Batch(torch.ones(1, 3), torch.tensor([[0, 1, 3]]), 2, 2, mask.view(2, 2))
        return head.word_points(scales, *codes, batch).reach_cost.item()

    assert cost(2) == cost() > 0
    differences = [cost(word) - cost() for word in (0, 1, 3)]
    assert min(differences) > 0
    assert sum(differences) == pytest.approx((FUNCTION_WORD_COST - 1) * cost())
    assert cost(0, 1, 2, 3) == pytest.approx(FUNCTION_WORD_COST * cost())
