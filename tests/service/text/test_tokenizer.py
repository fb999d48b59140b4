"""What a text is read as: words, pieces, passages, and what is folded."""

import tracemalloc

import numpy as np
import pytest

from service.text.tokenizer import GROUP, HANDLE, LINK, MOST_PIECES, NAME, NUMBER, PASSAGE, Lists, Pieces

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
def pieces() -> Pieces:
    return Pieces(Lists(VOCABULARY, {"london"}, {"will"}, {"muslims"}))


def test_word_of_several_pieces_is_one_place_with_its_span(pieces):
    found = pieces.read("it wasn't dull")
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
        ("goodable", [["good", "##able"]]),  # the longest piece is taken first
        ("😀", [["grinning", "face"]]),
        ("dull" + "!" * 2_000, [["dull"], ["!", "!", "!"]]),
        ("x" + "q" * MOST_PIECES, [["[UNK]"]]),
        ("x" * 5_000, [["[UNK]"]]),
        *((empty, []) for empty in ("", " ", "<br />", "\n\n")),
    ],
)
def test_words_are_spelt_as_a_reader_is_shown_them(pieces, text, words):
    found = pieces.read(text)
    bounds = zip(found.bounds, found.bounds[1:], strict=False)
    assert [[pieces.spelt[piece] for piece in found.pieces[begin:end]] for begin, end in bounds] == words
    assert len(found) == len(words)


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("i met London", NAME), ("i met london", NAME), ("i met Gerardo", NAME), ("i met Gerardo's", NAME),
        ("i met New York", NAME), ("i met Will", NAME), ("it cost 5,000.00", NUMBER),
        ("i met muslims", GROUP), ("i met @bob", HANDLE), ("i met https://x.y/z?a=b", LINK),
    ],
)  # fmt: skip
def test_what_must_not_change_a_verdict_is_one_piece(pieces, text, folded):
    assert pieces.read(text).pieces[2:].tolist() == [folded]


def test_word_with_a_capital_that_begins_a_sentence_is_no_name(pieces):
    assert NAME not in pieces.read("Zxy was good. Qwv was dull").pieces


def test_run_of_names_has_one_place_and_one_span(pieces):
    found = pieces.read("i met Gerardo Zxyqv but it")
    assert found.text[found.starts[2] : found.ends[2]] == "Gerardo Zxyqv"
    assert len(found) == 5


def test_passage_holds_whole_sentences_and_positions_begin_anew(pieces):
    found = pieces.read(" ".join(["the film was so good."] * 30))
    assert found.places.max() < PASSAGE
    begins = np.flatnonzero(found.places == 0)
    assert all(pieces.spelt[piece] == "the" for piece in found.pieces[begins])
    assert np.diff(begins).tolist() == [PASSAGE // 6 * 6] * (len(begins) - 1)


def test_sentence_longer_than_a_passage_is_cut(pieces):
    found = pieces.read("good " * 150)
    assert np.bincount(found.passages).tolist() == [PASSAGE, PASSAGE, 150 - 2 * PASSAGE]


def test_words_left_out_leave_the_others_in_their_places(pieces):
    whole = pieces.read("the film wasn't dull")
    less = whole.without(np.array([False, True, False, False]))
    assert less.places.tolist() == [0, 2, 3, 4]
    assert less.pieces.tolist() == np.delete(whole.pieces, 1).tolist()
    assert less.starts.tolist() == [0, 9, 16]


def test_split_gives_each_passage_its_pieces(pieces):
    found = pieces.read("good. " * 100)
    parts = found.split()
    assert [len(piece) for piece, _ in parts] == np.bincount(found.passages).tolist()
    assert pieces.read("").split() == []
    assert np.concatenate([piece for piece, _ in parts]).tolist() == found.pieces.tolist()


def test_most_words_are_read_and_it_is_said(pieces):
    found = pieces.read("good " * 12, most=10)
    assert (len(found), found.truncated) == (10, True)
    assert not pieces.read("good " * 10, most=10).truncated


def test_long_words_and_runs_leave_nothing_in_memory(pieces: Pieces) -> None:
    """Each was remembered whole: a text a second of one long word took gigabytes within the hour."""
    tracemalloc.start()
    try:
        for letter in "abcdefghij":
            for text in (letter * 200_000, "!" * (199_000 + ord(letter)), f"{letter}\u0301" * 100_000):
                assert len(pieces.read(text)) == 1
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()
