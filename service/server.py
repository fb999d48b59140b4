"""Serve the application with uvicorn as published: one process, or several under uvicorn's supervisor.

On SIGTERM or SIGINT a process stops in these steps:

1. `/ready` answers 503 and every response has `Connection: close`, while connections are still accepted for
   `DRAIN_S`.
2. The listener is closed; accepted connections have `LAST_REQUESTS_S` to send their request.
3. uvicorn finishes running requests within SHUTDOWN_GRACE_S; then they are cancelled and answered 503.
4. The process ends with 0, at the latest `KILL_AFTER_S` after the grace period.

SIGHUP reads models and keys again; with several workers the supervisor replaces them one after the other
instead. The supervisor also replaces a worker that has ended or does not answer its health check. A worker
that cannot start ends after `RETRY_S`, and the others go on. A process whose inference thread is dead, or
whose model cannot be stopped, ends with 1, so that its supervisor starts another one.
"""

import asyncio
import contextlib
import logging
import math
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from multiprocessing.synchronize import Event
from typing import Any, NoReturn

import uvicorn
from fastapi import FastAPI
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from hardmax.formatting import shorten
from service import __version__
from service.app import Lifespan, make_app, run_service
from service.errors import ConfigurationError, HardmaxError
from service.memory import limit_heaps
from service.observability.logging import configure
from service.observability.metrics import MULTIPROCESS_DIR, shared_metrics
from service.runtime.registry import with_default_model
from service.settings import Settings
from service.state import AppState

log = logging.getLogger(__name__)

MakeApp = Callable[[Settings, Lifespan], FastAPI]

DRAIN_S = 0.3
LAST_REQUESTS_S = 0.5
LAST_RESPONSES_S = 0.5
KILL_AFTER_S = 5.0
KEEP_ALIVE_S = 75  # longer than that of proxies, which then never use a connection that is being closed
# The delay before a worker is replaced that hangs, or dies during its health check: the supervisor waits for
# the answer.
WORKER_HEALTHCHECK_S = 15
WORKER_START_S, WORKER_POLL_S = 120, 0.5  # imports take long on a busy machine
MAX_CONNECTIONS = 4096
MAX_HEAD_BYTES = 65_536  # a matrix in the query is long, and comes in several packets
MAX_STARTUP_LINE_CHARS = 110
RETRY_S = 5.0  # before a worker that could not start ends, and is started again
FAILED, MISCONFIGURED = 1, 2


def serve(settings: Settings, make_app: MakeApp = make_app) -> int:
    """Serve until a signal stops the process.

    Returns:
        The exit code: 0 after a signal, 1 if inference failed, 2 for settings that cannot be used.

    Raises:
        ConfigurationError: The address cannot be listened on, or metrics cannot be shared.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the application listens to it
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: sys.exit(0))
    _configure_process(settings)
    settings = with_default_model(settings)  # the same for all workers
    listener = listen(settings)
    settings = settings.model_copy(update={"port": listener.getsockname()[1]})
    is_supervised = settings.workers > 1
    with shared_metrics() if is_supervised or MULTIPROCESS_DIR in os.environ else contextlib.nullcontext():
        return (_supervise if is_supervised else _run)(settings, make_app, listener)


def _configure_process(settings: Settings) -> None:
    limit_heaps()
    configure(settings.log_format, settings.log_level)


def _run(settings: Settings, make_app: MakeApp, listener: socket.socket) -> int:
    """Run one worker in this process."""
    app = build_app(settings, make_app)
    code: Any = 0
    try:
        uvicorn.Server(_config(app, settings)).run([listener])
    except SystemExit as error:
        code = error.code
    return FAILED if app.state.service.failed.is_set() else int(code or 0)


def listen(settings: Settings) -> socket.socket:
    """Return the socket that all workers share."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(2048)
    except (OSError, OverflowError) as error:
        listener.close()
        address, reason = f"{settings.host}:{settings.port}", getattr(error, "strerror", None) or error
        problem = f"cannot listen on {address} ({reason}): choose another port with --port"
        raise ConfigurationError(problem, param="PORT") from None
    listener.set_inheritable(True)
    return listener


