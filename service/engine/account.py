"""The account of work: how many requests are worked on at once, and how many bytes they take.

A request holds a place from when its body is whole until its answer begins, and bytes for its body as it
arrives, for its answer from before the work until it is sent. What waits for a caller's network is not held
for it: when the bytes are needed, those who send or read slowest lose their connection.
"""

import threading
import time
from collections.abc import Callable

from service.errors import Cancelled, Overloaded, TooLarge

SMALL = 1_000_000  # bytes: a request that takes no more, with its answer, may go over the total by a share
SHARE = 8  # an eighth of the total is kept for small requests, whatever large ones take
PATIENCE_S = 1.0  # how long a caller's network has before it counts as slow
FAST = 1_000_000  # bytes a second: nobody this fast is cut off


class RequestLimit:
    """Lets at most `most` requests in at once. Each one that enters must leave."""

    def __init__(self, most: int) -> None:
        self.here = 0
        self._most = most

    def check(self) -> None:
        """Refuse who comes while all places are taken."""
        if self.here >= self._most:
            raise Overloaded("too many requests at once (MAX_CONCURRENT_REQUESTS); try again shortly")

    def enter(self) -> None:
        self.check()
        self.here += 1

    def leave(self) -> None:
        self.here -= 1


class ByteBudget:
    """Counts and bounds the bytes of all bodies and answers. Thread-safe."""

    def __init__(self, one: int, total: int) -> None:
        self.held = 0
        self.one = one
        self.total = total
        self._waiting: set[Reservation] = set()  # those that wait for their callers' networks
        self.lock = threading.RLock()  # the reservations have no locks of their own: two could deadlock

    def move(self, change: int, asking: "Reservation", *, small: bool = False, refuse: bool = True) -> None:
        """Take bytes, or give them back. Who asks is not cut off: what it got then would be lost."""
        with self.lock:
            most = self.total + (self.total // SHARE if small else 0)
            if change > 0 and self.held + change > most:
                self._make_room(self.held + change - most, asking)
                if refuse and self.held + change > most:
                    raise Overloaded("too many bytes at once (PAYLOAD_TOTAL_MB); try again shortly")
            self.held += change

    def wait(self, reservation: "Reservation", waits: bool) -> None:
        with self.lock:
            (self._waiting.add if waits else self._waiting.discard)(reservation)

    def _make_room(self, needed: int, asking: "Reservation") -> None:
        """Cut off callers that are slow, the slowest first."""
        now = time.monotonic()
        others = self._waiting - {asking}
        slow = [(rate, each) for each in others if (rate := each.rate(now)) < FAST]
        for _, each in sorted(slow, key=lambda pair: pair[0]):
            if needed <= 0:
                return
            needed -= each.size
            each.cut()


class Reservation:
    """The bytes of one request. A thread may still work for a caller who has left: it is given nothing."""

    def __init__(self, budget: ByteBudget, cut: Callable[[], object] | None = None) -> None:
        self.size = 0
        self._budget = budget
        self._cut = cut
        self._body = 0
        self._written = 0
        self._waits_since: float | None = None  # for its caller's network
        self._moved = 0.0, 0  # when bytes went over it last, and how many
        self._pace = float("inf")  # bytes a second between the last two times
        self._over = False
        self._lock = budget.lock

    def check_body(self, size: int) -> None:
        """Refuse a body that is larger than one may be, by its announced length or by what has arrived."""
        if size > self._budget.one:
            raise TooLarge(f"the body is over the limit of {self._budget.one / 1e6:g} MB (PAYLOAD_LIMIT_MB)")

    def arrive(self, size: int, *, whole: bool) -> None:
        """So many bytes of the body arrived."""
        self.check_body(self._body + size)
        self._body += size
        self._resize(self._body)
        self._wait(not whole)
        self._move(size)

    def check(self, size: int) -> None:
        """Refuse an answer that would not have room even alone."""
        if self._body + size > self._budget.total:
            limit = f"{self._budget.total / 1e6:g} MB (PAYLOAD_TOTAL_MB)"
            raise TooLarge(f"the request and its answer would be over {limit}: ask for less at once")

    def expect(self, size: int) -> None:
        """The answer takes about this: called before the work, and again when more is known."""
        self.check(size)
        self._resize(max(self.size, self._body + size))

    def write(self, size: int) -> None:
        """So many bytes more of the answer were written."""
        self._written += size
        self.expect(self._written)

    def deliver(self, size: int) -> None:
        """The answer is whole. From now on it only waits for its caller.

        It is not refused any more: it is there, and to refuse it would take an answer too.
        """
        with self._lock:
            self._body = 0
            if not self._over:
                self._resize(size, refuse=False)
                self._wait(True)

    def sent(self, size: int) -> None:
        with self._lock:
            if self._waits_since is not None:
                self._resize(max(0, self.size - size))
                self._move(size)

    def rate(self, now: float) -> float:
        """Bytes a second over the network of late, where that is known."""
        if self._cut is None or self._waits_since is None or now - self._waits_since < PATIENCE_S:
            return float("inf")
        moved_at, moved = self._moved
        stalled_s = now - moved_at
        return min(self._pace, moved / stalled_s if stalled_s > PATIENCE_S else float("inf"))

    def cut(self) -> None:
        """Disconnect the caller: the bytes are free at once."""
        if self._cut is not None:
            self._cut()
        self.end()

    def end(self) -> None:
        with self._lock:
            if not self._over:
                self._wait(False)
                self._resize(0)
                self._over = True

    def _resize(self, size: int, *, refuse: bool = True) -> None:
        with self._lock:
            if self._over and size > self.size:
                raise Cancelled("the request is over")
            self._budget.move(size - self.size, self, small=size <= SMALL, refuse=refuse)
            self.size = size

    def _move(self, size: int) -> None:
        now = time.monotonic()
        self._pace = size / max(now - self._moved[0], 1e-6)
        self._moved = now, size

    def _wait(self, waits: bool) -> None:
        with self._lock:
            if self._over:
                return
            if waits and self._waits_since is None:
                self._waits_since = time.monotonic()
                self._moved = self._waits_since, 0
                self._pace = float("inf")
            elif not waits:
                self._waits_since = None
            self._budget.wait(self, waits)
