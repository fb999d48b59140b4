"""What the reader makes of texts: words, spans, contractions, folding, near words."""

import time

import numpy as np
import pytest

from service.texts.reader import SPECIAL, Lists, Reader, pieces

WORDS = "i it is not do can the a movie was good great terrible cinema . ! , :) 😀 we are will".split()
LISTS = Lists((*SPECIAL, *WORDS), {"jennifer", "lawrence", "paris"}, {"grace"}, {"gay", "muslim"})


@pytest.fixture
def reader():
    return Reader(LISTS)


def read(reader, text):
    return [reader.words[i] for i in reader.read(text).ids]


@pytest.mark.parametrize(
    "text", ["it isn't good", "it is n't good", "it isnt good", "It is NOT good", "it isn’t good"]
)
def test_reader_reads_a_contraction_the_same_however_it_is_written(reader, text):
    assert read(reader, text) == ["it", "is", "not", "good"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("can't", ["can", "not"]),
        ("cannot", ["can", "not"]),
        ("won't", ["will", "not"]),
        ("ca n't", ["can", "not"]),
        ("we're", ["we", "are"]),
        ("it's good", ["it", "is", "good"]),
        ("the movie's good", ["the", "movie", "good"]),
        ("Paris's movie", ["<name>", "movie"]),
        ("GOOD :-))", ["good", ":)"]),
        ("good 😀", ["good", "😀"]),
        ("<b>good</b> @me https://a.b/c?d=1 &amp; great", ["good", "great"]),
        ("1,000 good 3rd", ["<number>", "good", "<number>"]),
        ("Jennifer Lawrence was good", ["<name>", "was", "good"]),
        ("the great Zorblax", ["the", "great", "<name>"]),
        ("we say Grace is good", ["we", "<unknown>", "<name>", "is", "good"]),
        ("a gay muslim", ["a", "<group>"]),
        ("gooood terible cinéma", ["good", "terrible", "cinema"]),
        ("quxingly", ["<~ingly>"]),
        ("", []),
    ],
)
def test_reader_reads(reader, text, words):
    assert read(reader, text) == words


@pytest.mark.parametrize(
    ("word", "parts"),
    [("can't", "ca n't"), ("won't", "wo n't"), ("wont", "wo nt"), ("cannot", "can not"), ("im", "i m")],
)
def test_both_parts_of_a_contraction_cover_letters_that_say_what_they_are(word, parts):
    assert " ".join(word[begin:end] for _, begin, end in pieces(word)) == parts


def test_reader_gives_each_part_of_a_contraction_its_own_span(reader):
    text = "It ISN'T good 😀!"
    tokens = reader.read(text)
    spans = [text[a:b] for a, b in zip(tokens.starts, tokens.ends, strict=True)]
    assert spans == ["It", "IS", "N'T", "good", "😀", "!"]


def test_reader_spans_a_run_of_names_with_one_token(reader):
    tokens = reader.read("a Jennifer Lawrence movie")
    assert (tokens.starts[1], tokens.ends[1]) == (2, 19)


def same(a, b):
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("ids", "starts", "ends"))


@pytest.mark.parametrize("text", ["terible Terible movie", "Grace. Grace GRACE grace!", "x" * 70 + " good"])
def test_reader_reads_the_same_again_from_its_memory(reader, text):
    first = reader.read(text)
    reader.read_all(["Terible. movie Grace", text, "good"])
    assert same(reader.read(text), first)


def test_reader_reads_many_texts_as_it_reads_each(reader):
    texts = [
        "",
        "Grace is good.",
        "<b",
        "Paris Lawrence",
        "Paris",
        "  good  Grace ",
        "can't...",
        "\n\tit\xa0isn't",
    ]
    for text, tokens in zip(texts, reader.read_all(texts), strict=True):
        assert (tokens.text, same(tokens, Reader(LISTS).read(text))) == (text, True)


def test_reader_forgets_when_its_memory_is_full(reader, monkeypatch):
    monkeypatch.setattr("service.texts.chunks.MOST_CHUNKS", 3)
    texts = [f"good{'o' * n} movie, Grace" for n in range(8)] * 2
    assert all(same(reader.read(text), Reader(LISTS).read(text)) for text in texts)


@pytest.mark.parametrize(("most", "cut"), [(3, True), (4, False), (9, False)])
def test_reader_says_that_a_text_has_more(reader, most, cut):
    tokens = reader.read("good movie , great", most)
    assert (tokens.truncated, len(tokens)) == (cut, min(most, 4))
    assert reader.read("good,good,good,good", 3).truncated


def least_seconds(make, text):
    """CPU time of this thread that a reader takes for the text: the least of three tries."""

    def seconds():
        reader = make()
        began = time.thread_time()
        reader.read(text)
        return time.thread_time() - began

    return min(seconds() for _ in range(3))


@pytest.mark.alone
@pytest.mark.parametrize(
    "unit", ["a", " ", "<", "<a", "'", "a'", "&", "&a", "@", "1.", "é ", "http://", ":", "n't "]
)
def test_reader_takes_time_linear_in_the_text(reader, unit):
    def seconds(times):
        return least_seconds(lambda: reader, unit * times)

    assert seconds(160_000) < 80 * max(seconds(10_000), 0.001)  # 16 times the text; a square would be 256


LETTERS = "".join(chr(c) for c in range(0x391, 0x2000) if chr(c).isalpha())
HARD = {
    "spaces": " ",
    "newlines": "\n",
    "<": "<",
    "<a": "<a",
    "< a": "< a",
    "tags": "<a b='c'>",
    "apostrophes": "'",
    "a'": "a'",
    "letters of many scripts": LETTERS,
    "letters apart": " ".join(LETTERS),
    "a letter that becomes eighteen": "\ufdfa",
    "the same apart": "\ufdfa ",
    "accents": "e\u0301",
    "digits and points": "1.",
    "half links": "http://",
    "half entities": "&a",
    "half faces": ":-",
    "no word": "_$(",
    "nul": "\0",
    "long words": "abcdefghijklmnopqrstuvwx ",
    "nearly known words": "terribel ",
}


def seconds_of_200_000(unit):
    return least_seconds(lambda: Reader(LISTS), (unit * (200_000 // len(unit) + 1))[:200_000])


@pytest.fixture(scope="module")
def ordinary_seconds():
    return seconds_of_200_000("The acting was better than I thought, though the end is not good. ")


@pytest.mark.alone
@pytest.mark.parametrize("unit", HARD.values(), ids=HARD)
def test_reader_reads_hard_texts_of_200_000_characters_about_as_fast_as_ordinary_ones(unit, ordinary_seconds):
    """They took 50 to 250 times as long. On a quiet machine they take a tenth of a second now."""
    seconds = seconds_of_200_000(unit)
    assert seconds < 1
    assert seconds < 10 * ordinary_seconds
