"""What a text is read as: words, tokens, chunks, and what is folded."""

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


def test_word_of_several_tokens_has_one_its_span(tokenizer):
    found = tokenizer.tokenize("it wasn't dull")
    spans = zip(found.starts, found.ends, strict=True)
    assert [found.text[a:b] for a, b in spans] == ["it", "wasn't", "dull"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("it wasn't dull", [["it"], ["was", "not"], ["dull"]]),
        ("wasn’t", [["was", "not"]]),
        ("wasnt", [["was", "not"]]),
        ("CAN'T", [["can", "not"]]),
        ("coomfortable", [["comfortable"]]),  # a letter written twice by mistake
        ("goooood", [["good"]]),  # letters drawn out
        ("goodable", [["good", "##able"]]),  # the longest token is taken first
        ("😀", [["grinning", "face"]]),
        ("dull" + "!" * 2_000, [["dull"], ["!", "!", "!"]]),
        ("x" + "q" * MAX_TOKENS_PER_WORD, [["[UNK]"]]),
        ("x" * 5_000, [["[UNK]"]]),
        *((empty, []) for empty in ("", " ", "<br />", "\n\n")),
    ],
)
def test_words_are_split_into_tokens(tokenizer, text, words):
    found = tokenizer.tokenize(text)
    bounds = zip(found.bounds, found.bounds[1:], strict=False)
    assert [
        [tokenizer.tokens[token] for token in found.token_ids[begin:end]] for begin, end in bounds
    ] == words
    assert len(found) == len(words)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("i met London", "name"), ("i met london", "name"), ("i met Gerardo", "name"),
        ("i met Gerardo's", "name"), ("i met New York", "name"), ("i met Will", "name"),
        ("it cost 5,000.00", "number"), ("i met muslims", "group"), ("i met @bob", "handle"),
        ("i met https://x.y/z?a=b", "link"),
    ],
)  # fmt: skip
def test_what_must_not_change_a_label_is_one_token(tokenizer, text, kind):
    assert tokenizer.tokenize(text).token_ids[2:].tolist() == [getattr(SPECIAL, kind)]


def test_word_with_a_capital_that_begins_a_sentence_is_no_name(tokenizer):
    assert SPECIAL.name not in tokenizer.tokenize("Zxy was good. Qwv was dull").token_ids


def test_run_of_names_has_one_place_and_one_span(tokenizer):
    found = tokenizer.tokenize("i met Gerardo Zxyqv but it")
    assert found.text[found.starts[2] : found.ends[2]] == "Gerardo Zxyqv"
    assert len(found) == 5


def test_chunk_holds_whole_sentences_and_positions_begin_anew(tokenizer):
    found = tokenizer.tokenize(" ".join(["the film was so good."] * 30))
    assert found.position_ids.max() < CHUNK_TOKENS
    begins = np.flatnonzero(found.position_ids == 0)
    assert all(tokenizer.tokens[token] == "the" for token in found.token_ids[begins])
    assert np.diff(begins).tolist() == [CHUNK_TOKENS // 6 * 6] * (len(begins) - 1)


def test_sentence_longer_than_a_chunk_is_cut(tokenizer):
    found = tokenizer.tokenize("good " * 150)
    assert np.bincount(found.chunk_ids).tolist() == [CHUNK_TOKENS, CHUNK_TOKENS, 150 - 2 * CHUNK_TOKENS]


def test_words_left_out_leave_the_others_in_their_places(tokenizer):
    whole = tokenizer.tokenize("the film wasn't dull")
    less = whole.ablate(np.array([False, True, False, False]))
    assert less.position_ids.tolist() == [0, 2, 3, 4]
    assert less.token_ids.tolist() == np.delete(whole.token_ids, 1).tolist()
    assert less.starts.tolist() == [0, 9, 16]


def test_chunks_have_their_tokens(tokenizer):
    found = tokenizer.tokenize("good. " * 100)
    parts = found.chunks()
    assert [len(token) for token, _ in parts] == np.bincount(found.chunk_ids).tolist()
    assert tokenizer.tokenize("").chunks() == []
    assert np.concatenate([token for token, _ in parts]).tolist() == found.token_ids.tolist()


def test_most_words_are_read_and_it_is_said(tokenizer):
    found = tokenizer.tokenize("good " * 12, max_words=10)
    assert (len(found), found.truncated) == (10, True)
    assert not tokenizer.tokenize("good " * 10, max_words=10).truncated


def test_long_words_and_runs_leave_nothing_in_memory(tokenizer: WordPieceTokenizer) -> None:
    """Each was remembered whole: a text a second of one long word took gigabytes within the hour."""
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
    """61 of them are 18 times as many letters; 2,560 such words took 25 seconds."""
    found = tokenizer.tokenize(f"{letter * 61} good")
    assert [tokenizer.tokens[token] for token in found.token_ids] == ["[UNK]", "good"]
    text = " ".join(f"{letter * 61}{chr(0x4E00 + i)}" for i in range(2_560))
    began = time.process_time()
    assert len(tokenizer.tokenize(text)) == 2_560
    assert time.process_time() - began < 2


@pytest.mark.parametrize("text", ["😀😀😀", "😀 😀 😀", "😀\ufe0f😀\u200d😀\U0001f3fd"])
def test_run_of_emoji_is_split(tokenizer, text):
    found = tokenizer.tokenize(text)
    assert [tokenizer.tokens[token] for token in found.token_ids] == ["grinning", "face"] * 3
    assert len(found) == 3
