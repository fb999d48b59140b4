"""Soft labels for the unlabelled reviews, from views that err differently.

  counts   naive-Bayes weighted logistic regression on one to three words (Wang and Manning 2012)
  topics   logistic regression on a few hundred latent directions of all reviews (latent semantic analysis)
  order    a small convolutional reader, first on the labelled reviews, then once more on all of them

Each view is put on the same scale over the unlabelled reviews, which none of them has learnt by heart; their
mean is the teacher. No view ever sees a validation label.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.utils.extmath import randomized_svd

from model_export import convolution
from model_export.phrases import Candidates, count
from model_export.scores import sigmoid
from model_export.tokens import LONGEST_PHRASE, Ids, WordIds

# Chosen on the validation reviews: how much each view counts, so that the sum is a calibrated logit.
TRUST = {"counts": 1.4, "topics": 1.0, "order": 2.2}
DIRECTIONS = 300
Floats = NDArray[np.float32]


def label(words: WordIds, labels: NDArray[np.int8], train: Ids, unlabelled: Ids) -> Floats:
    """The probability of "positive" for each of the unlabelled texts."""
    hard = np.maximum(labels, 0).astype(np.float32)
    learn = np.concatenate([train, unlabelled])
    presence = _presence(words, learn)
    views = {
        "counts": counts_view(presence, hard, train),
        "topics": topics_view(presence, hard, train, learn),
    }
    vectors = convolution.word_vectors(words, 200)
    first = convolution.Reading(epochs=4)
    views["order"] = convolution.read(words, vectors, hard, train, first, "teacher, order 1/2")
    soft = hard.copy()
    soft[unlabelled] = _together(views, unlabelled)[unlabelled]
    second = convolution.Reading(epochs=2, dropout=0.4)
    views["order"] = convolution.read(words, vectors, soft, learn, second, "teacher, order 2/2")
    return _together(views, unlabelled)[unlabelled]


def _together(views: Mapping[str, Floats], unlabelled: Ids) -> Floats:
    logit = sum(TRUST[name] * view / view[unlabelled].std() for name, view in views.items())
    return sigmoid(logit).astype(np.float32)


def _presence(words: WordIds, learn: Ids) -> sparse.csr_matrix:
    """[texts, runs of 1..3 words that three of the texts in `learn` have], 1 where a text has the run."""
    blocks = []
    for length in range(1, LONGEST_PHRASE + 1):
        seen: Candidates = count(words.take(learn), np.zeros(len(learn), dtype=np.float32), length, 3)
        key, text = words.phrases(length)
        column = np.minimum(np.searchsorted(seen.keys, key), max(len(seen.keys) - 1, 0))
        known = seen.keys[column] == key if len(seen.keys) else np.zeros(len(key), dtype=bool)
        ones = np.ones(int(known.sum()), dtype=np.float32)
        blocks.append(
            sparse.csr_matrix((ones, (text[known], column[known])), shape=(len(words), len(seen.keys)))
        )
    matrix = sparse.hstack(blocks, format="csr")
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return sparse.csr_matrix(matrix)


def counts_view(presence: sparse.csr_matrix, hard: Floats, train: Ids) -> Floats:
    """Each run weighs as much as it speaks for a class; texts have length one."""
    positive = np.asarray(presence[train[hard[train] == 1]].sum(0)).ravel() + 1.0
    negative = np.asarray(presence[train[hard[train] == 0]].sum(0)).ravel() + 1.0
    ratio = np.log(positive / positive.sum()) - np.log(negative / negative.sum())
    x = _unit(sparse.csr_matrix(presence @ sparse.diags(ratio.astype(np.float32))))
    fitted = LogisticRegression(C=40.0, solver="liblinear", dual=True, max_iter=60, tol=1e-2, random_state=0)
    return np.asarray(fitted.fit(x[train], hard[train]).decision_function(x), dtype=np.float32)


def topics_view(presence: sparse.csr_matrix, hard: Floats, train: Ids, learn: Ids) -> Floats:
    """Directions are found on all texts that may be learnt from; only the regression needs labels."""
    frequency = np.bincount(presence[learn].indices, minlength=presence.shape[1])
    use = np.flatnonzero((frequency >= min(15, len(learn) // 20 + 1)) & (frequency < 0.4 * len(learn)))
    rarity = np.log((len(learn) + 1) / (frequency[use] + 1)).astype(np.float32)
    x = _unit(sparse.csr_matrix(presence[:, use] @ sparse.diags(rarity)))
    size = min(DIRECTIONS, min(x[learn].shape) - 1)
    _, _, directions = randomized_svd(x[learn], size, n_iter=1, n_oversamples=30, random_state=0)
    place = np.asarray(x @ directions.T)
    place /= np.linalg.norm(place, axis=1, keepdims=True) + 1e-9
    place /= place[learn].std(0) + 1e-9
    fitted = LogisticRegression(C=0.01, max_iter=200).fit(place[train], hard[train])
    return np.asarray(fitted.decision_function(place), dtype=np.float32)


def _unit(x: sparse.csr_matrix) -> sparse.csr_matrix:
    length = np.sqrt(np.asarray(x.multiply(x).sum(1)).ravel()) + 1e-9
    return sparse.csr_matrix(sparse.diags((1.0 / length).astype(np.float32)) @ x)
