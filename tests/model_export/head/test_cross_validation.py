"""Cross-validation: thresholds for a row are chosen from other rows."""

import numpy as np

from evaluation.labels import Rows
from model_export.head.cross_validation import HeldOutPredictions, _f1_thresholds


def test_thresholds_for_a_row_are_chosen_from_other_rows():
    """One row of a hundred has the label: only its own probability of .3 gives a threshold below .5."""
    truth = [("late",)] + [()] * 99
    rows = Rows([f"text {i}" for i in range(100)], truth, ("late",), True, [])
    logits = np.log(np.array([[0.3 / 0.7], *[[0.1 / 0.9]] * 99]))
    overall, per_row = _f1_thresholds(HeldOutPredictions(np.arange(100), logits, [] * 100, 0, 1.0), rows)
    assert overall[0] <= 0.3
    assert per_row[0] == (0.5,)
    assert per_row[1] == per_row[99] == overall
