"""Waits, without a timer, until no more calls arrive in the present round of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sized

ENOUGH = 32


class Gathering:
    """Goes ahead once a round of the event loop has brought nothing more, or enough."""

    def __init__(self, waiting: Sized, go: Callable[[], None]) -> None:
        self._waiting = waiting
        self._go = go
        self._called = False

    def call(self) -> None:
        """Something waits: `go` will be called, once for all that come meanwhile."""
        if not self._called:
            self._called = True
            asyncio.get_running_loop().call_soon(self._look, 0)

    def _look(self, seen: int) -> None:
        there = len(self._waiting)
        if seen < there < ENOUGH:
            asyncio.get_running_loop().call_soon(self._look, there)
        else:
            self._called = False
            self._go()
