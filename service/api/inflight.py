"""The requests being worked on: how many there are, and the patrol that ends the late and the abandoned.

One patrol for all of them, a few times a second, instead of a timer and a watcher for each: most requests are
answered long before the patrol first comes by.
"""

from __future__ import annotations

import asyncio
import time

from service.api.exchange import Exchange

ROUND_S = 0.05


class InFlight:
    def __init__(self) -> None:
        self.draining = (
            False  # the service stops: what comes is still answered, connections are closed after it
        )
        self._exchanges: set[Exchange] = set()

    def __len__(self) -> int:
        return len(self._exchanges)

    def enter(self, exchange: Exchange) -> None:
        self._exchanges.add(exchange)

    def leave(self, exchange: Exchange) -> None:
        self._exchanges.discard(exchange)

    async def patrol(self) -> None:
        """Runs for the life of the service."""
        while True:
            await asyncio.sleep(ROUND_S)
            now = time.perf_counter()
            for exchange in tuple(self._exchanges):
                if now > exchange.deadline:
                    exchange.expire()
                elif now - exchange.started > ROUND_S:
                    exchange.watch()
