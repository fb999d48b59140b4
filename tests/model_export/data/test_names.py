"""Groups of people and places: all members of a list are the same token, in every template."""

import pytest

from model_export.data.names import GROUPS, make_vocabulary
from service.text.tokenizer import WordPieceTokenizer

TOKENS = ["[PAD]", *(f"[unused{i}]" for i in range(99)), "[UNK]"]
WORDS = "the waiter is awful he a teacher and she woman my friend train to was . an in polish shoes i".split()
VOCABULARY = make_vocabulary([], [*TOKENS, *WORDS])
TOKENIZER = WordPieceTokenizer(VOCABULARY)


def token_ids(text):
    return tuple(TOKENIZER.tokenize(text).token_ids.tolist())


def test_places_are_one_token():
    places = ("London", "Norway", "Pakistan", "Tokyo", "Brazil")
    assert len({token_ids(f"the train to {place} was awful") for place in places}) == 1


def test_every_group_is_one_token_in_lower_case_and_with_a_capital():
    """All 3,000 words: nationalities, faiths, languages, orientations and origins, singular and plural."""
    expected = token_ids("the filipino waiter is awful")
    assert VOCABULARY.special.group in expected
    for word in sorted(VOCABULARY.groups):
        for written in (word, word.capitalize()):
            assert token_ids(f"the {written} waiter is awful") == expected, written


@pytest.mark.parametrize("word", ["filipino", "taoist", "pansexual", "nigerians", "sikhs", "lgbtq", "zulu"])
def test_lists_have_words_that_people_test(word):
    assert word in VOCABULARY.groups


def test_words_with_another_meaning_are_folded_only_as_names():
    assert VOCABULARY.special.group not in token_ids("polish the shoes")
    assert VOCABULARY.special.name not in token_ids("i polish the shoes")
    assert VOCABULARY.special.name in token_ids("the Polish waiter is awful")
    assert not GROUPS & set(VOCABULARY.ambiguous_names)
