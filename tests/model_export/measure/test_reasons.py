"""Reasons of the torch model on a plane where every leader is known by hand (bundles.plane_weights)."""

from __future__ import annotations

import numpy as np
import pytest
from bundles import plane_weights

from model_export.measure.reasons import Reason, alone, reasons
from model_export.sentiment.model import HardmaxTransformer, Weights
from model_export.train.fit import logits
from model_export.train.material import Texts

WEIGHTS = plane_weights()
WORDS = WEIGHTS.words


@pytest.fixture
def model():
    return HardmaxTransformer.of(WEIGHTS)


def texts(*said):
    return Texts.of([[WORDS.index(word) for word in text.split()] for text in said], [1.0] * len(said), 100)


def test_followers_count_for_their_leader(model):
    (reason,) = reasons(model, texts("good superb bad awful"), np.array([0]))
    assert reason.leader.tolist() == [1, 1, 3, 3]
    follower = 4 + (1 - 4) / 4  # two layers of alpha = 1 leave a quarter of the way; the weights are 1 of 4
    assert reason.evidence[[1, 3]].tolist() == pytest.approx(
        [(4 + follower) / 4, -(4 + follower) / 4], rel=1e-5
    )
    assert reason.logit == pytest.approx(float(WEIGHTS.bias[0]) + reason.evidence.sum(), rel=1e-6)


def test_reasons_come_in_the_order_asked_for_and_agree_with_the_model(model):
    some = texts("superb", "the film of awful waste .", "good film")
    found = reasons(model, some, np.array([2, 0, 1]))
    assert [len(reason.leader) for reason in found] == [2, 1, 6]
    expected = logits(model, some)[[2, 0, 1], 0]
    assert [reason.logit for reason in found] == pytest.approx(expected.tolist(), abs=1e-5)


def test_carriers_are_the_fewest_clusters_with_nine_tenths_of_the_evidence():
    reason = Reason(0.0, np.array([0, 1, 2, 3]), np.array([0.1, -5.0, 3.0, 0.05]))
    assert reason.heaviest.tolist() == [1, 2, 0, 3]
    assert reason.carriers().tolist() == [1, 2]
    assert reason.carriers(0.5).tolist() == [1]
    assert reason.kept(1).tolist() == [0, 1, 2, 3]


def test_a_text_alone_keeps_its_carriers_and_the_words_around(model):
    said = "the of the of superb of the of the of the of time"
    cut = alone(model, texts(said))
    words = [WORDS[i] for i in cut.text(0)]
    assert "superb" in words
    assert len(words) < len(said.split())
    assert cut.targets.tolist() == [1.0]


def test_weights_survive_a_file_and_answer_the_same(model, tmp_path):
    WEIGHTS.save(tmp_path / "w.npz")
    again = HardmaxTransformer.of(Weights.load(tmp_path / "w.npz"))
    some = texts("the film of awful waste .", "not good superb")
    np.testing.assert_array_equal(logits(model, some), logits(again, some))
