"""The tokenizer: words, tokens and chunks of a text, and its normalization."""

import time
import tracemalloc

import numpy as np
import pytest

from service.text.tokenizer import (
    CHUNK_TOKENS,
    MAX_TOKENS_PER_WORD,
    SpecialIds,
    Vocabulary,
    WordPieceTokenizer,
)

SPECIAL = SpecialIds()
LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
WORDS = "the film was not so dull good comfortable i loved it can t ' cost met but and face grinning".split()
VOCABULARY = [
    *(["[PAD]"] + [f"[unused{i}]" for i in range(99)] + ["[UNK]"]),
    *WORDS,
    *LETTERS,
    *("##" + letter for letter in LETTERS),
    *".!?,:;'-()",
    "##able",
]


@pytest.fixture(scope="module")
def tokenizer() -> WordPieceTokenizer:
    return WordPieceTokenizer(Vocabulary(VOCABULARY, {"london"}, {"will"}, {"muslims"}))


def test_word_of_several_tokens_has_one_span(tokenizer):
    tokenized = tokenizer.tokenize("it wasn't dull")
    spans = zip(tokenized.starts, tokenized.ends, strict=True)
    assert [tokenized.text[a:b] for a, b in spans] == ["it", "wasn't", "dull"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("it wasn't dull", [["it"], ["was", "not"], ["dull"]]),
        ("wasn’t", [["was", "not"]]),
        ("wasnt", [["was", "not"]]),
        ("CAN'T", [["can", "not"]]),
        ("coomfortable", [["comfortable"]]),  # a letter written twice by mistake
        ("goooood", [["good"]]),  # letters drawn out
        ("𝐆𝐨𝐨𝐝", [["good"]]),
        ("goodable", [["good", "##able"]]),  # the longest token is taken first
        ("😀", [["grinning", "face"]]),
        ("dull" + "!" * 2_000, [["dull"], ["!", "!", "!"]]),
        ("x" + "q" * MAX_TOKENS_PER_WORD, [["[UNK]"]]),
        ("x" * 5_000, [["[UNK]"]]),
        *((blank, []) for blank in ("", " ", "<br />", "\n\n")),
        ("😀😀😀", [["grinning", "face"]] * 3),
        ("😀 😀 😀", [["grinning", "face"]] * 3),
        ("😀\ufe0f😀\u200d😀\U0001f3fd", [["grinning", "face"]] * 3),
    ],
)
def test_words_are_split_into_tokens(tokenizer, text, words):
    tokenized = tokenizer.tokenize(text)
    bounds = zip(tokenized.bounds, tokenized.bounds[1:], strict=False)
    ids = [tokenized.token_ids[start:end] for start, end in bounds]
    assert [[tokenizer.tokens[token] for token in word] for word in ids] == words
    assert len(tokenized) == len(words)


def test_run_of_stars_is_a_rating(tokenizer):
    """It was one unknown word."""
    assert len(tokenizer.tokenize("⭐⭐⭐\ufe0f")) == 1


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("i met London", "name"), ("i met london", "name"), ("i met Gerardo", "name"),
        ("i met Gerardo's", "name"), ("i met New York", "name"), ("i met Will", "name"),
        ("it cost 5,000.00", "number"), ("i met muslims", "group"), ("i met @bob", "handle"),
        ("i met https://x.y/z?a=b", "link"),
    ],
)  # fmt: skip
def test_names_numbers_groups_handles_and_links_are_one_token(tokenizer, text, kind):
    assert tokenizer.tokenize(text).token_ids[2:].tolist() == [getattr(SPECIAL, kind)]


def test_capitalized_word_at_the_start_of_a_sentence_is_no_name(tokenizer):
    assert SPECIAL.name not in tokenizer.tokenize("Zxy was good. Qwv was dull").token_ids


def test_run_of_names_is_one_word(tokenizer):
    tokenized = tokenizer.tokenize("i met Gerardo Zxyqv but it")
    assert tokenized.text[tokenized.starts[2] : tokenized.ends[2]] == "Gerardo Zxyqv"
    assert len(tokenized) == 5


