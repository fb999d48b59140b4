"""The teacher's views agree with what the reviews say, on reviews written for it."""

from __future__ import annotations

import numpy as np
import pytest

from model_export import convolution, teacher
from model_export.tokens import WordIds, frequent_words, tokenizer_of, word_ids

GOOD, BAD = ("superb", "moving", "funny"), ("dreadful", "boring", "clumsy")
PLAIN = ("the", "film", "story", "we", "saw", "two", "hours", "cast")


@pytest.fixture(scope="module")
def reviews() -> tuple[WordIds, np.ndarray]:
    rng = np.random.default_rng(0)
    truth = np.arange(660) % 2
    texts = [
        " ".join([*rng.choice(PLAIN, 6), *rng.choice(GOOD if y else BAD, 2), *rng.choice(PLAIN, 3)])
        for y in truth
    ]
    return word_ids(tokenizer_of(frequent_words(texts, 1)), texts), truth


def test_teacher_labels_what_it_was_not_told(reviews):
    words, truth = reviews
    train, unlabelled = np.arange(600), np.arange(600, 660)
    labels = np.where(np.arange(660) < 600, truth, -1).astype(np.int8)
    probability = teacher.label(words, labels, train, unlabelled)
    assert probability.shape == (60,)
    assert ((probability > 0.5) == truth[600:]).mean() > 0.95


def test_views_do_not_look_at_labels_outside_the_training_rows(reviews):
    words, truth = reviews
    train = np.arange(600)
    presence = teacher._presence(words, np.arange(660))
    hard, changed = truth.astype(np.float32), truth.astype(np.float32)
    changed[600:] = 1 - changed[600:]
    np.testing.assert_array_equal(
        teacher.counts_view(presence, hard, train), teacher.counts_view(presence, changed, train)
    )


def test_word_vectors_put_words_of_one_company_together():
    texts = [
        "red wine glass",
        "white wine glass",
        "red wine cup",
        "green tree leaf",
        "tall tree leaf",
        "green tree",
    ] * 20
    names = frequent_words(texts, 1)
    vectors = convolution.word_vectors(word_ids(tokenizer_of(names), texts), 4)
    unit = vectors / (np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-9)
    of = {name: unit[i + 2] for i, name in enumerate(names)}
    assert of["red"] @ of["white"] > of["red"] @ of["tall"]
    assert (vectors[:2] == 0).all()
