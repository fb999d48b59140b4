"""One server process: its signals, its drain and its exit codes.

How it stops, on SIGTERM or SIGINT:

1. `/ready` turns 503 at once and every answer says `Connection: close`; for `LAME_DUCK_S` connections are
   still taken.
2. The listener closes. Connections that waited at it are taken, and those without a request may still send
   one, for another `LAME_DUCK_S`.
3. Requests are finished within SHUTDOWN_GRACE_S; those that are not are answered 503.
4. The process ends with 0. Work that cannot be interrupted ends with it, `KILL_AFTER_S` after the grace at
   the latest.

SIGHUP: keys and models are read again. A dead inference thread: what waits is refused, exit 1, so that
whoever supervises starts a new process.
"""

import asyncio
import contextlib
import logging
import math
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from types import FrameType
from typing import Any, NoReturn

import uvicorn
from fastapi import FastAPI

from service import __version__
from service.engine import process
from service.errors import BundleError, ConfigurationError, HardmaxError
from service.lifecycle import Service
from service.observe.logs import configure
from service.serving.connection import Connection, State
from service.settings import Settings

log = logging.getLogger(__name__)

MakeApp = Callable[[Settings], FastAPI]

LAME_DUCK_S = 0.3
TURN_S = 0.01
LAST_WORDS_S = 0.5
KILL_AFTER_S = 5.0
HUNG_S = 30
# Longer than the proxies before us keep theirs: they close first, so no request meets a closing connection.
KEEP_ALIVE_S = 75
# subtle: libuv accepts one connection a turn of the loop and listening descriptor, so a burst of callers at
# a busy server would wait for as many turns as they are. These descriptors of the one socket let in as many.
ACCEPTS = 16
DESCRIPTORS = 16_384  # for a process, where the system allows so many: a connection needs one
RESERVED = 100  # for listeners, models, logs
FAILED = 1
MISCONFIGURED = 2


def begin(settings: Settings) -> None:
    """Logs go where they should. Until the server listens to signals itself, SIGTERM ends the process and
    SIGHUP does nothing.
    """
    process.prepare()
    configure(settings.log_format, settings.log_level)
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # keys and models are just being read
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """At the start a bundle may be loading in a thread, which Python would wait for."""
    log.info("%s while starting", signal.Signals(number).name)
    _end_after(KILL_AFTER_S)
    sys.exit(0)


def _end_after(seconds: float) -> None:
    last = threading.Timer(seconds, _end_at_once)
    last.daemon = True
    last.start()


def misconfigured(failure: HardmaxError) -> int:
    """One line that says why nothing was started, after what the log says, and the exit code of it."""
    logging.shutdown()
    print(f"hardmax: {failure.message}", file=sys.stderr)  # noqa: T201
    return MISCONFIGURED


def descriptors(listener: socket.socket) -> list[socket.socket]:
    """Descriptors of the one socket, for one server.

    subtle: whether it blocks belongs to the socket, which other workers accept from at this moment, and a
    socket that came from another process does not have Python's own note of it: `dup` would make it block.
    """
    listener.setblocking(False)
    return [listener.dup() for _ in range(ACCEPTS)]


class Config(uvicorn.Config):
    """uvicorn's configuration, for our application. Workers get the same object."""

    def __init__(self, settings: Settings, make_app: MakeApp, why_default: str = "") -> None:
        super().__init__(
            partial(make_app, settings),
            factory=True,
            interface="asgi3",
            loop="uvloop",
            http=Connection,
            ws="none",
            lifespan="off",  # run by `Server.serve`, so that what fails at the start is told in one line
            workers=settings.workers,
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=math.ceil(settings.shutdown_grace_s),
            timeout_worker_healthcheck=HUNG_S,
            proxy_headers=False,
        )
        self.settings = settings
        self.why_default = why_default
        self.greets = True


