"""Serving: one process, or several that share a socket. Knows uvicorn, signals and exit codes.

SIGTERM and SIGINT: not ready at once, a moment longer answering with `Connection: close`, then no new
connections, and a moment for those accepted last to ask; what was asked is finished within SHUTDOWN_GRACE_S;
exit 0. SIGHUP: keys and models are read
again. A dead inference thread: what waits is refused, exit 1, so that whoever supervises starts a new
process.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import Any

import uvicorn

from service import __version__
from service.app import App, Service, create_app
from service.connection import Connection
from service.errors import BundleError, ConfigurationError, HardmaxError
from service.logs import configure
from service.settings import Settings
from service.supervisor import MISCONFIGURED, supervise

LAME_DUCK_S = 0.3  # connections already on their way to us are still answered
TURN_S = 0.01
KEEP_ALIVE_S = (
    75  # longer than the proxies before us keep theirs: they close first, so no request meets a closing one
)
LAST_WORDS_S = 0.5
BACKLOG = 2048
# New connections that a turn of the loop lets in. subtle: libuv accepts one a turn and listening descriptor,
# so a burst of callers at a busy server would wait for as many turns as they are.
ACCEPTS = 16
FAILED = 1


def serve(settings: Settings) -> int:
    """Serve until a signal says stop. Exit codes: 0 after a signal, 1 inference died, 2 bad settings."""
    begin(settings)
    try:
        listener = listen(settings)
    except ConfigurationError as failure:
        return misconfigured(failure)
    if settings.workers > 1:
        return supervise(settings, listener, work)
    return work(settings, listener, greeting=True)


def work(settings: Settings, listener: socket.socket, greeting: bool) -> int:
    """One server process, alone or under the supervisor. Exit codes as of `serve`."""
    begin(settings)
    port = listener.getsockname()[1]
    try:
        app = create_app(settings)
        return run(app, listener, lambda service: greet(settings, port, service) if greeting else None)
    except (ConfigurationError, BundleError) as failure:
        return misconfigured(failure)


def begin(settings: Settings) -> None:
    """Logs go where they should; SIGTERM ends the process until the server listens to signals itself."""
    configure(settings.log_format, settings.log_level)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))


def misconfigured(failure: HardmaxError) -> int:
    """One line that says why nothing was started, and the exit code of it."""
    print(f"hardmax: {failure.message}", file=sys.stderr)  # noqa: T201
    return MISCONFIGURED


def listen(settings: Settings) -> socket.socket:
    """The socket that all workers share."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except (OSError, OverflowError) as failure:
        listener.close()
        where = f"{settings.host}:{settings.port}"
        raise ConfigurationError(f"cannot listen on {where}: {failure}", param="PORT") from None
    listener.listen(BACKLOG)
    listener.set_inheritable(True)
    return listener


def run(app: App, listener: socket.socket, started: Callable[[Service], None]) -> int:
    """Serve an application on a socket that listens already, until a signal or its failure ends it."""
    service: Service = app.state.service
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=Connection,
        ws="none",
        lifespan="off",  # driven by `live`, so that what fails at the start is told in one line
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=math.ceil(service.settings.shutdown_grace_s),
        proxy_headers=False,
    )
    server = Server(config, service, listener)

    async def live() -> None:
        async with app.router.lifespan_context(app):
            started(service)
            await server.serve(sockets=[listener.dup() for _ in range(ACCEPTS)])

    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(live())
    return FAILED if service.failed.is_set() else 0


class Server(uvicorn.Server):
    """uvicorn's, but that it leaves slowly, reloads on SIGHUP, and goes when inference is dead."""

    def __init__(self, config: uvicorn.Config, service: Service, listener: socket.socket) -> None:
        super().__init__(config)
        self._service = service
        self._listener = listener
        self._errands: set[asyncio.Task[None]] = set()

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

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._service.drain()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.drain()
        if not self.force_exit:
            await asyncio.sleep(LAME_DUCK_S)
            await self._close_door()
            await self._hear_the_last()
        await super().shutdown(sockets)
        if self.server_state.tasks:  # cancelled when the grace was over: they say so, then end
            await asyncio.wait(self.server_state.tasks, timeout=LAST_WORDS_S)

    async def _close_door(self) -> None:
        """Who is on the doorstep comes in: closing a listener resets whom the kernel let queue there."""
        for server in self.servers:
            server.close()
        queued: list[socket.socket] = []
        with contextlib.suppress(OSError):  # until nobody is left, or there are no more descriptors
            while True:
                queued.append(self._listener.accept()[0])
        self._listener.close()
        for each in queued:
            each.setblocking(False)
            await asyncio.get_running_loop().connect_accepted_socket(self._connection, each)

    def _connection(self) -> Connection:
        return Connection(self.config, self.server_state, self.lifespan.state)

    async def _hear_the_last(self) -> None:
        """Who just came in may say what for; uvicorn would hang up on them."""
        deadline = time.monotonic() + LAME_DUCK_S
        await asyncio.sleep(TURN_S)  # those accepted in this very turn become connections
        while time.monotonic() < deadline and any(
            isinstance(each, Connection) and each.is_silent() for each in self.server_state.connections
        ):
            await asyncio.sleep(TURN_S)

    async def _leave_when_failed(self) -> None:
        await self._service.failed.wait()
        await asyncio.sleep(LAST_WORDS_S)  # who waited is told, and a probe may see red
        self.should_exit = True


def greet(settings: Settings, port: int, service: Service) -> None:
    """One screen: where it listens, with which models, and how to stop it."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    entries = sorted(service.registry.entries.values(), key=lambda each: (each.kind, each.name))
    lines = [
        f"hardmax {__version__} on http://{host}:{port}   (page /, docs /docs, metrics /metrics)",
        f"  workers   {settings.workers}",
        f"  provider  {service.provider}, {settings.intra_op_threads} threads an inference",
        f"  keys      {'needed' if service.keys else 'none: open to everyone who can reach it'}",
        *(f"  {entry.kind:9} {entry.name:16} {entry.card['description']}"[:110] for entry in entries),
        "Stop with Ctrl-C or SIGTERM; SIGHUP reads models and keys again.",
    ]
    with contextlib.suppress(OSError):  # a full disk behind the log keeps nobody from being served
        print("\n".join(lines), flush=True)  # noqa: T201
