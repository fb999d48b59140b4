"""The requests being worked on: how many, how much they hold, and the patrol that ends the late.

One patrol for all of them, a few times a second, instead of a timer and a watcher for each: most requests are
answered long before the patrol first comes by.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial

from service.api.exchange import Exchange
from service.errors import Overloaded
from service.memory import find_trim

ROUND_S = 0.05
LARGE = 16_000_000  # bytes of bodies after which memory is given back, once there is a quiet moment


@dataclass(frozen=True)
class Capacity:
    """What may be here at once."""

    requests: int
    body_bytes: int  # of one request: a body over this is refused unread, and takes no room
    bytes: int  # of all bodies together


class InFlight:
    def __init__(self, capacity: Capacity) -> None:
        self.draining = False  # the service stops: what comes is still answered, then its connection closed
        self.body_bytes = 0  # of all bodies that are here or announced
        self._capacity = capacity
        self._held: dict[Exchange, int] = {}
        self._trim = find_trim()
        self._passed = 0  # bytes of bodies since memory was last given back

    def __len__(self) -> int:
        return len(self._held)

    def is_full(self, besides: int = 0) -> bool:
        """Whether there is no place for one more, where `besides` requests are worked on elsewhere."""
        return len(self._held) + besides >= self._capacity.requests

    def enter(self, exchange: Exchange) -> None:
        """Take a place, and room for the body: before it is read, or as it comes where no length is told."""
        if self.is_full():
            raise Overloaded("too many requests at once (MAX_CONCURRENT_REQUESTS); try again shortly")
        self._held[exchange] = 0
        announced = exchange.headers.get(b"content-length")
        if announced is None:
            exchange.hold = partial(self._hold, exchange)
        elif len(announced) <= 15 and announced.isdigit() and int(announced) <= self._capacity.body_bytes:
            self._hold(exchange, int(announced))

    def _hold(self, exchange: Exchange, size: int) -> None:
        if self.body_bytes + size > self._capacity.bytes:
            raise Overloaded("too many bytes of bodies at once (PAYLOAD_TOTAL_MB); try again shortly")
        self._held[exchange] += size
        self.body_bytes += size
        self._passed += size

    def leave(self, exchange: Exchange) -> None:
        self.body_bytes -= self._held.pop(exchange, 0)

    async def patrol(self) -> None:
        """Runs for the life of the service."""
        while True:
            await asyncio.sleep(ROUND_S)
            if self._passed > LARGE and not self.body_bytes:
                self._passed = 0
                await asyncio.to_thread(self._trim)
            now = time.perf_counter()
            for exchange in tuple(self._held):
                if now > exchange.deadline:
                    exchange.expire()
                elif now - exchange.started > ROUND_S:
                    exchange.watch()
