"""The start: one socket, then one server in this process, or several workers kept by uvicorn's supervisor.

A worker that ends is replaced; so is one that hangs: its event loop has to answer within `HUNG_S` (`START_S`
while it starts). SIGHUP makes every worker read keys and models again, SIGUSR2 replaces the workers one after
the other, SIGTTIN and SIGTTOU add and remove one.
"""

import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from contextlib import nullcontext, suppress

from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import multiprocess
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from service.app import create_app
from service.errors import ConfigurationError
from service.observe.metrics import MULTIPROCESS_DIR, forget_process, shared_metrics
from service.runtime.bundle import BUNDLED_DEFAULT
from service.runtime.registry import settle_default
from service.serving.connection import check_uvicorn
from service.serving.server import (
    FAILED,
    HUNG_S,
    KILL_AFTER_S,
    MISCONFIGURED,
    Config,
    MakeApp,
    Server,
    begin,
    misconfigured,
)
from service.settings import Settings

BACKLOG = 2048
START_S = 300  # a start takes ten seconds on a busy machine, and minutes on a tenth of a CPU


def serve(settings: Settings, make_app: MakeApp = create_app) -> int:
    """Serve until a signal says stop. Exit codes: 0 after a signal, 1 inference died, 2 bad settings."""
    named = bool(settings.default_model)
    settings = settle_default(settings)  # once: all workers have the same
    begin(settings)
    bundled = settings.default_model == BUNDLED_DEFAULT and settings.bundled_models
    why = "DEFAULT_MODEL names it" if named else "it is bundled" if bundled else "the only one of MODELS_DIR"
    config = Config(settings, make_app, why)
    several = settings.workers > 1
    try:
        check_uvicorn()
        listener = listen(settings)
        with shared_metrics() if several or MULTIPROCESS_DIR in os.environ else nullcontext():
            return supervise(config, listener) if several else Server(config).work(listener)
    except ConfigurationError as failure:
        return misconfigured(failure)


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
    listener.setblocking(False)
    listener.set_inheritable(True)
    return listener


def supervise(config: Config, listener: socket.socket) -> int:
    """Keep `config.workers` workers until a signal says stop. The exit code of the whole."""
    # subtle: uvicorn's supervisor makes its workers by this name and has no other place to give a class.
    multiprocess.Process = Worker  # type: ignore[assignment,misc]
    logging.getLogger("uvicorn.error").setLevel(logging.INFO)  # which worker ended, and when
    workers = Workers(config, [listener])
    try:
        workers.run()
    except BaseException:  # at its end Python waits for the workers, so they are told to end too
        workers.terminate_all()
        raise
    return workers.code()


class Worker(Process):
    """One worker: first what the supervisor does with it, then what runs in its own process."""

    config: Config

    def __init__(self, config: Config, sockets: list[socket.socket]) -> None:
        super().__init__(config, sockets)
        self.started = False  # serving, as far as its last answer told
        self._asked: float | None = None  # when it was asked for a sign of life that has not come yet
        self._must_end = float("inf")
        self.overdue = False  # it had to be killed

    # In the supervisor's process

    def start(self) -> None:
        super().start()
        self.config.greets = False  # the first one does

    def is_alive(self, timeout: float = HUNG_S, start_s: float = START_S) -> bool:
        """Asks for a sign of life without waiting for it: one that hangs holds up no other."""
        with suppress(OSError, EOFError):
            while self.parent_conn.poll():
                self.started = self.parent_conn.recv()
                self._asked = None
            if self._asked is None:
                self._asked = time.monotonic()
                self.parent_conn.send(b"ping")
        patience_s = timeout if self.started else start_s
        return self.process.is_alive() and time.monotonic() - (self._asked or 0) < patience_s

    def wait_until_ready(self, timeout: float, should_exit: threading.Event | None = None) -> bool:
        """subtle: uvicorn gives as long as for a sign of life, which is too short for a start."""
        return super().wait_until_ready(START_S, should_exit)

    def terminate(self) -> None:
        self._must_end = time.monotonic() + self.config.settings.shutdown_grace_s + KILL_AFTER_S
        super().terminate()

    def join(self) -> None:
        """Wait for its end. It is killed if it was told to end and takes too long."""
        wait_s = max(0.0, min(self._must_end - time.monotonic(), threading.TIMEOUT_MAX))
        self.process.join(wait_s)
        if self.process.is_alive():
            self.overdue = True
            self.process.kill()
            self.process.join()
        forget_process(self.pid or 0)

    # In its own process

    def target(self, sockets: list[socket.socket] | None = None) -> None:
        assert sockets is not None
        begin(self.config.settings)
        server = self._server = Server(self.config)
        threading.Thread(target=self.always_pong, daemon=True).start()
        threading.Thread(target=_follow_supervisor, daemon=True).start()
        code = server.work(sockets[0])
        sys.exit(STARTUP_FAILURE if code == MISCONFIGURED else code)

    def pong(self) -> None:
        """The event loop answers, so one that is held up does not."""
        self.child_conn.recv()
        loop = self.server.loop if isinstance(self.server, Server) else None
        if loop is None:
            self._answer()
        else:
            with suppress(RuntimeError):  # the loop has ended, and so will this process
                loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        with suppress(OSError):
            self.child_conn.send(self.server.started)


class Stop(threading.Event):
    """Also set by a signal that was not handled yet: no signals are while a new worker starts."""

    def __init__(self, signals: list[int]) -> None:
        super().__init__()
        self._signals = signals

    def is_set(self) -> bool:
        return super().is_set() or not {signal.SIGTERM, signal.SIGINT}.isdisjoint(self._signals)


class Workers(Multiprocess):
    processes: list[Worker]  # type: ignore[assignment]

    def __init__(self, config: Config, sockets: list[socket.socket]) -> None:
        super().__init__(config, sockets)
        self.should_exit = Stop(self.signal_queue)

    def terminate_all(self) -> None:
        for listener in self.sockets:
            listener.close()  # when the workers close it too, new callers are refused instead of kept waiting
        super().terminate_all()

    def handle_hup(self) -> None:
        for worker in self.processes:
            if worker.started and worker.pid is not None and worker.process.is_alive():
                os.kill(worker.pid, signal.SIGHUP)

    def handle_usr2(self) -> None:
        self.restart_all()

    def code(self) -> int:
        """That of a worker that could not start or had to be killed; 0 where all ended well."""
        codes = {worker.exitcode for worker in self.processes}
        if STARTUP_FAILURE in codes:
            return MISCONFIGURED
        failed = FAILED in codes or any(worker.overdue for worker in self.processes)
        return FAILED if failed else 0


def _follow_supervisor() -> None:
    """End this process when the supervisor was killed: nothing else would end it."""
    supervisor = multiprocessing.parent_process()
    if supervisor is not None:
        supervisor.join()
        os.kill(os.getpid(), signal.SIGTERM)
