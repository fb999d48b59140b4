"""Out-of-distribution detection: 5 % of texts like the training data are flagged, and other languages."""

import numpy as np
import pytest

from model_export.head import ood
from model_export.head.encoded import ZERO, EncodedTexts, encode_texts
from model_export.head.train import open_encoder
from service.settings import PRETRAINED_FOLDER
from service.text.tokenizer import TokenizedText

OTHER_LANGUAGES = """Gozdovi so pozimi tihi in sneg prekriva steze.
Els nens juguen al pati mentre la mare prepara el sopar.
Raudteejaam asub vana turu lähedal.
Watoto wanacheza nje ya nyumba yao kila jioni.
Vlak za Zagreb kreće sutra ujutro s drugog perona.
Etxe hau aitonak eraiki zuen duela berrogeita hamar urte.
Vilciens uz Rīgu atiet pulksten astoņos no rīta.
Fëmijët luajnë në kopsht ndërsa nëna gatuan.
Mae'r plant yn chwarae yn yr ardd.
Lestin fer klukkan átta í fyrramálið.""".split("\n")
FOOD = ("the soup", "my pizza", "their bread", "a salad", "the curry", "our steak", "the coffee", "this cake")
VERDICTS = ("was cold again", "came late and burnt", "tasted wonderful", "is worth every penny", "was salty")


@pytest.fixture(scope="module")
def encoder():
    return open_encoder(PRETRAINED_FOLDER / "encoder-small")[1]


def test_unknown_languages_are_out_of_distribution(encoder):
    """None of them is in ood_languages.txt. The threshold flags a twentieth of the rows, too."""
    states, _ = encode_texts(encoder, [f"{food} {verdict}." for food in FOOD for verdict in VERDICTS])
    others = [encode_texts(encoder, texts)[0] for texts in (ood.english_sentences(), ood.foreign_sentences())]
    folds = [np.arange(len(states))[i::5] for i in range(5)]
    score = ood.calibrate(states, others, folds, np.full(len(states), np.nan))
    assert (score.held_out > 0).sum() <= 2  # of 40
    assert score.detected >= 0.9
    assert (ood.ood_scores(score.weights, encode_texts(encoder, OTHER_LANGUAGES)[0]) > 0).sum() >= 9


def test_two_thresholds_together_flag_at_most_a_twentieth():
    held_out = np.random.default_rng(0).normal(size=(1000, 2)) * (1, 50)
    above = held_out > ood.conformal_thresholds(held_out, 0.05)
    assert above.any(1).sum() in (48, 49, 50)
    assert above.sum(0) == pytest.approx(25, abs=8)


def test_threshold_allows_for_the_number_of_rows():
    """At the empirical quantile of 20 rows, one in ten of new rows would be flagged, not one in twenty."""
    rng, flagged = np.random.default_rng(0), []
    for _ in range(400):
        held_out, new = rng.normal(size=(20, 1)), rng.normal(size=(50, 1))
        flagged.append((new > ood.conformal_thresholds(held_out, 0.05)).mean())
    assert np.mean(flagged) == pytest.approx(0.05, abs=0.01)
    held_out = rng.normal(size=(10, 1))  # too few for a threshold
    assert not (held_out > ood.conformal_thresholds(held_out, 0.05)).any()


def texts_at(rows):
    """Return texts of one word whose hidden state and embedding are the two halves of a row."""
    states = np.clip(np.round(rows * 20) + ZERO, 0, 255).astype(np.uint8).reshape(len(rows), 1, 2, -1)
    zero = np.zeros(1)
    text = TokenizedText("a", np.array([0]), np.array([1]), np.arange(2), zero, zero, 0, False)
    return EncodedTexts([text] * len(rows), list(states))


@pytest.mark.parametrize(("unusual_are_correct", "rate"), [(False, 0.05), (True, 0.0)])
def test_rows_are_flagged_only_if_they_are_less_often_correct(unusual_are_correct, rate):
    rng = np.random.default_rng(0)
    rows, others = rng.normal(size=(200, 8)), rng.normal(size=(60, 8)) + 4 * np.eye(8)[0]
    folds = [np.arange(200)[i::5] for i in range(5)]
    unusual = rows[:, 0] > np.quantile(rows[:, 0], 0.8)
    correct = np.where(unusual, unusual_are_correct, rng.random(200) < 0.8).astype(float)
    score = ood.calibrate(texts_at(rows), [texts_at(others)], folds, correct)
    assert score.rate == rate
    assert ((score.held_out > 0).sum() > 0) == (rate > 0)
    assert (score.held_out > 0).mean() <= 0.05


def test_pretrained_head_flags_other_languages(pretrained):
    """Their words consist of tokens of the vocabulary, so most of them are known."""
    foreign = [answer.abstain_reason for answer in pretrained.classify(OTHER_LANGUAGES)]
    english = [answer.abstain_reason for answer in pretrained.classify(ood.english_sentences())]
    assert set(foreign) == {"out_of_distribution", "no_known_words"}
    assert foreign.count("out_of_distribution") >= 6
    assert english.count("out_of_distribution") <= 0.03 * len(english)