def _supervise(settings: Settings, make_app: MakeApp, listener: socket.socket) -> int:
    """Run several workers under uvicorn's supervisor, which replaces those that end or hang."""
    logging.getLogger("uvicorn.error").setLevel(logging.INFO)  # which worker ended, and when
    announced = multiprocessing.get_context("spawn").Event()
    config = _config(partial(build_app, settings, make_app, announced), settings, factory=True)
    supervisor = Supervisor(config, [listener])

    def stop(number: int, frame: object) -> None:
        """Stop at once: uvicorn reads signals only between two restarts of all workers, which take long."""
        supervisor.should_exit.set()
        for worker in supervisor.processes:
            if worker.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    supervisor.run()
    codes = {worker.exitcode for worker in supervisor.processes}
    return MISCONFIGURED if STARTUP_FAILURE in codes else 0


class Supervisor(Multiprocess):
    """uvicorn's supervisor, which gives new workers time for their imports: only then do they answer."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket]) -> None:
        super().__init__(config, sockets)
        self._imported: set[Process] = set()

    def keep_subprocess_alive(self) -> None:
        """Replace workers that have ended or do not answer."""
        for worker in self.processes:
            if worker not in self._imported:
                self._await_imports(worker)
        self._imported = set(self.processes)
        super().keep_subprocess_alive()

    def _await_imports(self, worker: Process) -> None:
        """Wait until a worker can answer, has ended, or has had WORKER_START_S."""
        end_s = time.monotonic() + WORKER_START_S
        with contextlib.suppress(OSError):  # it has ended already
            worker.parent_conn.send(b"ping")  # the next health check receives its answer
        while worker.process.is_alive() and not worker.parent_conn.poll(WORKER_POLL_S):
            if self.should_exit.is_set() or time.monotonic() > end_s:
                break

    def restart_all(self) -> None:
        """Replace one worker after the other; each has as long to be ready."""
        self.config.timeout_worker_healthcheck = WORKER_START_S
        super().restart_all()
        self.config.timeout_worker_healthcheck = WORKER_HEALTHCHECK_S


def _config(app: Any, settings: Settings, *, factory: bool = False) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        factory=factory,
        http="h11",
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        ws="none",
        lifespan="on",
        workers=settings.workers,
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=math.ceil(settings.shutdown_grace_s),
        timeout_worker_healthcheck=WORKER_HEALTHCHECK_S,
    )


def build_app(settings: Settings, make_app: MakeApp, announced: Event | None = None) -> FastAPI:
    """Build the application for the process that serves it, with signals and an exit code.

    Args:
        announced: Set by the first ready worker of several, which logs the start for all.
    """
    if multiprocessing.parent_process() is not None:  # a worker
        _configure_process(settings)
        threading.Thread(target=_follow_supervisor, daemon=True).start()
    app = make_app(settings, partial(_run_process, announced))
    app.state.service.owns_process = True
    return app


@contextlib.asynccontextmanager
async def _run_process(announced: Event | None, service: AppState, app: FastAPI) -> AsyncIterator[None]:
    """Start the service and announce it; end the process if it cannot start, or no longer works."""
    handle_signals(service)
    async with contextlib.AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(run_service(service, app))
        except HardmaxError as error:
            exit_with_error(error, others_serve=announced is not None and announced.is_set())
        ending = asyncio.create_task(_end_after_failure(service))
        if announced is None or not announced.is_set():
            log_startup(service)
        if announced is not None:
            announced.set()
        yield
        ending.cancel()


def handle_signals(service: AppState) -> None:
    """Drain before uvicorn stops, and reload on SIGHUP."""
    loop = asyncio.get_running_loop()
    stop_server = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def stop(number: signal.Signals) -> None:
        if not service.started:  # a bundle may be loading in a thread that cannot be interrupted
            log.info("%s while starting", number.name)
            end_process()
        handler = stop_server[number]
        server = getattr(handler, "__self__", None)
        if not isinstance(server, uvicorn.Server) or not callable(handler):
            return
        if service.draining:
            if number == signal.SIGINT:  # not SIGTERM, which the supervisor may send twice
                handler(number, None)
            return
        grace_s = service.settings.shutdown_grace_s
        log.info("stopping on %s, within %g s", number.name, grace_s)
        service.draining = True
        if service.failed.is_set():  # the run of a model may never end
            end_later(KILL_AFTER_S, FAILED)
        end_later(grace_s + KILL_AFTER_S)

        def close_listeners() -> None:
            """Close the listeners, and let new connections send: uvicorn closes those without data."""
            for listener in server.servers:
                listener.close()
            loop.call_later(LAST_REQUESTS_S, handler, number, None)

        loop.call_later(DRAIN_S, close_listeners)

    for number in stop_server:
        loop.add_signal_handler(number, stop, number)
    loop.add_signal_handler(signal.SIGHUP, lambda: service.run_in_background(service.reload()))


async def _end_after_failure(service: AppState) -> None:
    """Stop this process when its inference thread has died or hangs."""
    await service.failed.wait()
    log.critical("stopping: texts can no longer be answered; the log has the reason")
    await asyncio.sleep(LAST_RESPONSES_S)  # for the errors of waiting callers, and a failing probe of /health
    signal.raise_signal(signal.SIGTERM)


def end_later(seconds: float, code: int = 0) -> None:
    """End this process after some time, if it has not ended."""
    timer = threading.Timer(seconds, end_process, (code,))
    timer.daemon = True
    timer.start()


def end_process(code: int = 0) -> NoReturn:
    """End this process at once, with a thread that cannot be interrupted."""
    logging.shutdown()
    os._exit(code)


def exit_with_error(error: HardmaxError, *, others_serve: bool) -> NoReturn:
    """End a process that could not start, with one line after the log.

    uvicorn's supervisor ends all workers for the code STARTUP_FAILURE. Where others serve, another code makes
    it start this one again.
    """
    logging.shutdown()
    print(f"hardmax: {error.message}", file=sys.stderr, flush=True)  # noqa: T201
    if others_serve:
        time.sleep(RETRY_S)
    is_worker = multiprocessing.parent_process() is not None
    os._exit(STARTUP_FAILURE if is_worker and not others_serve else MISCONFIGURED)


def _follow_supervisor() -> None:
    """Stop this worker when its supervisor was killed."""
    supervisor = multiprocessing.parent_process()
    if supervisor is not None:
        supervisor.join()
        os.kill(os.getpid(), signal.SIGTERM)


def log_startup(service: AppState) -> None:
    """Print the address, the models and how to stop the service; as one line of the log in JSON."""
    settings = service.settings
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{host}:{settings.port}"
    page = url + settings.root_path
    entries = sorted(service.registry.entries.values(), key=lambda entry: (entry.kind, entry.name))
    lines = [
        f"hardmax {__version__} on {url}",
        f"  page      {page}/   (documentation /docs, metrics /metrics)",
        f"  workers   {settings.workers}",
        f"  provider  {service.provider}, {settings.intra_op_threads} threads an inference",
        f"  keys      {'needed' if service.keys else 'none: open to everyone who can reach it'}",
        f"  default   {settings.default_model}",
        f"  watches   {settings.models_dir or 'no folder: MODELS_DIR names one'}",
    ]
    if settings.log_format == "json":
        log.info("; ".join(" ".join(line.split()) for line in lines))
        return
    width = max((len(entry.kind) for entry in entries), default=0)
    models = [f"  {entry.kind:{width}}  {entry.name:16} {entry.card['description']}" for entry in entries]
    lines += [
        *(shorten(line, MAX_STARTUP_LINE_CHARS) for line in models),
        "Stop with Ctrl-C or SIGTERM; SIGHUP reads models and keys again.",
    ]
    with contextlib.suppress(OSError):  # a full disk does not stop the service
        print("\n".join(lines), flush=True)  # noqa: T201
