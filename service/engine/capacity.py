"""How much may be here at once: requests, and bytes of their bodies and of long answers."""

from __future__ import annotations

import threading

from service.errors import Cancelled, Overloaded, TooLarge


class Places:
    """Lets at most `limit` requests in at once. Each one that enters must leave."""

    def __init__(self, limit: int) -> None:
        self.here = 0
        self._limit = limit

    def check(self) -> None:
        """Refuse who comes while all places are taken."""
        if self.here >= self._limit:
            raise Overloaded("too many requests at once (MAX_CONCURRENT_REQUESTS); try again shortly")

    def enter(self) -> None:
        self.check()
        self.here += 1

    def leave(self) -> None:
        self.here -= 1


class Room:
    """Counts and bounds the bytes of bodies and answers. What is held must be given back. Thread-safe."""

    def __init__(self, one: int, all_together: int) -> None:
        self.held = 0
        self._one = one
        self._all_together = all_together
        self._lock = threading.Lock()

    def check(self, size: int) -> None:
        """Refuse a body that is larger than one may be, by its announced length or by what has arrived."""
        if size > self._one:
            raise TooLarge(f"the body is over the limit of {self._one / 1e6:g} MB (PAYLOAD_LIMIT_MB)")

    def check_together(self, size: int) -> None:
        """Refuse a request that with its answer would not have room even alone."""
        if size > self._all_together:
            limit = f"{self._all_together / 1e6:g} MB (PAYLOAD_TOTAL_MB)"
            raise TooLarge(f"the request and its answer would be over {limit}: ask for less at once")

    def hold(self, size: int) -> None:
        """Take room for bytes that have arrived, or that an answer takes."""
        with self._lock:
            if self.held + size > self._all_together:
                raise Overloaded("too many bytes at once (PAYLOAD_TOTAL_MB); try again shortly")
            self.held += size

    def give_back(self, size: int) -> None:
        with self._lock:
            self.held -= size


class Holding:
    """The room of one request: its body as it arrives, and its answer, expected before the work, until sent.

    A thread may still work for a caller who has left: what it asks for then is refused.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._body = 0
        self._answer = 0
        self._written = 0
        self._over = False
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """So many bytes of the body arrived."""
        self._room.check(self._body + size)
        self._room.hold(size)
        self._body += size

    def expect(self, size: int) -> None:
        """The answer takes about this: called before the work, and again when more is known."""
        self._room.check_together(self._body + size)
        with self._lock:
            if self._over:
                raise Cancelled("the request is over")
            if size > self._answer:
                self._room.hold(size - self._answer)
                self._answer = size

    def add(self, size: int) -> None:
        """So many bytes more of the answer were written."""
        self._written += size
        self.expect(self._written)

    def give_back(self) -> None:
        with self._lock:
            self._over = True
            self._room.give_back(self._body + self._answer)
            self._body = self._answer = 0
