"""How much may be here at once: requests, and bytes of their bodies and of long answers."""

from __future__ import annotations

from collections.abc import Sequence

from service.errors import Overloaded, TooLarge


class Places:
    """Lets at most `limit` requests in at once. Each one that enters must leave."""

    def __init__(self, limit: int) -> None:
        self.here = 0
        self._limit = limit

    def enter(self) -> None:
        if self.here >= self._limit:
            raise Overloaded("too many requests at once (MAX_CONCURRENT_REQUESTS); try again shortly")
        self.here += 1

    def leave(self) -> None:
        self.here -= 1


class Room:
    """Counts the bytes of bodies and long answers, and bounds them. What is held must be given back."""

    def __init__(self, one: int, all_together: int) -> None:
        self.held = 0
        self.passed = 0  # since memory was last given back to the system
        self._one = one
        self._all_together = all_together

    def check(self, size: int) -> None:
        """Refuse a body that is larger than one may be, by its announced length or by what has arrived."""
        if size > self._one:
            raise TooLarge(f"the body is over the limit of {self._one / 1e6:g} MB (PAYLOAD_LIMIT_MB)")

    def check_answer(self, size: int) -> None:
        """Refuse an answer that would not have room even alone."""
        if size > self._all_together:
            limit = f"{self._all_together / 1e6:g} MB (PAYLOAD_TOTAL_MB)"
            raise TooLarge(f"the answer is over {limit}: include less, or raise trajectory_every")

    def hold(self, size: int) -> None:
        """Take room for bytes that have arrived."""
        if self.held + size > self._all_together:
            raise Overloaded("too many bytes at once (PAYLOAD_TOTAL_MB); try again shortly")
        self.held += size
        self.passed += size

    def give_back(self, size: int) -> None:
        self.held -= size


class Holding:
    """What one long answer holds until it is sent."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._size = 0

    def add(self, parts: Sequence[bytes]) -> None:
        size = sum(map(len, parts))
        self._room.check_answer(self._size + size)
        self._room.hold(size)
        self._size += size

    def give_back(self) -> None:
        self._room.give_back(self._size)
        self._size = 0
