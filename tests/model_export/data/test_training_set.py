"""Packed texts: selections and batches have the values that were packed."""

import numpy as np
import pytest

from model_export.data.function_words import function_words
from model_export.data.training_set import NOT_MARKED, PackedTexts, TrainingSet, mark_words, words_of
from service.text.tokenizer import Vocabulary, WordPieceTokenizer

TOKENS = ["[PAD]", *(f"[unused{i}]" for i in range(99)), *"[UNK] good ##ness film the .".split()]
TOKENIZER = WordPieceTokenizer(Vocabulary(tuple(TOKENS), frozenset(), frozenset(), frozenset()))
TEXTS = ["good film", "the goodness", "film. " * 40 + "the end", "good", "the film. " * 30]
TOKENIZED = [TOKENIZER.tokenize(text) for text in TEXTS]
PACKED = PackedTexts.pack(TOKENIZED)


def are_equal(a: PackedTexts, b: PackedTexts) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in vars(b))


@pytest.mark.parametrize("rows", [[0], [2, 0, 2], [4, 3, 2, 1, 0], []])
def test_selected_texts_are_those_that_were_packed(rows):
    selected = PACKED.take(np.array(rows, np.int64))
    assert are_equal(selected, PackedTexts.pack([TOKENIZED[i] for i in rows]))


def test_sum_has_the_texts_of_both_operands():
    assert are_equal(PackedTexts.pack(TOKENIZED[:2]) + PackedTexts.pack(TOKENIZED[2:]), PACKED)
    assert PACKED.sizes.tolist() == [len(text.token_ids) for text in TOKENIZED]


@pytest.mark.parametrize("rows", [[1], [0, 1, 3], [4, 0, 2]])
def test_batch_has_the_chunks_and_words_of_its_texts(rows):
    batch = PACKED.batch(np.array(rows))
    texts = [TOKENIZED[i] for i in rows]
    M = max(map(len, texts))
    assert (batch.n_texts, batch.max_words) == (len(rows), M)
    chunk = 0
    for b, text in enumerate(texts):
        flags = batch.function_words[b].numpy()
        assert np.array_equal(flags[: len(text)], function_words(text))
        assert not flags[len(text) :].any()
        for c in range(text.chunk_ids[-1] + 1):
            inside = text.chunk_ids == c
            tokens, words = batch.token_ids[chunk].numpy(), batch.word_index[chunk].numpy()
            assert np.array_equal(tokens[: inside.sum()], text.token_ids[inside])
            assert not tokens[inside.sum() :].any()
            assert np.array_equal(words[: inside.sum()], b * M + words_of(text.bounds)[inside])
            assert (words[inside.sum() :] == len(rows) * M).all()
            chunk += 1
    assert chunk == len(batch.token_ids)


def test_texts_of_one_chunk():
    texts = TrainingSet.from_texts(TOKENIZER, [*TEXTS, ""], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert len(texts) == 5
    assert texts.single_chunk().targets.tolist() == pytest.approx([0.1, 0.2, 0.4])


def test_marked_words_have_their_side_in_any_case():
    text = TOKENIZER.tokenize("The film isn't good, the end is.")
    words = [text.text[start:end] for start, end in zip(text.starts, text.ends, strict=True)]
    marks = dict(zip(words, mark_words(text, {1: ("the", "END"), -1: ("isn't",)}).tolist(), strict=True))
    assert {word for word, side in marks.items() if side == 1} == {"The", "the", "end"}
    assert marks["isn't"] == -1
    assert marks["film"] == NOT_MARKED
    assert mark_words(text, {}).tolist() == [0] * len(words)


def test_mean_by_text_is_over_the_tokens_of_all_its_chunks():
    rows = np.array([0, 2, 3])
    batch = PACKED.batch(rows)
    mean = batch.mean_by_text(batch.token_ids[..., None].double())
    assert mean[:, 0].tolist() == pytest.approx([TOKENIZED[i].token_ids.mean() for i in rows])
