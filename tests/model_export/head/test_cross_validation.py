"""What is measured of a head: a row is judged by what was chosen from other rows."""

import numpy as np

from evaluation.labels import Rows
from model_export.head.cross_validation import HeldOutPredictions, _f1_thresholds


def test_row_is_measured_with_thresholds_that_other_rows_chose():
    """One row of a hundred has the label: only by itself would it get a threshold below its .3."""
    truth = [("late",)] + [()] * 99
    rows = Rows([f"text {i}" for i in range(100)], truth, ("late",), True, [])
    said = np.log(np.array([[0.3 / 0.7], *[[0.1 / 0.9]] * 99]))
    whole, each = _f1_thresholds(HeldOutPredictions(np.arange(100), said, [{}] * 100, 0, 1.0), rows)
    assert whole[0] <= 0.3
    assert each[0] == (0.5,)
    assert each[1] == each[99] == whole
