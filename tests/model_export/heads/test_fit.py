"""How sure a plane may be of what it says."""

import numpy as np
import pytest

from model_export.heads.fit import Task, temperature


def test_temperature_makes_said_what_is_right():
    """Of 100 rows at a logit of 4, 75 are right: sigmoid(x) = .75 at x = 1.10."""
    logits = np.where(np.arange(100) % 2, 4.0, -4.0)[:, None]
    positive = (np.arange(100) % 2).astype(np.float32)
    positive[:25] = 1 - positive[:25]
    targets = np.stack([1 - positive, positive], 1)
    assert 4 * temperature(logits, targets, Task(2, False)) == pytest.approx(1.1, abs=0.15)


def test_few_rows_that_are_all_right_do_not_make_it_certain():
    logits = np.array([[6.0], [-6.0]] * 4)
    targets = np.array([[0.0, 1.0], [1.0, 0.0]] * 4, np.float32)
    sure = 1 / (1 + np.exp(-6 * temperature(logits, targets, Task(2, False))))
    assert sure == pytest.approx(0.9, abs=0.03)
