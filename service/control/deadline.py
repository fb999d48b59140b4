"""The time at which a search or a proof ends."""

import math
import time

from service.errors import DeadlineExceeded

DEADLINE_NOTE = "no matrix was found within the time this request may take"


class Deadline:
    """Raises DeadlineExceeded from `check` once `seconds` have passed."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def passed(self) -> bool:
        return time.monotonic() > self._end

    def check(self) -> None:
        """Raise if the deadline has passed."""
        if self.passed:
            raise DeadlineExceeded(DEADLINE_NOTE)


NO_DEADLINE = Deadline(math.inf)
