"""create_app(settings): every object of the service is built here, handed out, started and stopped."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from service import __version__, schemas
from service.api import problems
from service.api.classify import How, run_texts
from service.api.express import Express
from service.api.gate import Gate
from service.api.inflight import Capacity, InFlight
from service.api.keys import Keys
from service.api.routes import Handlers
from service.api.table import Parts, routes
from service.batching import Batcher, BatchReport
from service.errors import ConfigurationError
from service.lane import Lane
from service.logs import AccessLog
from service.metrics import Metrics
from service.registry import Entry, Loader, Registry
from service.schemas import Explain, Info, Refused
from service.settings import Settings
from service.tracing import Tracer

if TYPE_CHECKING:
    from service.runtime import Runtime

log = logging.getLogger(__name__)
Loaders = Callable[["Runtime", Settings], Mapping[str, Loader]]

DESCRIPTION = """Inference for hardmax transformers: every answer comes with its exact reason."""
QUEUED_BATCHES = 64  # batches' worth of tokens that may wait
CLOUDS_WAITING = 16
SAMPLE_S = 0.25
YOUNG = 10_000  # new objects before the garbage collector looks at them: a batch's answers are gone by then
STUCK_AFTER_S = 120.0


class Service:
    """The parts of one server process, and their life."""

    def __init__(self, settings: Settings, loaders: Loaders | None) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.keys = Keys(settings.api_keys, settings.api_keys_file)
        self.inflight = InFlight(
            Capacity(
                settings.max_concurrent_requests, settings.payload_limit_bytes, settings.payload_total_bytes
            )
        )
        self.registry = Registry(settings.models_dir, {})
        self.provider = settings.provider
        self.failed = asyncio.Event()  # the inference thread is dead: this process should be replaced
        self.texts: Batcher[str, dict[str, Any]] = Batcher(
            partial(run_texts, tokenised=self.metrics.tokenise.observe),
            budget=settings.max_batch_tokens,
            bound=QUEUED_BATCHES * settings.max_batch_tokens,
            report=self._batch_ran,
            failed=self.failed.set,
        )
        self.clouds = Lane("clouds", width=1, depth=CLOUDS_WAITING)
        quiet = settings.log_level in ("warning", "error")
        self.access = AccessLog(None if quiet else sys.stderr, settings.log_format)
        self.tracer = Tracer.to(settings.otlp_endpoint) if settings.otlp_endpoint else None
        self.express = Express(
            self.registry,
            settings,
            self.keys,
            self.inflight,
            self.metrics,
            self.access,
            self._express_is_open,
        )
        self._loaders = loaders or domain_loaders
        self._refreshing = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._started = False

    def _batch_ran(self, report: BatchReport) -> None:
        self.metrics.batch_ran(report.items, report.tokens, report.waited_s, report.ran_s)

    def _express_is_open(self) -> bool:
        """Not for traced requests, whose stages it does not tell, and not once inference is dead."""
        return self.tracer is None and not self.failed.is_set()

    async def start(self) -> None:
        await asyncio.to_thread(self._load)
        self.texts.start()
        for entry in self.registry.entries.values():
            await self._warm(entry)
        for work in (self.inflight.patrol(), self._observe(), self._watch_models()):
            self._tasks.append(asyncio.get_running_loop().create_task(work))
        settle_memory()
        self._started = True

    def _load(self) -> None:
        from service.runtime import Runtime  # imports onnxruntime: not needed to print the OpenAPI document

        runtime = Runtime(self.settings.provider, self.settings.intra_op_threads)
        self.provider = runtime.provider
        self.registry.loaders = self._loaders(runtime, self.settings)
        self.registry.load()
        for entry in self.registry.entries.values():
            self.metrics.model_served(entry.name, entry.kind, entry.version, True)
        default = self.settings.default_model
        if default not in self.registry.entries and any(
            entry.kind == "sentiment" for entry in self.registry.entries.values()
        ):
            raise ConfigurationError(f"DEFAULT_MODEL: there is no model {default}", param="DEFAULT_MODEL")

    async def _warm(self, entry: Entry) -> None:
        """Run it once: the first inference is slow, and no caller should be the one who waits for it."""
        if entry.kind == "sentiment":
            explains: tuple[Explain, ...] = ("none", "leaders", "full")
            for explain in explains:
                how = How(entry.model, explain, False, True, self.settings.max_batch_tokens)
                for result in await self.texts.submit(how, [("a good film and a bad film", 8)]):
                    if isinstance(result, Exception):
                        raise result

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        self.texts.stop()
        self.clouds.stop()
        self.access.flush()
        if self.tracer is not None:
            await asyncio.to_thread(self.tracer.close)

    async def reload(self) -> None:
        """Read the keys and the models again; what is broken is logged and changes nothing."""
        try:
            self.keys.reload()
        except ConfigurationError as failure:
            log.error("keys not read again: %s", failure.message)
        await self._refresh()

    async def _refresh(self) -> None:
        async with self._refreshing:
            before = self.registry.entries
            refused = set(self.registry.refused.items())
            await asyncio.to_thread(self.registry.refresh)
            after = self.registry.entries
        for name in before.keys() | after.keys():
            self._tell_change(before.get(name), after.get(name))
        if before is not after:
            settle_memory()
        for _ in set(self.registry.refused.items()) - refused:
            self.metrics.bundle_refused()

    def _tell_change(self, old: Entry | None, new: Entry | None) -> None:
        if old is not None and (new is None or new.version != old.version):
            self.metrics.model_served(old.name, old.kind, old.version, False)
        if new is not None and (old is None or new.version != old.version):
            self.metrics.model_served(new.name, new.kind, new.version, True)

    async def _watch_models(self) -> None:
        """Follow MODELS_DIR. A bundle half written is refused for a moment, and taken when it is whole."""
        from watchfiles import awatch

        while True:
            try:
                async for _ in awatch(self.settings.models_dir, debounce=500, step=100):
                    await self._refresh()
            except Exception:  # the edge of a worker loop: whatever a bundle did, the next one is still seen
                log.exception("MODELS_DIR could not be followed; trying again")
                await asyncio.sleep(1)

    async def _observe(self) -> None:
        """A few times a second: the gauges, and the log lines that were kept."""
        while True:
            await asyncio.sleep(SAMPLE_S)
            self.metrics.sample(
                in_flight=len(self.inflight) + len(self.express),
                body_bytes=self.inflight.body_bytes,
                texts_waiting=self.texts.depth,
                clouds_waiting=self.clouds.waiting,
                ready=self.unready() is None,
            )
            if self.access.pending():
                await asyncio.to_thread(self.access.flush)

    def drain(self) -> None:
        """Say from now on that no more should come; what comes is still answered."""
        self.inflight.draining = True

    def healthy(self) -> bool:
        return self.texts.healthy(STUCK_AFTER_S)

    def unready(self) -> str | None:
        """Why no traffic should be sent here, or None."""
        if self.inflight.draining:
            return "the service is stopping"
        if not self._started:
            return "models are being loaded"
        return None if self.healthy() else "the inference thread does not answer"

    def info(self) -> Info:
        fields = {name: getattr(self.settings, name) for name in schemas.Limits.model_fields}
        return Info(
            version=__version__,
            provider=self.provider,
            threads=self.settings.intra_op_threads,
            default_model=self.settings.default_model,
            models=list(self.registry.entries),
            refused=[Refused(name=name, reason=why) for name, why in self.registry.refused.items()],
            limits=schemas.Limits(**fields),
        )


class App(FastAPI):
    """FastAPI behind the gate: it documents the routes, and answers for those that are none."""

    entrance: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.entrance(scope, receive, send)

    async def documented(self, scope: Scope, receive: Receive, send: Send) -> None:
        await super().__call__(scope, receive, send)


def create_app(settings: Settings, *, loaders: Loaders | None = None) -> App:
    """The application. Models are loaded when it starts; `loaders` is for tests that bring their own."""
    service = Service(settings, loaders)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    app = App(
        title="hardmax",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        exception_handlers={HTTPException: _problem, RequestValidationError: _problem},
    )
    app.state.service = service
    table = routes(Parts(settings, service.registry, service.texts, service.clouds, service.metrics, service))
    app.router.routes.extend(table)
    app.entrance = Gate(
        app.documented,
        handlers=Handlers(table),
        inflight=service.inflight,
        keys=service.keys,
        public=[path.strip() for path in settings.public_paths.split(",")],
        metrics=service.metrics,
        access=service.access,
        tracer=service.tracer,
        timeout_s=settings.request_timeout_s,
    )
    if settings.cors_allow_origin:
        app.entrance = CORSMiddleware(
            app.entrance,
            allow_origins=[origin.strip() for origin in settings.cors_allow_origin.split(",")],
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type", "x-api-key", "x-request-id"],
            expose_headers=["x-request-id", "retry-after"],
        )
    return app


async def _problem(request: Request, failure: Exception) -> Response:
    """What the router itself refuses, in our one shape."""
    reply = problems.reply(failure, request.scope["exchange"])
    assert isinstance(reply.body, bytes)
    headers = {name.decode(): value.decode() for name, value in reply.headers}
    return Response(reply.body, reply.status, headers, "application/json")


def settle_memory() -> None:
    """Vocabularies are very many objects that stay: the garbage collector need not look at them again."""
    gc.unfreeze()  # models that were replaced may go
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG)


def domain_loaders(runtime: Runtime, settings: Settings) -> Mapping[str, Loader]:
    """How each kind of bundle becomes a model."""
    from service.dynamics import Dynamics, Limits
    from service.sentiment import Sentiment
    from service.sequences import Sequences

    limits = Limits(settings.max_points, settings.max_dimension, settings.max_layers)
    return {
        "sentiment": lambda bundle: Sentiment.load(bundle, runtime),
        "dynamics": lambda bundle: Dynamics.load(bundle, runtime, limits),
        "sequences": lambda bundle: Sequences.load(bundle, runtime),
    }
