"""Words, phrases and their multiplicities."""

from __future__ import annotations

import numpy as np
import pytest

from model_export import phrases
from model_export.tokens import Vocabulary, frequent_words, tokenizer_of, word_ids
from service.errors import InvalidInput, MalformedInput, NotFound


@pytest.fixture
def vocabulary() -> Vocabulary:
    return Vocabulary.of(["not", "good", "waste", "of", "time", "a", "not good", "waste of time", "a waste"])


def _bag(vocabulary: Vocabulary, text: str) -> dict[str, float]:
    bags = vocabulary.bags([text])
    return {vocabulary.names[t]: c for t, c in zip(bags.tokens.tolist(), bags.counts.tolist(), strict=True)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It's GOOD", ["it's", "good"]),
        ("good<br /><br />film", ["good", "film"]),
        ("do n't , it 's", ["don't", "it's"]),
        ("isn’t", ["isn't"]),
        ("cliché", ["cliche"]),
        ("10/10 or 7.5!", ["10/10", "or", "7.5", "!"]),
        ("well-made, really.", ["well", "made", "really"]),
        ("a < b > c", ["a", "b", "c"]),
    ],
)
def test_words_are_what_a_reader_would_say(text, words):
    tokenizer = tokenizer_of(words)
    assert tokenizer.encode(text).tokens == words


def test_offsets_point_into_the_text_as_sent():
    text = "Caf\u00e9<br />IS good"
    encoding = tokenizer_of(["cafe", "is", "good"]).encode(text)
    assert [text[a:b] for a, b in encoding.offsets] == ["Caf\u00e9", "IS", "good"]


def test_phrases_are_found_beside_their_words(vocabulary):
    assert _bag(vocabulary, "A waste of time. Not good, not good!") == {
        "a": 1, "waste": 1, "of": 1, "time": 1, "a waste": 1, "waste of time": 1,
        "not": 2, "good": 2, "not good": 2,
    }  # fmt: skip


def test_phrases_do_not_cross_an_unknown_word_or_a_text(vocabulary):
    bags = vocabulary.bags(["not very good", "not", "good"])
    assert bags.sizes.tolist() == [2, 1, 1]


def test_unknown_words_are_counted_and_left_out(vocabulary):
    words = word_ids(vocabulary.tokenizer, ["not splendid", "good"])
    assert words.unknown_share == pytest.approx(1 / 3)
    assert _bag(vocabulary, "splendid") == {}


def test_vocabulary_survives_its_file(vocabulary, tmp_path):
    vocabulary.tokenizer.save(str(tmp_path / "tokenizer.json"))
    loaded = Vocabulary.load(tmp_path / "tokenizer.json")
    assert loaded.names == vocabulary.names
    assert (
        loaded.bags(["a waste of time"]).tokens.tolist()
        == vocabulary.bags(["a waste of time"]).tokens.tolist()
    )


def test_vocabulary_refuses_what_it_cannot_use(tmp_path):
    with pytest.raises(InvalidInput, match="'not good' has a word that is not a token: 'good'"):
        Vocabulary.of(["not", "not good"])
    with pytest.raises(NotFound):
        Vocabulary.load(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises((MalformedInput, Exception)):
        Vocabulary.load(tmp_path / "bad.json")


def test_frequent_words_come_most_frequent_first():
    assert frequent_words(["b a b", "a b c"], 2) == ["b", "a"]


def test_padded_rows_hold_each_text_and_zeros(vocabulary):
    bags = vocabulary.bags(["good good", "a waste", ""])
    tokens, counts = bags.padded(np.array([2, 0, 1]))
    names = [[vocabulary.names[t] for t in row] for row in tokens]
    assert names == [["[PAD]"] * 3, ["good", "[PAD]", "[PAD]"], ["waste", "a", "a waste"]]
    assert counts.tolist() == [[0, 0, 0], [2, 0, 0], [1, 1, 1]]


def test_dropout_thins_the_tokens_and_keeps_them_to_the_left(vocabulary):
    vocabulary = Vocabulary.of([a + b for a in "abcdefgh" for b in "vwxyz"])
    bags = vocabulary.bags([" ".join(vocabulary.names[2:])] * 50 + ["av aw"])
    tokens, counts = bags.padded(np.arange(51), np.random.default_rng(0), 0.5)
    assert 0.4 < (counts[:50] > 0).sum() / len(bags.tokens) < 0.6
    assert counts[50].sum() == 2  # a short text stays whole
    assert (np.diff((tokens > 0).astype(int), axis=1) <= 0).all()


def test_batches_visit_every_row_once(vocabulary):
    bags = vocabulary.bags(["good", "a waste of time", "not good", "a", "time"])
    rows = np.array([4, 0, 2, 1])
    for rng in (None, np.random.default_rng(0)):
        assert sorted(np.concatenate(list(bags.batches(rows, 2, rng))).tolist()) == [0, 1, 2, 4]


def test_chosen_phrases_are_the_telling_ones():
    texts = ["not good at all", "a good film", "not good at sea", "a good cast", "not good", "a good one"]
    names = frequent_words(texts, 1)
    words = word_ids(tokenizer_of(names), texts)
    truth = np.array([0, 1, 0, 1, 0, 1], dtype=np.float32)
    chosen = phrases.choose(names, words, truth, size=8, least=2)
    assert chosen == ["good", "a", "not", "at", "a good", "not good", "good at", "not good at"]
    assert phrases.choose(names, words, truth, size=8, least=2, longest=1) == ["good", "a", "not", "at"]
    assert "good" not in phrases.choose(names, words, truth, size=8, least=2, drop_frequent=1)


def test_candidates_count_texts_not_occurrences():
    texts = ["so so so", "so"]
    words = word_ids(tokenizer_of(["so"]), texts)
    assert phrases.count(words, np.array([1, 0], dtype=np.float32), 1, 1).frequency.tolist() == [2]
