"""Scores, compared with results by hand."""

import math

import numpy as np
import pytest

from model_export.measure.scores import fit_logit_scale, score, sigmoid


def test_scores_of_four_answers():
    scores = score([2.0, -1.0, 0.5, -3.0], [1, 1, 0, 0])
    assert scores.accuracy == 0.5
    assert scores.confusion == ((1, 1), (1, 1))
    assert scores.f1 == 0.5
    losses = [math.log1p(math.exp(x)) for x in (-2, 1, 0.5, -3)]
    assert scores.log_loss == pytest.approx(sum(losses) / 4)
    assert score([0.0], [0]).accuracy == 1.0, "a logit of zero is negative"
    assert score([-1.0, -2.0], [0, 0]).f1 == 0.0, "undefined for one class"


def test_calibration_error_is_confidence_minus_accuracy():
    certain = math.log(0.9 / 0.1)
    assert score([certain] * 10, [1] * 9 + [0]).calibration_error == pytest.approx(0.0, abs=1e-12)
    assert score([certain] * 10, [1] * 5 + [0] * 5).calibration_error == pytest.approx(0.4)


def test_calibrated_probabilities_have_no_error_at_any_scale():
    rng = np.random.default_rng(0)
    logit = rng.normal(0, 2, 20_000)
    truth = rng.random(len(logit)) < sigmoid(logit)
    assert score(logit, truth).calibration_error < 0.01
    assert fit_logit_scale(logit, truth) == pytest.approx(1.0, abs=0.03)
    assert fit_logit_scale(2 * logit, truth) == pytest.approx(0.5, abs=0.02)


def test_sigmoid_does_not_overflow():
    assert sigmoid([-1e4, 0.0, 1e4]).tolist() == [0.0, 0.5, 1.0]
