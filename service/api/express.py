"""The express lane: short texts, answered on the event loop without a task, a queue or a thread of their own.

Making a task and waking a thread take longer than the inference of a short text. So what one round of the
loop brings is one inference, and its answers are written in the same round. The lane only knows how to
succeed: whatever is unusual about a request - its headers, its body, its model, a failure while it runs - is
handed over to the gate, which knows how to refuse.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import orjson
from pydantic import ValidationError

from service.api.classify import How, answer_of, choose, is_brief, run_texts, size_of
from service.api.exchange import JSON, request_id
from service.api.inflight import InFlight
from service.api.keys import Keys
from service.api.problems import STATUS
from service.errors import Cancelled, HardmaxError, Unauthorized
from service.gathering import Gathering
from service.logs import AccessLog
from service.metrics import Metrics
from service.registry import Registry
from service.schemas import ClassifyRequest
from service.settings import Settings

log = logging.getLogger(__name__)

METHOD, PATH = "POST", "/classify"
LONGEST_BODY = 4096  # bytes
RUN_TOKENS = 2048  # of one run: a few milliseconds, in which the loop does nothing else
# Headers that ask for something this lane does not do.
UNUSUAL = frozenset((b"origin", b"content-encoding", b"transfer-encoding", b"expect", b"traceparent"))


class Caller(Protocol):
    """Who waits at the other end of a connection."""

    def answer(self, request_id: bytes, body: bytes) -> bool:
        """Send status 200 with this body; False when nobody is there any more."""

    def hand_over(self) -> None:
        """Let the gate answer instead."""


class Ticket(NamedTuple):
    """A request in the lane."""

    caller: Caller
    request_id: bytes
    model: str
    how: How
    texts: Sequence[str]
    single: bool
    tokens: int  # about
    began: float


class Express:
    """Belongs to one event loop."""

    def __init__(
        self,
        registry: Registry,
        settings: Settings,
        keys: Keys,
        inflight: InFlight,
        metrics: Metrics,
        access: AccessLog,
        is_open: Callable[[], bool],
    ) -> None:
        self._registry = registry
        self._settings = settings
        self._keys = keys
        self._inflight = inflight
        self._metrics = metrics
        self._access = access
        self._is_open = is_open
        self._waiting: deque[Ticket] = deque()
        self._gathering = Gathering(self._waiting, self._next)

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, headers: Mapping[bytes, bytes], body: bytes, caller: Caller) -> bool:
        """Take the request: `caller` will be answered or handed over. False if it is not for this lane."""
        if not self._is_open() or len(body) > LONGEST_BODY or not self._admits(headers):
            return False
        began = time.perf_counter()
        try:
            request = ClassifyRequest.model_validate_json(body)
            model, how, texts = choose(request, self._registry, self._settings)
        except (ValidationError, HardmaxError):
            return False
        tokens = sum([size_of(text) for text in texts])
        if not is_brief(how, tokens):
            return False
        single = texts is not request.input
        self._waiting.append(Ticket(caller, request_id(headers), model, how, texts, single, tokens, began))
        self._gathering.call()
        return True

    def _admits(self, headers: Mapping[bytes, bytes]) -> bool:
        if not UNUSUAL.isdisjoint(headers) or headers.get(b"content-type", JSON) != JSON:
            return False
        if self._keys:
            try:
                self._keys.check(headers)
            except Unauthorized:
                return False
        return not self._inflight.draining and not self._inflight.is_full(besides=len(self._waiting))

    def _next(self) -> None:
        """Run what waits, or the first of it: the loop breathes before the rest."""
        batch = self._take()
        if self._waiting:
            self._gathering.call()
        self._run(batch)

    def _take(self) -> list[Ticket]:
        """The first in the lane and those behind it that want the same, as many as one run may have."""
        how = self._waiting[0].how
        batch: list[Ticket] = []
        others: list[Ticket] = []
        tokens = 0
        while self._waiting and tokens + self._waiting[0].tokens <= RUN_TOKENS:
            ticket = self._waiting.popleft()
            if ticket.how == how:
                batch.append(ticket)
                tokens += ticket.tokens
            else:
                others.append(ticket)
        self._waiting.extendleft(reversed(others))
        return batch

    def _run(self, batch: Sequence[Ticket]) -> None:
        texts = [text for ticket in batch for text in ticket.texts]
        started = time.perf_counter()
        try:
            results = run_texts(batch[0].how, texts, self._metrics.tokenise.observe)
        except BaseException:  # the edge of a worker loop: the batcher finds out whose fault it is, or dies
            log.warning("a run of %d texts failed; handed over", len(texts), exc_info=True)
            for ticket in batch:
                ticket.caller.hand_over()
            return
        ended = time.perf_counter()
        first = 0
        for ticket in batch:
            self._answer(ticket, results[first : first + len(ticket.texts)])
            first += len(ticket.texts)
        tokens = sum([ticket.tokens for ticket in batch])
        self._metrics.batch_ran(len(texts), tokens, started - batch[0].began, ended - started)

    def _answer(self, ticket: Ticket, results: Sequence[dict[str, Any] | Exception]) -> None:
        name = ticket.request_id.decode("ascii")
        try:
            answer = answer_of(name, ticket.model, results, single=ticket.single)
        except HardmaxError:
            ticket.caller.hand_over()
            return
        status = 200
        if not ticket.caller.answer(ticket.request_id, orjson.dumps(answer)):
            status, reason = STATUS[Cancelled]
            self._metrics.failed(reason)
        seconds = time.perf_counter() - ticket.began
        self._metrics.answered(PATH, METHOD, status, seconds)
        self._access.write(name, METHOD, PATH, status, seconds)
