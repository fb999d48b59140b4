"""How long a word's place may be, before anything is learnt: who may lead.

Words that carry meaning have reach: those that people rated, and those that lean to one label over all data
sets. Function words, marks and folded tokens may follow, not lead; what they mean their neighbours say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from model_export.train.material import Texts
from service.texts.reader import GROUP, SPECIAL

LEAST = 0.05  # subtle: never 0: a place at the origin would attend to all alike
RATED, UNRATED = 0.5, 0.95  # words that people rated as charged lead before others that lean as far
FOLLOWS = 0.08  # function words and marks at most
ENDING = 0.2
_MORE = """do does did done doing is are was were be been being am has have had having can could will would
shall should may might must just very too so than then also only even really quite rather still yet ever s t d
ll m re ve oh ah no not never nor""".split()

Floats = NDArray[np.float32]


def function_words(ratings: Mapping[str, float]) -> set[str]:
    """scikit-learn's English stop words but those that people rated as charged; auxiliaries and negations."""
    return {word for word in ENGLISH_STOP_WORDS if abs(ratings.get(word, 0.0)) < 1.2} | set(_MORE)


def shares(texts: Texts, words: int) -> NDArray[np.float64]:
    """[C, V]: of 10,000 texts of each label, how many have the word."""
    rows = np.repeat(np.arange(len(texts)), texts.lengths)
    text, word = np.divmod(np.unique(rows * words + texts.ids), words)
    labels = (
        texts.targets if texts.targets.ndim == 2 else np.stack([texts.targets < 0.5, texts.targets > 0.5], 1)
    )
    found = [
        np.bincount(word, weights=labels[text, c].astype(float), minlength=words)
        for c in range(labels.shape[1])
    ]
    return np.asarray(np.stack(found) / np.maximum(labels.sum(0), 1)[:, None] * 10_000)


def lean(sets: Iterable[tuple[Texts, float]], words: int, smooth: float = 4.0) -> NDArray[np.float64]:
    """[V]: the log-ratio of a word between positive and negative texts, over data sets with their weights."""
    total = sum(weight * shares(texts, words) for texts, weight in sets)
    negative, positive = np.asarray(total) + smooth
    return np.asarray(np.log(positive / negative))


def reach(words: Sequence[str], leaning: NDArray[np.float64], ratings: Mapping[str, float]) -> Floats:
    """[V], from LEAST to 1, 0 for padding. Texts decide; where they say nothing, people do.

    A word that nobody rated and that leans little may lead less than in proportion: "movie" leans, too.
    """
    rating = np.abs([ratings.get(word, 0.0) for word in words])
    lean = np.minimum(np.abs(leaning) / 0.5, 1.0)
    found = np.where(rating < RATED, UNRATED * lean**2, np.maximum(lean, rating / 8))
    found = np.clip(found, LEAST, 1.0)
    stop = function_words(ratings)
    follows = [i for i, word in enumerate(words) if i <= GROUP or word in stop or word in ".!?,;:…"]
    found[follows] = np.minimum(found[follows], FOLLOWS)
    found[GROUP + 1 : len(SPECIAL)] = ENDING
    found[0] = 0.0
    return found.astype(np.float32)
