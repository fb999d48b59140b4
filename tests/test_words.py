"""Words: the fast way and the defined way read the same words at the same places."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from model_export.tokens import tokenizer_of
from service.words import WordReader, vocabulary

DEFINITION = tokenizer_of(["good"])
READER = WordReader(DEFINITION.to_str())
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


def spans_of(reader: WordReader, text: str) -> list[tuple[int, int]]:
    starts, ends = reader.spans(reader.read(text))
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


@given(st.one_of(st.lists(PIECES, max_size=12).map("".join), st.text(max_size=40)))
@example("I do n't <br /><BR>like it 's <b>über</b> Été…")
@example("<br")
@example("a<b n't> 's")
def test_reader_reads_what_the_definition_reads(text: str) -> None:
    words, spans = words_by_definition(text)
    reading = READER.read(text)
    assert reading.words == words
    assert spans_of(READER, text) == spans


def test_reader_takes_the_fast_way_for_plain_and_accented_text() -> None:
    assert READER.read("A superb film!<br />Don’t miss Amélie").folded is not None
    assert READER.read("A superb film!<br />Don’t miss Amélie").words == [
        "a", "superb", "film", "!", "don't", "miss", "amelie",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["do n't", "½ star", "e\u0301tude", "中文"])
def test_reader_leaves_what_changes_length_to_the_definition(text: str) -> None:
    assert READER.read(text).folded is None


def test_reader_spans_are_offsets_into_the_text_as_sent() -> None:
    text = "Été <br /> I do n't"
    assert [text[start:end] for start, end in spans_of(READER, text)] == ["Été", "I", "do n't"]


def test_reader_follows_another_pipeline() -> None:
    pipeline = json.loads(DEFINITION.to_str())
    pipeline["pre_tokenizer"] = {"type": "WhitespaceSplit"}
    reader = WordReader(Tokenizer.from_str(json.dumps(pipeline)).to_str())
    reading = reader.read("So-so, really!")
    assert reading.words == ["so-so,", "really!"]
    assert spans_of(reader, "So-so, really!") == [(0, 6), (7, 14)]


def test_vocabulary_is_that_of_the_file() -> None:
    assert vocabulary(DEFINITION.to_str()) == {"[PAD]": 0, "[UNK]": 1, "good": 2}
