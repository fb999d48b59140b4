"""Tokens of texts: words, phrases, multiplicities, and the same as in training."""

from __future__ import annotations

import json

import numpy as np
import pytest
from bundles import PLACES

from model_export.tokens import Vocabulary, tokenizer_of
from service.errors import BundleError, InvalidInput, TooLarge
from service.tokens import Tokens, Words

TOKENS = Tokens(tokenizer_of(list(PLACES)).to_str(), max_length=10)


def bag(words: Words, tokens: Tokens = TOKENS) -> dict[str, int]:
    names = tokens.names[words.ids].tolist()
    return dict(zip(names, words.counts.astype(int).tolist(), strict=True))


def test_tokens_are_words_and_overlapping_phrases_with_multiplicities() -> None:
    (words,) = TOKENS.read(["Not good; waste of time; of time. Not GOOD"])
    assert bag(words) == {
        "not": 2,
        "good": 2,
        "not good": 2,
        "waste": 1,
        "of": 2,
        "time": 2,
        "waste of time": 1,
    }


def test_tokens_count_unknown_words_and_leave_them_out() -> None:
    (words,) = TOKENS.read(["superb zebras not, um, good"])
    assert bag(words) == {"superb": 1, "not": 1, "good": 1}  # no phrase crosses an unknown word
    assert (words.tokens, words.unknown, words.length) == (5, 2, 3)


def test_tokens_of_one_text_never_join_those_of_the_next() -> None:
    first, second, third = TOKENS.read(["waste of", "time not", "good"])
    assert [bag(words) for words in (first, second, third)] == [
        {"waste": 1, "of": 1},
        {"time": 1, "not": 1},
        {"good": 1},
    ]


def test_tokens_read_together_are_those_read_alone() -> None:
    texts = ["not good not good", "zzz", "The film, the waste of time", "...", "superb"]
    for text, together in zip(texts, TOKENS.read(texts), strict=True):
        (alone,) = TOKENS.read([text])
        assert bag(together) == bag(alone)
        assert together.tokens == alone.tokens
        assert together.unknown == alone.unknown
        for i in range(alone.length):
            assert together.spans(i) == alone.spans(i)


def test_tokens_spans_cover_words_and_phrases() -> None:
    text = "Waste OF\ntime, the waste"
    (words,) = TOKENS.read([text])
    found = {TOKENS.names[id_]: words.spans(i) for i, id_ in enumerate(words.ids)}
    assert found == {
        "waste": [(0, 5), (19, 24)],
        "of": [(6, 8)],
        "time": [(9, 13)],
        "the": [(15, 18)],
        "waste of time": [(0, 13)],
    }


def test_tokens_cut_long_texts_at_the_models_length() -> None:
    (words,) = TOKENS.read(["good " * 11])
    assert (words.tokens, words.truncated, bag(words)) == (10, True, {"good": 10})
    (whole,) = TOKENS.read(["good " * 10])
    assert (whole.tokens, whole.truncated) == (10, False)


def test_tokens_refuse_long_texts_that_may_not_be_cut() -> None:
    with pytest.raises(TooLarge, match="the text has 11 words, the model reads 10") as caught:
        TOKENS.read(["good", "good " * 11], truncate=False)
    assert caught.value.param == "input[1]"


@pytest.mark.parametrize("empty", ["", " \n\t", "\xa0"])
def test_tokens_refuse_an_empty_text(empty: str) -> None:
    with pytest.raises(InvalidInput, match="the text is empty"):
        TOKENS.read(["good", empty])


def test_tokens_read_a_text_without_words() -> None:
    (words,) = TOKENS.read(["... 🙂 —"])
    assert (words.length, words.tokens, words.unknown) == (0, 0, 0)


def test_tokens_are_those_of_training() -> None:
    vocabulary = Vocabulary.of([*PLACES, "good film", "film not good", "!"])
    tokens = Tokens(vocabulary.tokenizer.to_str(), max_length=10_000)
    rng = np.random.default_rng(0)
    pool = [*PLACES, "unknown", "!", ",", "Film", "good film not good"]
    texts = [" ".join(rng.choice(pool, size=size)) for size in rng.integers(1, 60, size=200)]
    bags = vocabulary.bags(texts)
    for i, words in enumerate(tokens.read(texts)):
        row = slice(bags.start[i], bags.start[i + 1])
        assert words.ids.tolist() == bags.tokens[row].tolist()
        assert words.counts.tolist() == bags.counts[row].tolist()


def broken(change: dict[str, int]) -> str:
    tokenizer = json.loads(tokenizer_of(["good"]).to_str())
    tokenizer["model"]["vocab"] = change
    return json.dumps(tokenizer)


@pytest.mark.parametrize(
    ("tokenizer", "problem"),
    [
        ("{", "cannot be read"),
        (broken({"[UNK]": 0, "[PAD]": 1}), "first"),
        (broken({"[PAD]": 0, "[UNK]": 1, "good": 3}), "without gaps"),
        (broken({"[PAD]": 0, "[UNK]": 1, "not good": 2}), "'not good'"),
    ],
)
def test_tokens_refuse_a_broken_tokenizer(tokenizer: str, problem: str) -> None:
    with pytest.raises(BundleError, match=problem) as caught:
        Tokens(tokenizer, 10)
    assert caught.value.param == "tokenizer.json"
