"""The layer that is timed is the layer that the peers compute."""

import numpy as np

from benchmarks.clouds import Ours, gaussian, numpy_layer


def test_ours_and_the_peer_take_the_same_step():
    points = gaussian(300, 3)
    np.testing.assert_allclose(Ours()(points), numpy_layer()(points, points), atol=1e-12)
