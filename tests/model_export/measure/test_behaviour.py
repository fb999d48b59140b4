"""The behavioural tests against readers whose faults are known."""

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


def words_alone(texts):
    """Counts praise and blame."""
    positive = {*GOOD_WORDS, *PRAISING_VERBS, "love", "enjoy", "liked"}
    negative = {*BAD_WORDS, *BLAMING_VERBS, "hate"}

    def p(text):
        words = text.lower().replace(".", " ").split()
        return 0.5 + 0.4 * np.sign(sum(w in positive for w in words) - sum(w in negative for w in words))

    return np.array([p(text) for text in texts])


def test_a_reader_of_words_alone_fails_where_order_counts():
    found = failure_rates(words_alone, 0.1)
    assert found["praise"] == found["blame"] == found["fact"] == 0.0
    assert found["negated praise"] == found["negated blame"] == found["negated verb"] == 1.0
    assert found["name changed"] == found["number changed"] == found["link or handle added"] == 0.0
    assert found["contraction"] == 0.0


def test_a_reader_that_hears_names_fails_where_they_change():
    def p(texts):
        return np.array([0.9 if "Maria" in text or "Muslim" in text else 0.5 for text in texts])

    found = failure_rates(p, 0.1)
    assert found["name changed"] == found["faith named"] == 1.0
    assert found["nation named"] == 0.0


def test_every_sentence_is_new():
    assert len({text for text, _ in plain_judgements()}) == len(plain_judgements())
    for case in cases(0.1):
        assert all(len(set(group)) == len(group) for group in case.groups), case.name
