"""A crowd of callers on keep-alive connections: asks a mix at a given pace and keeps count of it all.

It sees what a caller sees, and nothing inside the server.
"""

import asyncio
import random
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from benchmarks.load import CHUNKED, is_complete, unchunk
from tests.soak.mix import REFUSALS, Mix, Question
from tests.support.wire import find_fault

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

    def quantile_s(self, share: float, *kinds: str) -> float:
        """What `share` of the accepted took less than: of all of them, or those of some kinds."""
        ranked = sorted(took for kind in kinds or self.took_s for took in self.took_s[kind])
        return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else float("inf")


class Crowd:
    """`size` callers; `per_second` bounds how often they ask together, None: as fast as they can."""

    def __init__(self, port: int, mix: Mix, size: int, per_second: float | None = None) -> None:
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

    async def rush(self, times: int, leaving: float, within_s: float) -> Tally:
        """Everybody at once, each `times` in a row; a share `leaving` hangs up at some moment `within_s`."""
        tally = Tally()

        async def call() -> None:
            line = _Line(self._port, tally)
            for _ in range(times):
                leaves = self._rng.random() < leaving
                await line.ask(self._question(), self._rng.uniform(0, within_s) if leaves else None)
            line.hang_up()

        await asyncio.gather(*(call() for _ in range(self._size)))
        return tally

    def _question(self) -> Question:
        [questions] = self._rng.choices(self._kinds, self._shares)
        return self._rng.choice(questions)

    async def _call_until(self, end: float, tally: Tally) -> None:
        line = _Line(self._port, tally)
        while time.perf_counter() < end:
            if self._gap:
                mine, self._next = self._next, max(self._next, time.perf_counter() - 1) + self._gap
                await asyncio.sleep(max(0.0, mine - time.perf_counter()))
            question = self._question()
            await line.ask(question, 0.001 if question.leaves else None)
        line.hang_up()


class _Line:
    """A caller's connection, made anew when it broke or was hung up."""

    def __init__(self, port: int, tally: Tally) -> None:
        self._port = port
        self._tally = tally
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, question: Question, leave_after_s: float | None) -> None:
        """One question, and what came back; or the caller hangs up if nothing has come by then."""
        patience_s = PATIENCE_S if leave_after_s is None else leave_after_s
        began = time.perf_counter()
        try:
            self._open = self._open or await asyncio.open_connection("127.0.0.1", self._port)
            reader, writer = self._open
            writer.write(question.request)
            head, body = await asyncio.wait_for(_read(reader), patience_s)
        except (OSError, EOFError, TimeoutError) as failure:
            if leave_after_s is not None and isinstance(failure, TimeoutError):
                self._tally.left += 1
            else:
                self._tally.broken.append(f"{question.kind}: {failure!r}")
            self.hang_up()
            return
        _count(question, head, body, time.perf_counter() - began, self._tally)
        if b"connection: close" in head.lower():
            self.hang_up()

    def hang_up(self) -> None:
        if self._open:
            self._open[1].close()
            self._open = None


async def _read(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Head and content of an answer."""
    answer = b""
    while not is_complete(answer):
        piece = await reader.read(1 << 18)
        if not piece:
            raise EOFError(f"the connection ended after {len(answer)} bytes")
        answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, unchunk(body) if CHUNKED.search(head) else body


def _count(question: Question, head: bytes, body: bytes, seconds: float, tally: Tally) -> None:
    status = int(head[9:12])
    tally.answers[question.kind, status] += 1
    if status >= 400 and (fault := find_fault(status, head, body, protocol=question.protocol)):
        tally.wrong.append(f"{question.kind}: {fault}")
    elif status in REFUSALS:
        tally.refused += 1
    elif status not in question.statuses:
        tally.wrong.append(f"{question.kind}: {status} {body[:200]!r}")
    else:
        tally.took_s[question.kind].append(seconds)
        if problem := question.judge(body):
            tally.wrong.append(f"{question.kind}: {problem}")
