"""How many requests run at once, and how many of them may be large.

Together with PAYLOAD_LIMIT_MB they bound the memory of a process: at most MAX_CONCURRENT_REQUESTS small
requests and MAX_LARGE_REQUESTS large ones.
"""

import asyncio

from service.errors import Overloaded, TooLarge

LARGE_BYTES = 1_000_000  # a body or a response over this takes one of MAX_LARGE_REQUESTS slots
MAX_RESPONSE_BYTES = 256_000_000


class ConcurrencyLimit:
    """Count the requests that run, and refuse those over the limit."""

    def __init__(self, max_requests: int) -> None:
        self.running = 0
        self._max_requests = max_requests

    def __enter__(self) -> None:
        """Count one more request. Raise Overloaded if there are MAX_CONCURRENT_REQUESTS already."""
        if self.running >= self._max_requests:
            raise Overloaded("too many requests at once (MAX_CONCURRENT_REQUESTS); try again shortly")
        self.running += 1

    def __exit__(self, *failure: object) -> None:
        self.running -= 1


class RequestSize:
    """The size of one request: its body, or its response where that is larger."""

    __slots__ = ("_has_slot", "_slots", "estimate")

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self.estimate = 0
        self._slots = slots
        self._has_slot = False

    def check_response(self, size: int) -> None:
        """Refuse a response of more than MAX_RESPONSE_BYTES."""
        if size > MAX_RESPONSE_BYTES:
            limit = f"{MAX_RESPONSE_BYTES / 1e6:g} MB"
            raise TooLarge(f"the response would be over {limit}: send less at once, or ask for less")

    async def expect_response(self, size: int) -> None:
        """Wait for a slot if the response is estimated to be large."""
        self.check_response(size)
        await self.expect(size)

    async def expect(self, size: int) -> None:
        """Wait for one of MAX_LARGE_REQUESTS slots if the request is large and has none yet."""
        self.estimate = max(self.estimate, size)
        if size > LARGE_BYTES and not self._has_slot:
            await self._slots.acquire()
            self._has_slot = True

    def release(self) -> None:
        """Give the slot back. Called once the request is answered."""
        if self._has_slot:
            self._has_slot = False
            self._slots.release()
