"""Folds: near-duplicates together, labels spread evenly."""

import random

import numpy as np
import pytest

from evaluation.baseline import baseline_accuracy, cross_validated_accuracy
from evaluation.folds import stratified_folds
from evaluation.near_duplicates import find_near_duplicates

LABELS = ("bad", "good")


def labels_of(text):
    return [frozenset([label]) for label in text]


def test_folds_spread_every_label():
    truth = labels_of("ab" * 10 + "c" * 5)
    folds = stratified_folds(truth, np.arange(25))
    assert sorted(i for fold in folds for i in fold) == list(range(25))
    assert all(sum(truth[i] == {"c"} for i in fold) == 1 for fold in folds)


def test_rows_that_all_have_different_sets_of_labels_make_folds():
    truth = [frozenset(labels) for labels in ("ab", "ac", "bc", "a", "b", "c")]
    folds = stratified_folds(truth, np.arange(6))
    assert len(folds) > 1
    assert sorted(i for fold in folds for i in fold) == list(range(6))


def test_texts_that_differ_in_capitals_punctuation_and_numbers_are_near_duplicates():
    texts = ["My order 4711 came late!", "my order 12 came late", "Quite another sentence stands here."]
    assert find_near_duplicates(texts).groups.tolist() == [0, 0, 1]


def test_texts_of_different_words_are_not_near_duplicates():
    draw = random.Random(0)
    words = [f"word{a}{b}" for a in "abcdefghij" for b in "klmnopqrst"]
    texts = [" ".join(draw.choices(words, k=8)) for _ in range(300)]
    assert find_near_duplicates(texts).n_duplicates == 0


def test_a_stricter_similarity_leaves_groups_where_one_template_would_connect_all():
    foods = "soup pizza bread salad curry steak coffee cake pasta rice".split()
    texts = [
        f"the {food} of this place was really {taste}" for food in foods for taste in ("cold", "good", "bad")
    ]
    duplicates = find_near_duplicates(texts)
    assert duplicates.similarity > 0.5
    assert np.bincount(duplicates.groups).max() <= len(texts) / 5
    assert len(stratified_folds(labels_of("ab" * 15), duplicates.groups)) == 5


def test_near_duplicates_are_in_one_fold_and_give_no_label_away():
    """Of sixty texts with random labels and a copy each, 92 % were predicted from copies in other folds."""
    draw = random.Random(0)
    texts = [" ".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(60)]
    truth = [frozenset([draw.choice(LABELS)]) for _ in texts]
    texts, truth = [*texts, *(f" {text.upper()}!" for text in texts)], truth * 2
    duplicates = find_near_duplicates(texts)
    assert duplicates.n_duplicates >= 60
    assert (duplicates.groups[:60] == duplicates.groups[60:]).all()
    folds = stratified_folds(truth, duplicates.groups)
    accuracy = cross_validated_accuracy(texts, truth, LABELS, [fold.tolist() for fold in folds])
    assert accuracy is not None
    assert accuracy < 0.75


def test_baseline_learns_a_word_that_decides_from_the_training_data_alone():
    texts = [f"{['awful', 'superb'][i % 2]} film number {i}" for i in range(40)]
    truth = [frozenset([LABELS[i % 2]]) for i in range(40)]
    train = texts[:20], truth[:20]
    assert baseline_accuracy(train, (texts[20:], truth[20:]), LABELS) == 1
    one_error = [*truth[20:39], frozenset(["bad"])]  # a superb film
    assert baseline_accuracy(train, (texts[20:], one_error), LABELS) == pytest.approx(19 / 20)
    assert baseline_accuracy((texts[:1], truth[:1]), train, LABELS) is None  # a single label


def test_baseline_of_several_labels():
    texts = ["awful and late", "awful", "late", "fine"] * 5
    truth = [frozenset(labels) for labels in (("bad", "late"), ("bad",), ("late",), ())] * 5
    assert baseline_accuracy((texts, truth), (texts, truth), ("bad", "late"), multi_label=True) == 1
