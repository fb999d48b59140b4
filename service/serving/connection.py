"""One HTTP connection: uvicorn's, with bounds on what a stranger can make it hold or wait for.

    the head of a request        64 kB, 100 fields, 10 s; trailers and chunk extensions count like a head
    the body                     1 kB a second at least; what comes after an early refusal is discarded
    requests that are queued     8 a connection, then it is not read until some are answered
    an answer                    read at 1 kB a second at least, or the connection is aborted
    connections                  as many as there are descriptors for; then the oldest half head is closed, or
                                 the longest silent one
    heads that are not whole     32 MB together; then the oldest is closed

An offer to change the protocol (h2c, WebSocket) is ignored. Trailers are never headers. A request that is
followed by what is not HTTP is answered, then the connection closes. What a proxy may read in another way is
refused: other versions of HTTP than 1.0 and 1.1, transfer codings other than chunked, and a target that names
another host than Host does. Refusals have the service's error shape.

An extension of uvicorn, and the only module that knows the inside of its HTTP protocol: a start with another
minor version of uvicorn than `UVICORN` stops with one line.
"""

from __future__ import annotations

import asyncio
import http
import json
import logging
import re
import secrets
from collections.abc import Callable
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from service.errors import ConfigurationError
from service.http.problems import document

log = logging.getLogger(__name__)

UVICORN = "0.54"
LARGEST_HEAD = 65_536
LARGEST_HEADS = 32_000_000  # bytes of all heads that are not whole
SLOW_HEAD_S = 1.0  # a head that is not whole after this gives way to a newcomer
MOST_FIELDS = 100
MOST_QUEUED = 8
HEAD_S = 10.0
LEAST_RATE = 1_000  # bytes a second
BODY_S = 10.0  # the rate of a body is measured over this time
STALL_S = 30.0  # and the rate at which a client reads over this one
LINGER_S = 2.0  # how long a client may go on sending after the last answer
CHECK_S = 2.5  # from one check of a connection to the next
FULL_LOG_S = 60.0  # from one warning that all connections are taken to the next
# Bytes that the parser is given at once: few where each may hold many requests, more within a body.
HEAD_PIECE, BODY_PIECE = 4096, 65_536

# What the next bytes belong to.
SILENT, HEAD, BODY, DISCARD = "silent", "head", "body", "discard"

OFFERS = (b"upgrade", b"http2-settings")
ABSOLUTE = re.compile(rb"[^/?#]*://([^/?#]*)").match  # a target in the form that is sent to proxies

CountRefusal = Callable[[str, str, int, float], None]  # request id, kind, status, seconds


def check_uvicorn(version: str = uvicorn.__version__) -> None:
    if version.split(".")[:2] != UVICORN.split("."):
        raise ConfigurationError(f"uvicorn is {version}; service/serving/connection.py is made for {UVICORN}")


class Refusal(Exception):
    """Ends the parsing of a request that goes over a bound, or that others may read in another way."""

    def __init__(self, sentence: str, status: int = 431, kind: str = "too_large") -> None:
        super().__init__(sentence)
        self.sentence, self.status, self.kind = sentence, status, kind


class State(ServerState):
    """What the connections of a server share."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.waiting: dict[Connection, None] = {}  # those that ask nothing now, the longest silent first
        self.heads: dict[Connection, int] = {}  # those whose head is not whole, the oldest first: their bytes
        self._head_bytes = 0
        self.count_refusal: CountRefusal = lambda request_id, kind, status, seconds: None
        self._warned = float("-inf")

    def count_head(self, connection: Connection, size: int) -> None:
        """So many bytes of a head that is not whole are here; 0: it is whole, or gone."""
        self._head_bytes += size - self.heads.get(connection, 0)
        if size:
            self.heads[connection] = size
        else:
            self.heads.pop(connection, None)
        if self._head_bytes > LARGEST_HEADS:
            self._close(next(iter(self.heads)))

    def make_room(self, newest: Connection, now: float) -> None:
        """Close the oldest half head, the longest silent connection, or the newest where all are busy."""
        if now - self._warned > FULL_LOG_S:
            self._warned = now
            log.warning("%d connections are open, the most there may be: silent ones are closed", self.most)
        half = next(iter(self.heads), None)
        silent = next(iter(self.waiting), None)
        if half is not None and (silent is None or half.age(now) > SLOW_HEAD_S):
            self._close(half)
        else:
            self._close(silent or newest)

    def _close(self, connection: Connection) -> None:
        self.waiting.pop(connection, None)
        self.count_head(connection, 0)
        connection.transport.abort()


class Flow(FlowControl):
    """uvicorn's flow control. While `held` is set, reading stays paused even if an application resumes it."""

    held = False

    def resume_reading(self) -> None:
        if not self.held:
            super().resume_reading()