def test_chunk_holds_complete_sentences_and_its_positions_start_at_zero(tokenizer):
    tokenized = tokenizer.tokenize(" ".join(["the film was so good."] * 30))
    assert tokenized.position_ids.max() < CHUNK_TOKENS
    starts = np.flatnonzero(tokenized.position_ids == 0)
    assert all(tokenizer.tokens[token] == "the" for token in tokenized.token_ids[starts])
    assert np.diff(starts).tolist() == [CHUNK_TOKENS // 6 * 6] * (len(starts) - 1)


def test_sentence_longer_than_a_chunk_is_cut(tokenizer):
    tokenized = tokenizer.tokenize("good " * 150)
    assert np.bincount(tokenized.chunk_ids).tolist() == [CHUNK_TOKENS, CHUNK_TOKENS, 150 - 2 * CHUNK_TOKENS]


def test_ablation_keeps_the_positions_of_the_other_words(tokenizer):
    tokenized = tokenizer.tokenize("the film wasn't dull")
    ablated = tokenized.ablate(np.array([False, True, False, False]))
    assert ablated.position_ids.tolist() == [0, 2, 3, 4]
    assert ablated.token_ids.tolist() == np.delete(tokenized.token_ids, 1).tolist()
    assert ablated.starts.tolist() == [0, 9, 16]


def test_chunks_have_their_tokens(tokenizer):
    tokenized = tokenizer.tokenize("good. " * 100)
    chunks = tokenized.chunks()
    assert [len(tokens) for tokens, _ in chunks] == np.bincount(tokenized.chunk_ids).tolist()
    assert tokenizer.tokenize("").chunks() == []
    assert np.concatenate([tokens for tokens, _ in chunks]).tolist() == tokenized.token_ids.tolist()


def test_text_is_truncated_to_max_words_and_marked(tokenizer):
    tokenized = tokenizer.tokenize("good " * 12, max_words=10)
    assert (len(tokenized), tokenized.truncated) == (10, True)
    assert not tokenizer.tokenize("good " * 10, max_words=10).truncated


def test_long_words_and_runs_leave_nothing_in_memory(tokenizer: WordPieceTokenizer) -> None:
    """They were once cached: one such text a second took gigabytes within the hour."""
    tracemalloc.start()
    try:
        for letter in "abcdefghij":
            for text in (letter * 200_000, "!" * (199_000 + ord(letter)), f"{letter}\u0301" * 100_000):
                assert len(tokenizer.tokenize(text)) == 1
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("letter", ["\ufdf2", "\ufdfa"])
def test_word_that_normalization_makes_long_is_unknown(tokenizer, letter):
    """Such a letter becomes up to 18 letters; 2,560 words of 61 such letters once took 25 seconds."""
    tokenized = tokenizer.tokenize(f"{letter * 61} good")
    assert [tokenizer.tokens[token] for token in tokenized.token_ids] == ["[UNK]", "good"]
    text = " ".join(f"{letter * 61}{chr(0x4E00 + i)}" for i in range(2_560))
    start_s = time.process_time()
    assert len(tokenizer.tokenize(text)) == 2_560
    assert time.process_time() - start_s < 2


def test_names_and_groups_are_words_if_they_are_not_folded() -> None:
    vocabulary = Vocabulary(VOCABULARY, {"cost"}, {"will"}, {"can"})
    text, special = "the Cost can 5 Film, not Loved", vocabulary.special
    ids = {token: i for i, token in enumerate(VOCABULARY)}
    folded = WordPieceTokenizer(vocabulary).tokenize(text).token_ids.tolist()
    kept = WordPieceTokenizer(vocabulary, fold_names=False).tokenize(text).token_ids.tolist()
    words = [ids[word] for word in ("film", ",", "not", "loved")]
    assert folded == [ids["the"], special.name, special.group, special.number, *words]
    assert kept == [ids["the"], ids["cost"], ids["can"], special.number, *words]
    capital = WordPieceTokenizer(vocabulary, fold_names=False).tokenize("the Dulldull").token_ids
    assert special.name not in capital
    assert len(capital) > 2
    assert special.name in WordPieceTokenizer(vocabulary).tokenize("the Dulldull").token_ids


@pytest.mark.parametrize(
    ("text", "tenths"),
    [
        ("5/5", 10), ("gave it a 4.5/5.", 9), ("3 out of 5", 6), ("10 / 10!", 10), ("0/10", 0), ("55/100", 6),
        ("2 stars", 4), ("one 5-star hotel", 10), ("★★★☆☆", 6), ("★★★★★★", 10),
        ("⭐️⭐️ dull", 4), ("120/100", 10),
    ],
)  # fmt: skip
def test_rating_is_the_token_of_its_value(text, tenths):
    vocabulary = Vocabulary(VOCABULARY, (), (), ())
    tokenized = WordPieceTokenizer(vocabulary).tokenize(text)
    assert SPECIAL.worst_rating + tenths in tokenized.token_ids.tolist()
    assert SPECIAL.replacements[SPECIAL.worst_rating + tenths] == f"<rating {tenths}/10>"


@pytest.mark.parametrize(
    "text", ["on 5/10/2020", "24/7", "1/2", "7 starships", "v1.5/5", "★", "5 / 50", "2 starsx"]
)
def test_other_numbers_and_marks_are_no_ratings(text):
    tokens = WordPieceTokenizer(Vocabulary(VOCABULARY, (), (), ())).tokenize(text).token_ids
    assert not np.isin(tokens, range(SPECIAL.worst_rating, SPECIAL.worst_rating + 11)).any()