class Server(uvicorn.Server):
    """uvicorn's server. It also drains before it stops, reloads on SIGHUP, and ends if inference died."""

    config: Config
    server_state: State
    _service: Service
    _listener: socket.socket

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.server_state = State(most=max(RESERVED, descriptors - RESERVED))
        self.loop: asyncio.AbstractEventLoop | None = None
        self._errands: set[asyncio.Task[None]] = set()

    def work(self, listener: socket.socket) -> int:
        """Serve on a socket that listens already; exit codes as of `start.serve`."""
        self._listener = listener
        try:
            with asyncio.Runner(loop_factory=self.config.get_loop_factory()) as runner:
                runner.run(self.serve(descriptors(listener)))
        except (ConfigurationError, BundleError) as failure:
            return misconfigured(failure)
        return FAILED if self._service.failed.is_set() else 0

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.config.load()
        app: FastAPI = self.config.loaded_app
        self._service = app.state.service
        self._service.owns_process = True
        self.server_state.count_refusal = self._service.count_refusal
        async with app.router.lifespan_context(app):
            if self.config.greets:
                greet(self.config, self._listener.getsockname()[1], self._service)
            await super().serve(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ours end in an exit code; uvicorn's would end in the signal's own."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        loop.add_signal_handler(signal.SIGHUP, lambda: self._send(self._service.reload()))
        self._send(self._leave_when_failed())
        try:
            yield
        finally:
            for errand in self._errands:
                errand.cancel()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.remove_signal_handler(number)

    def _send(self, work: Coroutine[Any, Any, None]) -> None:
        errand = asyncio.get_running_loop().create_task(work)
        self._errands.add(errand)
        errand.add_done_callback(self._errands.discard)

    async def _leave_when_failed(self) -> None:
        await self._service.failed.wait()
        log.critical("stopping: the inference thread is dead")
        await asyncio.sleep(LAST_WORDS_S)  # callers get their refusals, a probe sees /health fail
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self.should_exit:
            grace_s = self.config.settings.shutdown_grace_s
            log.info("stopping on %s, within %g s", signal.Signals(sig).name, grace_s)
            self._service.drain()
            _end_after(grace_s + KILL_AFTER_S - 1)
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.drain()
        if not self.force_exit:
            await asyncio.sleep(LAME_DUCK_S)
            await self._close_door()
            await self._hear_the_last()
        await super().shutdown(sockets)
        if self.server_state.tasks:  # cancelled when the grace was over: they answer 503, then end
            await asyncio.wait(self.server_state.tasks, timeout=LAST_WORDS_S)

    async def _close_door(self) -> None:
        """Stop listening, but first accept what is in the kernel's queue: closing would reset it."""
        for server in self.servers:
            server.close()
        queued: list[socket.socket] = []
        with contextlib.suppress(OSError):  # until nobody is left, or there are no more descriptors
            while True:
                queued.append(self._listener.accept()[0])
        self._listener.close()
        connection = partial(Connection, self.config, self.server_state, self.lifespan.state)
        for each in queued:
            each.setblocking(False)
            await asyncio.get_running_loop().connect_accepted_socket(connection, each)

    async def _hear_the_last(self) -> None:
        """Wait a moment for requests on the connections accepted last: uvicorn would close them unasked."""
        deadline = time.monotonic() + LAME_DUCK_S
        await asyncio.sleep(TURN_S)  # those accepted in this very turn become connections
        while time.monotonic() < deadline and any(
            isinstance(each, Connection) and each.cycle is None for each in self.server_state.connections
        ):
            await asyncio.sleep(TURN_S)


def _end_at_once() -> None:
    """End the process, and with it a thread that nothing can interrupt."""
    log.warning("the grace is over: what still runs is ended")
    logging.shutdown()
    os._exit(0)


def greet(config: Config, port: int, service: Service) -> None:
    """One screen: where it listens, with which models, and how to stop it. In JSON one line of the log."""
    settings = config.settings
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    entries = sorted(service.registry.entries.values(), key=lambda each: (each.kind, each.name))
    lines = [
        f"hardmax {__version__} on http://{host}:{port}",
        f"  page      http://{host}:{port}/   (documentation /docs, metrics /metrics)",
        f"  workers   {settings.workers}",
        f"  provider  {service.provider}, {settings.intra_op_threads} threads an inference",
        f"  keys      {'needed' if service.keys else 'none: open to everyone who can reach it'}",
        f"  default   {settings.default_model}: {config.why_default}",
        f"  watches   {settings.models_dir or 'no folder: MODELS_DIR names one'}",
    ]
    if settings.log_format == "json":
        log.info("; ".join(" ".join(line.split()) for line in lines))
        return
    lines += [
        *(f"  {entry.kind:9} {entry.name:16} {entry.card['description']}"[:110] for entry in entries),
        "Stop with Ctrl-C or SIGTERM; SIGHUP reads models and keys again.",
    ]
    with contextlib.suppress(OSError):  # a full disk behind the log keeps nobody from being served
        print("\n".join(lines), flush=True)  # noqa: T201