class Outlet:
    """The transport as a request's cycle sees it: writes to one that is gone are ignored."""

    __slots__ = ("_write", "close", "is_closing")

    def __init__(self, connection: Connection) -> None:
        self._write = connection.transport.write
        self.is_closing = connection.transport.is_closing
        self.close = connection.close

    def write(self, data: bytes) -> None:
        if not self.is_closing():
            self._write(data)


class Connection(HttpToolsProtocol):
    server_state: State
    flow: Flow

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._phase = HEAD
        self._since = self.loop.time()  # when this head or this part of a body began
        self._heard = False  # whether the client has sent anything
        self._moved = False  # the parser began or ended a message, or gave a piece of a body
        self._framing = 0  # bytes since it last did
        self._trailers = 0
        self._body_bytes = 0  # since `_since`
        self._unsent: tuple[float, int] | None = None  # when an answer stopped flowing, and what was left
        self._backlog = b""  # is parsed once fewer requests are queued
        self._offered = False  # whether the head offers another protocol
        self._active: RequestResponseCycle | None = None  # the request that is answered; `cycle` came last
        self._timer: asyncio.TimerHandle | None = None

    def age(self, now: float) -> float:
        """For how long this head or this part of a body has been coming."""
        return now - self._since

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = Flow(transport)
        self._outlet = Outlet(self)
        if len(self.connections) > self.server_state.most:
            self.server_state.make_room(self, self.loop.time())
        self.server_state.waiting[self] = None
        self._timer = self.loop.call_later(CHECK_S, self._check_pace)

    def connection_lost(self, exc: Exception | None) -> None:
        self.server_state.waiting.pop(self, None)
        self.server_state.count_head(self, 0)
        self._unset_keepalive_if_required()  # uvicorn leaves it where the caller reset the connection
        if self._timer is not None:
            self._timer.cancel()
        self._backlog = b""
        for cycle in (self._active, *(queued for queued, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(exc)

    def close(self) -> None:
        """Close once what was written is sent. What a client still sends is discarded for a moment.

        subtle: closing with bytes unread resets the connection, and the client loses its answer.
        """
        if self._phase not in (BODY, DISCARD) or self.transport.is_closing():
            self.transport.close()
            return
        self._phase = DISCARD
        self.flow.held = False
        self.flow.resume_reading()
        self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.close)

    def _check_pace(self) -> None:
        """Every few seconds: whether the client sends and reads fast enough."""
        self._timer = self.loop.call_later(CHECK_S, self._check_pace)
        now = self.loop.time()
        if self._is_stalled(now):
            self.transport.abort()
        elif self.flow.read_paused:  # by us
            self._since, self._body_bytes = now, 0
        elif self._phase == HEAD and now - self._since > HEAD_S:
            if self._heard:
                self._refuse(408, "deadline_exceeded", f"the head of the request took over {HEAD_S:g} s")
            else:
                self.transport.abort()
        elif self._phase == BODY:
            self._check_body(now)

    def _check_body(self, now: float) -> None:
        waited = now - self._since
        if waited >= BODY_S:
            if self._body_bytes < LEAST_RATE * waited:
                sentence = f"the body came at under {LEAST_RATE} bytes a second for {BODY_S:g} s"
                self._refuse(408, "deadline_exceeded", sentence)
            self._since, self._body_bytes = now, 0

    def _is_stalled(self, now: float) -> bool:
        """Whether the client has stopped reading, its answer written or not."""
        left = self.transport.get_write_buffer_size()
        if not left or not (self.flow.write_paused or self.transport.is_closing()):
            self._unsent = None
            return False
        if self._unsent is None:
            self._unsent = now, left
        since, before = self._unsent
        if now - since < STALL_S:
            return False
        self._unsent = now, left
        return before - left < LEAST_RATE * STALL_S

    # Bytes from the client

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._heard = True
        if self._phase == DISCARD:
            return
        if self._phase == SILENT:
            self._phase, self._since = HEAD, self.loop.time()
        self.server_state.waiting.pop(self, None)
        self._feed(self._backlog + data if self._backlog else data)
        if not self.transport.is_closing():
            self.server_state.count_head(self, max(1, self._framing) if self._phase == HEAD else 0)
        self._fall_silent()

    def _feed(self, data: bytes) -> None:
        """Parse the data, except what has to wait because enough requests are queued."""
        at = 0
        while at < len(data) and self._phase != DISCARD and len(self.pipeline) < MOST_QUEUED:
            piece = data[at : at + (BODY_PIECE if self._phase == BODY else HEAD_PIECE)]
            at += self._parse(piece)
        self._backlog = data[at:] if self._phase != DISCARD else b""
        self.flow.held = bool(self._backlog)
        if self._backlog:
            self.flow.pause_reading()

    def _parse(self, piece: bytes) -> int:
        """Parse a piece, and return how many of its bytes were taken."""
        self._moved = False
        taken = len(piece)
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as offer:
            taken = offer.args[0]
            self._ignore_offer()
        except httptools.HttpParserError as failure:
            if isinstance(why := failure.__context__, Refusal):
                self._refuse(why.status, why.kind, why.sentence)
            else:
                self._refuse(400, "malformed_input", "the request is not HTTP")
            return taken
        self._framing = 0 if self._moved else self._framing + taken
        if self._framing > LARGEST_HEAD:
            self._refuse(431, "too_large", f"the head of the request is over {LARGEST_HEAD} bytes")
        return taken

    def _ignore_offer(self) -> None:
        """Parse the head again without the offer, which the parser takes for the end of HTTP."""
        method, version = self.parser.get_method(), self.parser.get_http_version()
        self._offered = False
        if method == b"CONNECT":
            self._refuse(400, "malformed_input", "this is no proxy")
            return
        lines = [b"%b %b HTTP/%b" % (method, self.url, version.encode())]
        for name, value in self.headers:
            if name == b"connection":
                tokens = [token.strip() for token in value.split(b",")]
                value = b", ".join(token for token in tokens if token.lower() not in OFFERS)
            if value and name not in OFFERS:
                lines.append(b"%b: %b" % (name, value))
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._parse(b"\r\n".join([*lines, b"", b""]))

    def _refuse(self, status: int, kind: str, sentence: str) -> None:
        """Refuse what was read last, once all before it is answered; then close."""
        self._backlog = b""
        last: RequestResponseCycle | None = self.cycle
        if self.pipeline and self.cycle.more_body:  # its body is at fault, and nobody works on it yet
            self.pipeline.popleft()
            last = self.pipeline[0][0] if self.pipeline else self._active
        if last is None or last.response_complete:
            self._answer_refusal(status, kind, sentence)
        elif not last.more_body:  # it came whole: its answer is the last one
            last.keep_alive = False
            self._phase = DISCARD
        elif last.response_started:
            self.transport.abort()
        else:  # its body is at fault: the refusal is its answer
            last.disconnected, last.waiting_for_100_continue = True, False  # nothing more is written for it
            last.scope["state"]["refused"] = True  # counted here, and not by the application
            last.message_event.set()
            self._answer_refusal(status, kind, sentence)

    def _answer_refusal(self, status: int, kind: str, sentence: str) -> None:
        request_id = secrets.token_hex(12)
        self.server_state.count_refusal(request_id, kind, status, self.loop.time() - self._since)
        body = json.dumps(document(kind, sentence, None, request_id)).encode()
        headers = [
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", request_id.encode()),
            (b"connection", b"close"),
        ]
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        phrase = http.HTTPStatus(status).phrase.encode()
        self.transport.write(b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (status, phrase, lines, body))
        self._phase = DISCARD
        self.close()

    # Called by the parser

    def on_message_begin(self) -> None:
        self._moved = True
        self._phase = HEAD
        self._trailers = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase != HEAD:
            self._trailers += 1
            if self._trailers > MOST_FIELDS:
                raise Refusal(f"the request has more than {MOST_FIELDS} trailers")
            return
        if len(self.headers) >= MOST_FIELDS:
            raise Refusal(f"the request has more than {MOST_FIELDS} header fields")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._check_framing()
        if self.parser.should_upgrade():
            self._offered = True
            return
        self._phase, self._since, self._body_bytes = BODY, self.loop.time(), 0
        super().on_headers_complete()
        self.cycle.transport = self._outlet  # type: ignore[assignment]
        self.cycle.scope["state"]["abort"] = self.transport.abort

    def _check_framing(self) -> None:
        """Refuse what a proxy before us may have read in another way than we do."""
        if self.parser.get_http_version() not in ("1.0", "1.1"):
            raise Refusal("only HTTP/1.1 and HTTP/1.0 are spoken here", 400, "malformed_input")
        codings = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
        if codings and (codings != [b"chunked"] or self.parser.get_http_version() != "1.1"):
            sentence = "the only transfer coding that is taken is chunked, once, in HTTP/1.1"
            raise Refusal(sentence, 400, "malformed_input")
        named = ABSOLUTE(self.url.lower())
        if named and any(value.lower() != named[1] for name, value in self.headers if name == b"host"):
            raise Refusal("the target names another host than the header Host", 400, "malformed_input")

    def on_body(self, body: bytes) -> None:
        self._moved = True
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._offered:
            return
        self._moved = True
        if self._phase != DISCARD:
            self._phase = SILENT
        super().on_message_complete()

    # Requests and their answers

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._active = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._backlog:
            self._feed(self._backlog)
            self.flow.resume_reading()
        else:
            self._fall_silent()

    def _fall_silent(self) -> None:
        """Once nothing is asked and all is answered: from now on the connection gives way, and has its time.

        subtle: the last bytes of a request may come after its answer, and end the wait that began with it.
        """
        if self._phase == SILENT and self.cycle.response_complete and not self.transport.is_closing():
            self.server_state.waiting[self] = None
            if self.timeout_keep_alive_task is None:
                self.timeout_keep_alive_task = self.loop.call_later(
                    self.timeout_keep_alive, self.timeout_keep_alive_handler
                )
