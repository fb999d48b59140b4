"""The state of one server process and its lifecycle: load, warm, watch the models, drain, stop.

`create_app` builds it, and the application's lifespan starts and stops it. It contains no HTTP; routes and
middleware use it.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from service.auth import ApiKeys
from service.errors import ConfigurationError, NotReady
from service.loaders import Loaders, make_prover, proving_loaders
from service.memory import Slots, collect_garbage, freeze_gc
from service.observability.metrics import Metrics
from service.observability.tracing import make_tracer_provider
from service.runtime.batcher import Batcher
from service.runtime.card import ENCODER, HEAD
from service.runtime.compute import Compute
from service.runtime.proof import Prover
from service.runtime.registry import Registry, RegistryEntry, bundle_fingerprints
from service.runtime.session import Runtime
from service.settings import Settings
from service.text.head import Head
from service.text.pipeline import Answer, ClassificationTask, run_batch
from service.wire import clouds

log = logging.getLogger(__name__)
T = TypeVar("T")

SAMPLE_S = 0.25
WATCH_S = 0.5  # between two checks of MODELS_DIR
RELEASE_EVERY_S, RELEASE_FOR_S = 5.0, 30.0  # memory of large requests
STUCK_AFTER_S = 120.0
DEAD_MESSAGE = "the inference thread does not answer"


class AppState:
    """The state that routes use: settings, models, queues, metrics, log, traces."""

    def __init__(self, settings: Settings, loaders: Loaders | None = None) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.keys = ApiKeys(settings.api_keys, settings.api_keys_file)
        self.running_requests = 0
        # texts and clouds do not wait for each other
        self.large_texts = Slots(settings.max_large_requests)
        self.large_clouds = Slots(settings.max_large_requests)
        self.registry = Registry(settings.model_folders, {})
        self.provider = settings.provider
        self.draining = False  # the service stops: /ready fails, and connections close after their response
        self.owns_process = False  # otherwise another program owns the garbage collector
        self.failed = asyncio.Event()  # the inference thread is dead: this process should be replaced
        self.texts: Batcher[ClassificationTask, list[Answer]] = Batcher(
            partial(run_batch, report_tokenization=self.metrics.tokenize.observe),
            budget=settings.max_batch_tokens,
            wait_s=settings.request_timeout_s,
            report=self.metrics.record_batch,
            failed=self.failed.set,
        )
        self.compute = Compute(
            memory_bytes=settings.compute_memory_bytes,
            max_answers=settings.max_large_requests,
            preload=[clouds.__name__],
        )
        self._parser = ThreadPoolExecutor(1, thread_name_prefix="parser")  # one: parsing takes much memory
        self.tracer_provider = make_tracer_provider(url) if (url := settings.otlp_endpoint) else None
        self._loaders = loaders
        self._prover: Prover | None = None
        self._version_loader = ThreadPoolExecutor(1, thread_name_prefix="versions")
        self._loading: dict[str, asyncio.Future[None]] = {}  # older versions, by their names
        self._refreshing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self.started = False
        self._has_default = False  # whether the default model was loaded at the start

    async def start(self) -> None:
        """Load the models and start the background tasks."""
        self.compute.start()
        await asyncio.to_thread(self._load, asyncio.get_running_loop())
        self.run_in_background(self._sample_metrics())
        self.run_in_background(self._watch_models())
        self.run_in_background(self._release_memory())
        if self.owns_process:
            freeze_gc()
        self.started = True

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine until it ends or the service stops."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def run_in_parser(self, work: Callable[[], T]) -> T:
        """Run a function in the thread that parses long bodies, one at a time."""
        return await asyncio.get_running_loop().run_in_executor(self._parser, work)

    async def find_model(self, name: str, kind: str) -> RegistryEntry:
        """Return the entry of a model; an older version is loaded on its first use."""
        try:
            return self.registry.find(name, kind)
        except NotReady:
            await asyncio.shield(self._load_version(name))
            return self.registry.find(name, kind)

    async def find_heads(self, names: str | Sequence[str] | None) -> tuple[Head, ...]:
        """Return the heads of these names; of none, the default one."""
        names = names or self.settings.default_model
        names = [names] if isinstance(names, str) else names
        return tuple([(await self.find_model(name, HEAD)).model for name in names])

    def _load_version(self, name: str) -> asyncio.Future[None]:
        """Load an older version in a thread, which goes on if the caller leaves."""
        if name not in self._loading:
            loop = asyncio.get_running_loop()
            loading = loop.run_in_executor(self._version_loader, self.registry.load_version, name)
            loading.add_done_callback(lambda _: self._loading.pop(name, None))
            self._loading[name] = loading
        return self._loading[name]

    def _load(self, loop: asyncio.AbstractEventLoop) -> None:
        def on_stop(model: str, goes_on: bool) -> None:
            """End the process for a run that goes on, or if texts can no longer be answered by default."""
            entry, default = self.registry.get(model), self.registry.get(self.settings.default_model)
            if goes_on or (entry is not None and (entry.kind == ENCODER or entry is default)):
                loop.call_soon_threadsafe(self.failed.set)

        runtime = Runtime(self.settings.provider, self.settings.intra_op_threads, on_stop)
        self.provider = runtime.provider
        if self._loaders is None:
            self._prover = make_prover(runtime, self.settings)
            self.registry.loaders = proving_loaders(runtime, self.settings, self._prover)
        else:
            self.registry.loaders = self._loaders(runtime, self.settings)
        self._read_models()
        missing = self.registry.missing_reason(self.settings.default_model)
        reads_texts = any(entry.kind == HEAD for entry in self.registry.entries.values())
        if missing and (reads_texts or self.settings.default_model in self.registry.refused):
            raise ConfigurationError(f"DEFAULT_MODEL: {missing}", param="DEFAULT_MODEL")
        self._has_default = missing is None
        default = self.registry.get(self.settings.default_model)
        if default is not None and default.kind == HEAD:
            self.registry.load_version(default.name)
            self.registry.find(default.name, HEAD)

    async def stop(self) -> None:
        """Stop the background tasks, the inference thread and the compute process."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        for pool in (self._parser, self._version_loader):
            pool.shutdown(wait=False, cancel_futures=True)
        self.texts.stop()
        await asyncio.to_thread(self.compute.stop)
        if self.tracer_provider is not None:
            await asyncio.to_thread(self.tracer_provider.shutdown)

    async def reload(self) -> None:
        """Read the keys and the models again; errors are logged, and models in use stay."""
        try:
            await asyncio.to_thread(self.keys.reload)
        except ConfigurationError as error:
            log.error("keys not read again: %s", error.message)
        else:
            log.info("reload: %d API keys", len(self.keys))
        if self._prover is not None:
            self._prover.forget_failures()
        await self._refresh()
        log.info("reload: %d models, %d refused", len(self.registry.entries), len(self.registry.refused))

    async def _refresh(self) -> None:
        async with self._refreshing:
            await asyncio.to_thread(self._read_models)

    def _read_models(self) -> None:
        """Load the models of the folders; log and count changes."""
        before, refused = self.registry.entries, self.registry.refused
        self.registry.refresh()
        after = self.registry.entries
        for name in sorted(before.keys() | after.keys()):
            self._log_change(name, before.get(name), after.get(name))
        for name, reason in sorted(self.registry.refused.items() - refused.items()):
            log.warning("bundle %s refused: %s", name, reason)
        self.metrics.bundles_refused.set(len(self.registry.refused))

    def _log_change(self, name: str, old: RegistryEntry | None, new: RegistryEntry | None) -> None:
        if old is not None and new is not None and old.digest == new.digest:
            return
        if old is not None:
            self.metrics.set_model_served(name, old.kind, old.digest, False)
        if new is not None:
            self.metrics.set_model_served(name, new.kind, new.digest, True)
        log.info("model %s %s", name, "added" if old is None else "removed" if new is None else "replaced")

    async def _watch_models(self) -> None:
        """Reload the models when MODELS_DIR changes. An incomplete bundle is loaded once it is complete."""
        loaded = None
        while True:
            try:
                present = await asyncio.to_thread(bundle_fingerprints, self.settings.model_folders)
                if present != loaded or (present is not None and self.registry.is_behind(present)):
                    loaded = present
                    await self._refresh()
            except Exception:  # the edge of a worker loop: later changes are still loaded
                log.exception("MODELS_DIR could not be followed; trying again")
            await asyncio.sleep(WATCH_S)

    async def _sample_metrics(self) -> None:
        """Set the gauges every SAMPLE_S."""
        while True:
            self.metrics.set_gauges(
                in_flight=self.running_requests,
                texts_waiting=self.texts.depth,
                clouds_waiting=self.compute.waiting,
                ready=self.not_ready_reason() is None,
            )
            await asyncio.sleep(SAMPLE_S)

    async def _release_memory(self) -> None:
        """Release memory while large requests are answered, and for RELEASE_FOR_S after the last."""
        while True:
            await asyncio.sleep(RELEASE_EVERY_S)
            released_at = max(self.large_texts.released_at, self.large_clouds.released_at)
            if time.monotonic() < released_at + RELEASE_FOR_S:
                await asyncio.to_thread(collect_garbage)

    def check_health(self) -> None:
        """Raise NotReady if the inference thread does not work."""
        if not self.texts.healthy(STUCK_AFTER_S):
            raise NotReady(DEAD_MESSAGE)

    def check_ready(self) -> None:
        """Raise NotReady if requests should not come."""
        if reason := self.not_ready_reason():
            raise NotReady(reason)

    def not_ready_reason(self) -> str | None:
        """Return why no requests should be sent, or None."""
        if self.draining:
            return "the service is stopping"
        if not self.started:
            return "models are being loaded"
        if self._has_default and (missing := self.registry.missing_reason(self.settings.default_model)):
            return f"the default model is gone: {missing}"
        return None if self.texts.healthy(STUCK_AFTER_S) else DEAD_MESSAGE
