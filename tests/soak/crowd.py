"""A crowd of callers on keep-alive connections: sends a mix of requests at a given rate, counts the results.

It observes only what a caller observes, and nothing inside the server.
"""

import asyncio
import random
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tests.soak.mix import REFUSAL_STATUSES, Mix, Scenario
from tests.support.raw_http import CHUNKED, find_defect, is_complete, unchunk

TIMEOUT_S = 70.0


@dataclass
class Tally:
    """The results: statuses by kind, durations of accepted requests, and everything that went wrong."""

    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    durations_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    refused: int = 0
    disconnected: int = 0
    wrong_answers: list[str] = field(default_factory=list)
    broken_connections: list[str] = field(default_factory=list)

    @property
    def requests(self) -> int:
        return sum(self.answers.values()) + self.disconnected + len(self.broken_connections)

    @property
    def accepted_s(self) -> list[float]:
        return [seconds for durations_s in self.durations_s.values() for seconds in durations_s]

    def quantile_s(self, share: float, *kinds: str) -> float:
        """Return the duration that `share` of the accepted requests (of some kinds) stay below."""
        ranked = sorted(seconds for kind in kinds or self.durations_s for seconds in self.durations_s[kind])
        return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else float("inf")


class Crowd:
    """`size` callers; `per_second` bounds their common request rate, None: as fast as they can."""

    def __init__(self, port: int, mix: Mix, size: int, per_second: float | None = None) -> None:
        self._port = port
        self._shares = [share for share, _ in mix]
        self._kinds = [scenarios for _, scenarios in mix]
        self._size = size
        self._interval_s = 1 / per_second if per_second else 0.0
        self._next_s = 0.0
        self._rng = random.Random(7)

    async def run(self, seconds: float) -> Tally:
        tally = Tally()
        self._next_s = time.perf_counter()
        end_s = self._next_s + seconds
        await asyncio.gather(*(self._call_until(end_s, tally) for _ in range(self._size)))
        return tally

    async def burst(self, times: int, leaving: float, within_s: float) -> Tally:
        """Send `times` requests per caller, all callers at once; a share `leaving` disconnects `within_s`."""
        tally = Tally()

        async def call() -> None:
            connection = _Connection(self._port, tally)
            for _ in range(times):
                leaves = self._rng.random() < leaving
                await connection.send(self._draw(), self._rng.uniform(0, within_s) if leaves else None)
            connection.close()

        await asyncio.gather(*(call() for _ in range(self._size)))
        return tally

    def _draw(self) -> Scenario:
        [scenarios] = self._rng.choices(self._kinds, self._shares)
        return self._rng.choice(scenarios)

    async def _call_until(self, end_s: float, tally: Tally) -> None:
        connection = _Connection(self._port, tally)
        while time.perf_counter() < end_s:
            if self._interval_s:
                start_s, self._next_s = self._next_s, max(self._next_s, time.perf_counter() - 1)
                self._next_s += self._interval_s
                await asyncio.sleep(max(0.0, start_s - time.perf_counter()))
            scenario = self._draw()
            await connection.send(scenario, 0.001 if scenario.disconnects else None)
        connection.close()


class _Connection:
    """A caller's connection, opened again after it broke or was closed."""

    def __init__(self, port: int, tally: Tally) -> None:
        self._port = port
        self._tally = tally
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, scenario: Scenario, leave_after_s: float | None) -> None:
        """Send a request and count its response; disconnect if none has come after `leave_after_s`."""
        timeout_s = TIMEOUT_S if leave_after_s is None else leave_after_s
        start_s = time.perf_counter()
        try:
            self._streams = self._streams or await asyncio.open_connection("127.0.0.1", self._port)
            reader, writer = self._streams
            writer.write(scenario.request)
            head, body = await asyncio.wait_for(_read(reader), timeout_s)
        except (OSError, EOFError, TimeoutError) as failure:
            if leave_after_s is not None and isinstance(failure, TimeoutError):
                self._tally.disconnected += 1
            else:
                self._tally.broken_connections.append(f"{scenario.kind}: {failure!r}")
            self.close()
            return
        _count(scenario, head, body, time.perf_counter() - start_s, self._tally)
        if b"connection: close" in head.lower():
            self.close()

    def close(self) -> None:
        if self._streams:
            self._streams[1].close()
            self._streams = None


async def _read(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read the head and the content of a response."""
    response = b""
    while not is_complete(response):
        data = await reader.read(1 << 18)
        if not data:
            raise EOFError(f"the connection ended after {len(response)} bytes")
        response += data
    head, _, body = response.partition(b"\r\n\r\n")
    return head, unchunk(body) if CHUNKED.search(head) else body


def _count(scenario: Scenario, head: bytes, body: bytes, seconds: float, tally: Tally) -> None:
    status = int(head[9:12])
    tally.answers[scenario.kind, status] += 1
    if status >= 400 and (fault := find_defect(status, head, body, protocol=scenario.protocol)):
        tally.wrong_answers.append(f"{scenario.kind}: {fault}")
    elif status in REFUSAL_STATUSES:
        tally.refused += 1
    elif status not in scenario.statuses:
        tally.wrong_answers.append(f"{scenario.kind}: {status} {body[:200]!r}")
    else:
        tally.durations_s[scenario.kind].append(seconds)
        if fault := scenario.check(body):
            tally.wrong_answers.append(f"{scenario.kind}: {fault}")
