"""A teacher of whole reviews: naive-Bayes weighted logistic regression on runs of one to
three words (Wang and Manning 2012), learnt from the labelled training reviews alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from model_export.sentiment.scores import temperature
from model_export.train.material import Texts

LONGEST, LEAST = 3, 4  # words of a run; texts that have it
ROOMS = 1 << 24
FACTOR = np.uint64(0x9E3779B97F4A7C15)


def label(train: Texts, unlabelled: Texts) -> NDArray[np.float32]:
    """The logits of the texts `unlabelled`, calibrated on a tenth of `train`."""
    x = presence(train + unlabelled)
    truth = train.targets > 0.5
    learn, check = np.arange(len(train)) % 10 != 0, np.arange(len(train)) % 10 == 0
    positive, negative = (
        np.asarray(x[: len(train)][learn & y].sum(0)).ravel() + 1.0 for y in (truth, ~truth)
    )
    ratio = np.log(positive / positive.sum()) - np.log(negative / negative.sum())
    x = unit(x @ sparse.diags(ratio.astype(np.float32)))
    model = LogisticRegression(C=40.0, solver="liblinear", dual=True, max_iter=60, tol=1e-2, random_state=0)
    model.fit(x[: len(train)][learn], truth[learn])
    logit = model.decision_function(x)
    factor = temperature(logit[: len(train)][check], truth[check])
    return np.asarray(factor * logit[len(train) :], np.float32)


def presence(some: Texts) -> sparse.csr_matrix:
    """[texts, runs], 1 where a text has a run of words; runs of fewer than LEAST texts are left out."""
    text = np.repeat(np.arange(len(some)), some.lengths)
    key, columns, owners = np.zeros(len(some.ids), np.uint64), [], []
    for length in range(LONGEST):
        whole = slice(0, len(some.ids) - length)
        key = key[: len(some.ids) - length] * FACTOR + some.ids[length:].astype(np.uint64) + np.uint64(1)
        inside = text[whole] == text[length:]
        columns.append(((key[inside] * FACTOR) >> np.uint64(40)).astype(np.int32))
        owners.append(text[whole][inside])
    column, owner = np.concatenate(columns), np.concatenate(owners)
    x = sparse.csr_matrix((np.ones(len(column), np.float32), (owner, column)), shape=(len(some), ROOMS))
    x.sum_duplicates()
    x.data[:] = 1.0
    often = np.flatnonzero(np.bincount(x.indices, minlength=ROOMS) >= LEAST)
    return sparse.csr_matrix(x[:, often])


def unit(x: sparse.csr_matrix) -> sparse.csr_matrix:
    """Rows of length one."""
    length = np.sqrt(np.asarray(x.multiply(x).sum(1)).ravel()) + 1e-9
    return sparse.csr_matrix(sparse.diags((1.0 / length).astype(np.float32)) @ x)
