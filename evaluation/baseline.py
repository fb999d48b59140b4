"""The baseline that reports compare a model with: TF-IDF with logistic regression. It needs scikit-learn."""

from collections.abc import Sequence
from typing import Any

Labels = Sequence[frozenset[str]]  # the labels of each text

BASELINE_NAME = "TF-IDF + logistic regression"


def new_baseline(multi_label: bool = False) -> Any:
    """Return an unfitted scikit-learn pipeline over words and pairs of words."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline

    classifier = LogisticRegression(C=10.0, max_iter=1000)
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b")
    return make_pipeline(words, OneVsRestClassifier(classifier) if multi_label else classifier)


def baseline_accuracy(
    train: tuple[Sequence[str], Labels],
    test: tuple[Sequence[str], Labels],
    labels: Sequence[str],
    *,
    multi_label: bool = False,
) -> float | None:
    """Fit the baseline to the training data and return its accuracy on the test data.

    Returns None if the training data has no word or a single label.
    """
    x, y = train[0], _targets(train[1], labels, multi_label)
    try:
        predicted = new_baseline(multi_label).fit(x, y).predict(test[0])
    except ValueError:
        return None
    truth = _targets(test[1], labels, multi_label)
    correct = [list(a) == list(b) if multi_label else a == b for a, b in zip(predicted, truth, strict=True)]
    return sum(map(bool, correct)) / len(correct)


def cross_validated_accuracy(
    texts: Sequence[str],
    truth: Labels,
    labels: Sequence[str],
    folds: Sequence[Sequence[int]],
    *,
    multi_label: bool = False,
) -> float | None:
    """Return the accuracy on the rows of all folds, each predicted by a baseline of the other rows."""
    correct = 0.0
    for fold in folds:
        held_out = sorted(map(int, fold))
        train = sorted({*range(len(texts))} - {*held_out})
        fit, test = (([texts[i] for i in rows], [truth[i] for i in rows]) for rows in (train, held_out))
        accuracy = baseline_accuracy(fit, test, labels, multi_label=multi_label)
        if accuracy is None:
            return None
        correct += accuracy * len(held_out)
    return correct / sum(map(len, folds))


def _targets(truth: Labels, labels: Sequence[str], multi_label: bool) -> list[Any]:
    if multi_label:
        return [[int(label in row) for label in labels] for row in truth]
    return [next(iter(row)) for row in truth]
