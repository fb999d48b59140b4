"""The bundled dynamics, for all tests of clouds."""

import pytest
from clouds import bundled

from service.clouds.dynamics import Dynamics


@pytest.fixture(scope="session")
def dynamics() -> Dynamics:
    return bundled()
