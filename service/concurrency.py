"""How large requests may be, and how many large ones run at once.

Together with PAYLOAD_LIMIT_MB they bound the memory of a process: at most MAX_CONCURRENT_REQUESTS small
requests and MAX_LARGE_REQUESTS large ones.
"""

import asyncio

from service.errors import TooLarge

LARGE_BYTES = 1_000_000  # a body or a response over this takes one of MAX_LARGE_REQUESTS slots
MAX_RESPONSE_BYTES = 256_000_000


class RequestSize:
    """The size of one request: its body, or its response where that is larger."""

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self.response_bytes = 0  # that are expected
        self._slots = slots
        self._has_slot = False

    async def expect_response(self, size: int) -> None:
        """Refuse a response of more than MAX_RESPONSE_BYTES; wait for a slot if it is large."""
        self.response_bytes = size
        if size > MAX_RESPONSE_BYTES:
            limit = f"{MAX_RESPONSE_BYTES / 1e6:g} MB"
            raise TooLarge(f"the response would be over {limit}: send less at once, or ask for less")
        if size > LARGE_BYTES:
            await self.take_slot()

    async def take_slot(self) -> None:
        """Wait for one of MAX_LARGE_REQUESTS slots, unless the request has one."""
        if not self._has_slot:
            await self._slots.acquire()
            self._has_slot = True

    def release(self) -> None:
        """Give the slot back. Called once the request is answered."""
        if self._has_slot:
            self._has_slot = False
            self._slots.release()
