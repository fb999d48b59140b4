"""Words: the fast way and the defined way read the same words at the same places."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from model_export.tokens import tokenizer_of
from service.words import WordReader, find_words

DEFINITION = tokenizer_of(["good"])
READER = WordReader(json.loads(DEFINITION.to_str()))
PIECES = st.sampled_from(
    [
        *(
            "good",
            "Don't",
            "n't",
            " n't",
            "do",
            " 's",
            "'",
            " ",
            "<br />",
            "<",
            ">",
            "</p>",
            "10/10",
            "9.",
            "!",
        ),
        *(
            "?",
            "...",
            "1.5.2",
            "2/3/4.5",
            "a1b2",
            "'a",
            "1'a",
            "x''y",
            "é",
            "É",
            "’",
            "“",
            "…",
            "½",
            "ß",
            "ﬁ",
        ),
        *("e\u0301", "\u0301", "İ", "中", "🙂", "\xa0", "\x00", "\n", "-", "_", "Ω", "٣", "\u2028"),
    ]
)


def words_by_definition(text: str) -> tuple[list[str], list[tuple[int, int]]]:
    normal = DEFINITION.normalizer.normalize_str(text)
    words = [word for word, _ in DEFINITION.pre_tokenizer.pre_tokenize_str(normal)]
    return words, DEFINITION.encode(text).offsets


def words_read(
    texts: list[str], reader: WordReader = READER
) -> list[tuple[list[str], list[tuple[int, int]]]]:
    """(words, spans) of each text, read together."""
    found = reader.read(texts)
    rows: list[tuple[list[str], list[tuple[int, int]]]] = [([], []) for _ in texts]
    for i, (text, start, end) in enumerate(zip(found.text, found.start, found.end, strict=True)):
        rows[text][0].append(found.spelling[i])
        rows[text][1].append((int(start), int(end)))
    return rows


TEXTS = st.one_of(st.lists(PIECES, max_size=12).map("".join), st.text(max_size=40))


@settings(deadline=None, max_examples=60)  # other tests share the machine
@given(TEXTS)
@example("I do n't <br /><BR>like it 's <b>über</b> Été…")
@example("<br")
@example("a<b n't> 's")
@example("\U00013460")  # a letter since Unicode 16
def test_reader_reads_what_the_definition_reads(text: str) -> None:
    assert words_read([text]) == [words_by_definition(text)]


@settings(deadline=None, max_examples=60)  # other tests share the machine
@given(st.lists(TEXTS, max_size=6))
def test_reader_reads_many_texts_as_it_reads_one(texts: list[str]) -> None:
    assert words_read(texts) == [words_by_definition(text) for text in texts]


@settings(deadline=None, max_examples=60)  # other tests share the machine
@given(TEXTS)
def test_arrays_find_what_the_expression_finds(text: str) -> None:
    folded = READER.fold(text) or ""
    arrays, expression = find_words([folded, folded], few=0), find_words([folded, folded], few=10**6)
    for name in ("text", "start", "end"):
        assert getattr(arrays, name).tolist() == getattr(expression, name).tolist()


def test_reader_folds_plain_and_accented_text() -> None:
    assert READER.fold("A superb film!<br />Don’t miss Amélie") == "a superb film!      don't miss amelie"


@pytest.mark.parametrize("text", ["do n't", "½ star", "e\u0301tude", "中文", "a\0b"])
def test_reader_leaves_what_changes_length_to_the_definition(text: str) -> None:
    assert READER.fold(text) is None


def test_reader_spans_are_offsets_into_the_text_as_sent() -> None:
    text = "Été <br /> I do n't"
    ((_, spans),) = words_read([text])
    assert [text[start:end] for start, end in spans] == ["Été", "I", "do n't"]


def test_reader_follows_another_pipeline() -> None:
    pipeline = json.loads(DEFINITION.to_str())
    pipeline["pre_tokenizer"] = {"type": "WhitespaceSplit"}
    reader = WordReader(json.loads(Tokenizer.from_str(json.dumps(pipeline)).to_str()))
    assert words_read(["So-so, really!"], reader) == [(["so-so,", "really!"], [(0, 6), (7, 14)])]
