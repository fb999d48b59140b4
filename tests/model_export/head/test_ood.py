"""What is called unlike the rows: 5 % of what is like them, and what is written in another language."""

import numpy as np
import pytest

from hardmax import Local
from model_export.head import ood
from model_export.head.cross_validation import OOD_FALSE_POSITIVE_RATE
from model_export.head.encoded import encode_texts
from model_export.head.train import open_reader
from service.settings import BUNDLED_MODELS

STRANGE = """Gozdovi so pozimi tihi in sneg prekriva steze.
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
SAID = ("was cold again", "came late and burnt", "tasted wonderful", "is worth every penny", "was salty")


@pytest.fixture(scope="module")
def reader():
    return open_reader(BUNDLED_MODELS / "reader")[1]


def test_languages_that_nobody_taught_are_unlike_rows_of_one_subject(reader):
    """None of them is in ood_languages.txt. The threshold flags a twentieth of the rows, too."""
    states, _ = encode_texts(reader, [f"{food} {said}." for food in FOOD for said in SAID])
    others = [encode_texts(reader, each)[0] for each in (ood.english_sentences(), ood.foreign_sentences())]
    parts = [np.arange(len(states))[i::5] for i in range(5)]
    found, held, known = ood.calibrate(states, others, parts, OOD_FALSE_POSITIVE_RATE)
    assert (held > 0).sum() <= 2  # of 40
    assert known >= 0.9
    assert (ood.scores(found, encode_texts(reader, STRANGE)[0]) > 0).sum() >= 9


def test_two_thresholds_together_let_a_twentieth_through():
    held = np.random.default_rng(0).normal(size=(1000, 2)) * (1, 50)
    above = held > ood._thresholds(held, OOD_FALSE_POSITIVE_RATE)
    assert above.any(1).sum() in (49, 50)
    assert above.sum(0) == pytest.approx(25, abs=8)


def test_the_bundled_head_says_of_other_languages_that_it_does_not_know_them():
    """Pieces of the vocabulary spell them, so most of their words are known."""
    with Local() as model:
        strange = [answer.undecided for answer in model.classify(STRANGE)]
        english = [answer.undecided for answer in model.classify(ood.english_sentences())]
    assert set(strange) == {"unlike the rows", "nothing known"}
    assert strange.count("unlike the rows") >= 6
    assert english.count("unlike the rows") <= 0.03 * len(english)
