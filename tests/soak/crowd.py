"""A crowd of callers on keep-alive connections: asks a mix at a given pace and keeps count of it all.

Knows what a caller sees, and nothing of the server's insides.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from benchmarks.load import CHUNKED, is_complete, unchunk
from tests.soak.mix import OVERLOADED, Question

PATIENCE_S = 70.0


@dataclass
class Tally:
    """What came back: by kind and status, how long the accepted ones took, and everything that was wrong."""

    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    took_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    refused: int = 0
    left: int = 0
    wrong: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    @property
    def asked(self) -> int:
        return sum(self.answers.values()) + self.left + len(self.broken)

    @property
    def accepted_s(self) -> list[float]:
        return [seconds for each in self.took_s.values() for seconds in each]

    def quantile_s(self, share: float, kind: str | None = None) -> float:
        """What `share` of the accepted took less than: of all of them, or those of one kind."""
        ranked = sorted(self.took_s[kind] if kind else self.accepted_s)
        return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else float("inf")


class Crowd:
    """`size` callers; `per_second` bounds how often they ask together, None: as fast as they can."""

    def __init__(
        self, port: int, mix: list[tuple[float, list[Question]]], size: int, per_second: float | None = None
    ) -> None:
        self._port = port
        self._shares = [share for share, _ in mix]
        self._kinds = [questions for _, questions in mix]
        self._size = size
        self._gap = 1 / per_second if per_second else 0.0
        self._next = 0.0
        self._rng = random.Random(7)

    async def ask_for(self, seconds: float) -> Tally:
        tally = Tally()
        self._next = time.perf_counter()
        end = self._next + seconds
        await asyncio.gather(*(self._call_until(end, tally) for _ in range(self._size)))
        return tally

    async def _call_until(self, end: float, tally: Tally) -> None:
        connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        while time.perf_counter() < end:
            if self._gap:
                mine, self._next = self._next, max(self._next, time.perf_counter() - 1) + self._gap
                await asyncio.sleep(max(0.0, mine - time.perf_counter()))
            [questions] = self._rng.choices(self._kinds, self._shares)
            question = self._rng.choice(questions)
            try:
                connection = connection or await asyncio.open_connection("127.0.0.1", self._port)
                keep = await asyncio.wait_for(_ask(*connection, question, tally), PATIENCE_S)
            except (OSError, EOFError, TimeoutError) as failure:
                tally.broken.append(f"{question.kind}: {failure!r}")
                keep = False
            if not keep and connection:
                connection[1].close()
                connection = None
        if connection:
            connection[1].close()


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, question: Question, tally: Tally
) -> bool:
    """One question on a connection; whether the connection can be used again."""
    began = time.perf_counter()
    writer.write(question.request)
    if question.leaves:
        await asyncio.sleep(0.001)
        tally.left += 1
        return False
    answer = b""
    while not is_complete(answer):
        piece = await reader.read(1 << 18)
        if not piece:
            raise EOFError(f"the connection ended after {len(answer)} bytes")
        answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    _count(
        question, head, unchunk(body) if CHUNKED.search(head) else body, time.perf_counter() - began, tally
    )
    return b"connection: close" not in head.lower()


def _count(question: Question, head: bytes, body: bytes, seconds: float, tally: Tally) -> None:
    status = int(head[9:12])
    tally.answers[question.kind, status] += 1
    if status == OVERLOADED:
        tally.refused += 1
        if b"retry-after:" not in head.lower():
            tally.wrong.append(f"{question.kind}: 429 without Retry-After")
    elif status not in question.statuses:
        tally.wrong.append(f"{question.kind}: {status} {body[:200]!r}")
    else:
        tally.took_s[question.kind].append(seconds)
        if problem := question.judge(body):
            tally.wrong.append(f"{question.kind}: {problem}")
