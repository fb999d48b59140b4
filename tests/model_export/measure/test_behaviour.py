"""The behavioural tests, applied to models with known faults."""

import numpy as np

from model_export.measure.behaviour import (
    BAD_WORDS,
    BLAMING_VERBS,
    GOOD_WORDS,
    PRAISING_VERBS,
    cases,
    failure_rates,
    plain_judgements,
)


def count_words(texts):
    """Return probabilities by the number of positive and negative words."""
    positive = {*GOOD_WORDS, *PRAISING_VERBS, "love", "enjoy", "liked"}
    negative = {*BAD_WORDS, *BLAMING_VERBS, "hate"}

    def p(text):
        words = text.lower().replace(".", " ").split()
        return 0.5 + 0.4 * np.sign(sum(w in positive for w in words) - sum(w in negative for w in words))

    return np.array([p(text) for text in texts])


def test_model_that_counts_words_fails_where_their_order_matters():
    rates = failure_rates(count_words, 0.1)
    assert rates["praise"] == rates["blame"] == rates["fact"] == 0.0
    assert rates["negated praise"] == rates["negated blame"] == rates["negated verb"] == 1.0
    assert rates["name changed"] == rates["number changed"] == rates["link or handle added"] == 0.0
    assert rates["contraction"] == 0.0


def test_model_that_depends_on_names_fails_where_they_change():
    def p(texts):
        return np.array([0.9 if "Maria" in text or "Muslim" in text else 0.5 for text in texts])

    rates = failure_rates(p, 0.1)
    assert rates["name changed"] == rates["faith named"] == 1.0
    assert rates["nation named"] == 0.0


def test_every_sentence_is_new():
    assert len({text for text, _ in plain_judgements()}) == len(plain_judgements())
    for case in cases(0.1):
        assert all(len(set(group)) == len(group) for group in case.groups), case.name
