"""Rows that look mislabelled."""

import numpy as np

from evaluation.label_errors import find_label_errors


def test_swapped_labels_are_found_and_the_others_are_not():
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    p = np.clip(np.where(y, 0.93, 0.07) + rng.normal(0, 0.03, 200), 0.01, 0.99)
    labels = y.copy()
    labels[[3, 50, 121]] ^= 1
    assert sorted(find_label_errors(np.stack([1 - p, p], 1), labels.tolist())) == [3, 50, 121]


def test_a_model_that_is_never_confident_finds_none():
    """It predicts one of three labels with 40 %, wrongly; for rows of that label with 35 %."""
    probs = np.array([[0.4, 0.3, 0.3], [0.35, 0.33, 0.32]])
    assert find_label_errors(probs, [1, 0]) == []


def test_the_most_suspicious_row_comes_first():
    probs = np.array([[0.95, 0.05], [0.99, 0.01], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9]])
    assert find_label_errors(probs, [1, 1, 0, 1, 1]) == [1, 0]
