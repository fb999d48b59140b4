"""The last touch moves what it names and nothing else."""

from __future__ import annotations

import numpy as np
import torch

from model_export.fit import logits
from model_export.model import HardmaxTransformer, Shape, Weights
from model_export.polish import polish
from model_export.rows import store
from model_export.tokens import Vocabulary

WORDS = ["it", "was", "not", "at", "all", "bad", "dull", "good", "the", "film"]


def model_of(vocabulary: Vocabulary, dimension: int = 4) -> Weights:
    torch.manual_seed(0)
    return HardmaxTransformer(Shape(len(vocabulary), dimension, pseudo_weight=5.0)).weights()


def test_polish_moves_only_rows_that_turn_an_opinion_round():
    vocabulary = Vocabulary.of([*WORDS, "not bad", "bad at", "dull at all", "the film", "at all"])
    weights = model_of(vocabulary)
    polished, wider = polish(weights, vocabulary)
    before = len(vocabulary)
    assert wider.names[:before] == vocabulary.names
    moved = np.flatnonzero((polished.embedding[:before] != weights.embedding).any(axis=1))
    assert [vocabulary.names[i] for i in moved] == ["not bad", "bad at", "dull at all"]
    moved = np.flatnonzero(polished.word_weights[:before] != weights.word_weights)
    assert [vocabulary.names[i] for i in moved] == ["not bad", "bad at", "dull at all"]
    assert polished.bias == weights.bias
    np.testing.assert_array_equal(polished.readout, weights.readout)


def test_polish_adds_the_phrases_whose_words_are_known_and_teaches_them():
    vocabulary = Vocabulary.of([*WORDS, "never"])
    weights = model_of(vocabulary)
    polished, wider = polish(weights, vocabulary)
    added = wider.names[len(vocabulary) :]
    assert {"never dull", "not bad", "not a good"} - set(added) == {"not a good"}  # "a" is no token
    model = HardmaxTransformer.of(polished)
    bags = wider.bags(["never dull", "dull", "never good", "good"])
    turned_dull, dull, turned_good, good = logits(model, bags, np.arange(4))
    assert turned_dull > max(dull, 0)
    assert turned_good < min(good, 0)


def test_polish_lets_no_phrase_be_longer_than_its_words():
    vocabulary = Vocabulary.of([*WORDS, "never"])
    polished, wider = polish(model_of(vocabulary), vocabulary)
    length = dict(zip(wider.names, np.linalg.norm(polished.embedding, axis=1), strict=True))
    for phrase in wider.names[len(vocabulary) :]:
        assert length[phrase] <= max(length[word] for word in phrase.split(" ")) * 1.0001


def test_polish_leaves_a_model_without_such_phrases_alone():
    vocabulary = Vocabulary.of(["it", "was", "the", "film", "good"])
    weights = model_of(vocabulary)
    assert polish(weights, vocabulary) == (weights, vocabulary)


def test_polish_puts_no_two_phrases_in_one_place():
    vocabulary = Vocabulary.of([*WORDS, "never", "hardly", "so", "that", "very", "great", "excellent"])
    polished, _wider = polish(model_of(vocabulary, 16), vocabulary)
    stored = store(polished).apply(polished).embedding[2:]  # in eight bits a number
    assert len(np.unique(stored, axis=0)) == len(stored)
