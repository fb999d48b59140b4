"""The state of the application: loading, reloading and watching models, and the garbage collector."""

import asyncio
import gc
import logging
import shutil
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import pytest
from bundles import LABELS, write_head, write_models
from graphs import change_graph, loop_forever
from onnx import TensorProto, helper

from service import state
from service.errors import BundleError, NotFound, NotReady
from service.loaders import Loaders, domain_loaders
from service.runtime import proof, watchdog
from service.runtime.bundle import Bundle
from service.runtime.card import HEAD
from service.runtime.registry import Loader
from service.runtime.session import Runtime
from service.settings import PRETRAINED_FOLDER, Settings
from service.state import AppState
from service.text.pipeline import ClassifyOptions, classify_all, make_tasks


def add_an_input(model: onnx.ModelProto) -> None:
    """Add an input that nobody feeds: the bundle is valid, and every run of it fails."""
    model.graph.input.append(helper.make_tensor_value_info("another", TensorProto.FLOAT, [1]))


def run(
    models: Path,
    use: Callable[[AppState], Awaitable[Any]],
    owns: bool = False,
    loaders: Loaders | None = domain_loaders,
    **limits: Any,
) -> Any:
    settings = Settings(models_dir=models, pretrained_models=False, default_model="tiny", **limits)
    service = AppState(settings, loaders)
    service.owns_process = owns

    async def life() -> Any:
        await service.start()
        try:
            return await use(service)
        finally:
            await service.stop()

    return asyncio.run(life())


async def load_errors(service: AppState) -> dict[str, str]:
    return dict(service.registry.refused)


def test_bundle_of_clouds_that_cannot_run_is_refused_when_it_is_loaded(tmp_path: Path) -> None:
    """Such a bundle was once loaded, and every request failed with 500."""
    write_models(tmp_path)
    assert run(tmp_path, load_errors, max_points=1, max_dimension=1, max_layers=1) == {}
    change_graph(tmp_path / "dynamics", add_an_input)
    assert set(run(tmp_path, load_errors)) == {"dynamics"}


def test_bundle_that_never_ends_to_run_is_refused_when_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a bundle once blocked every reload for good."""
    monkeypatch.setattr(proof, "PROOF_S", 3)
    shutil.copytree(PRETRAINED_FOLDER / "dynamics", tmp_path / "dynamics")
    change_graph(tmp_path / "dynamics", loop_forever)
    reason = "dynamics took more than 3 s to open and to run once; SIGHUP tries again"
    assert run(tmp_path, load_errors, loaders=None) == {"dynamics": reason}


def test_run_of_the_default_model_that_had_to_be_stopped_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It passed a warm-up of nine words, and texts waited for ever. Another model is only left out."""
    write_head(tmp_path)
    write_head(tmp_path, "other")
    for name in ("tiny", "other"):
        change_graph(tmp_path / name, partial(loop_forever, min_tokens=50))

    async def ask(service: AppState) -> None:
        monkeypatch.setattr(watchdog, "TICK_S", 0.02)
        for name in ("other", "tiny"):
            assert not service.failed.is_set()
            options = ClassifyOptions((service.registry.find(name, HEAD).model,))
            (error,) = await service.texts.submit(options.encoder, make_tasks(["good " * 60], options))
            assert isinstance(error, NotReady)
            assert f"a run of {name} took more than 30 s" in error.message
        async with asyncio.timeout(20):
            await service.failed.wait()

    run(tmp_path, ask)
    messages = [record.getMessage() for record in caplog.records]
    assert [m for m in messages if "is stopped" in m] == [
        f"a run of {name} takes more than 30 s and is stopped" for name in ("other", "tiny")
    ]


def test_older_version_that_never_ends_to_load_delays_no_other_request(tmp_path: Path) -> None:
    """It was once loaded on the event loop: /health stood still for a minute."""
    write_head(tmp_path)
    for name in ("slow@1", "slow@2"):
        write_head(tmp_path, name)
    ends, loads = threading.Event(), []

    def slow_loaders(runtime: Runtime, settings: Settings) -> Mapping[str, Loader]:
        ordinary = domain_loaders(runtime, settings)

        def load_head(bundle: Bundle) -> Any:
            if bundle.name != "slow@1":
                return ordinary[HEAD](bundle)
            loads.append(bundle.name)
            assert ends.wait(60)
            raise BundleError("slow@1 took more than 60 s")

        return {**ordinary, HEAD: load_head}

    async def ask(service: AppState) -> None:
        callers = [asyncio.create_task(service.find_heads("slow@1")) for _ in range(20)]
        callers[0].cancel()
        for _ in range(20):
            start_s = time.perf_counter()
            await asyncio.sleep(0.01)
            assert time.perf_counter() - start_s < 5
        assert len(await service.find_heads(["slow", "tiny"])) == 2  # they are loaded
        with pytest.raises(NotReady, match="slow@1 is being loaded"):
            service.registry.find("slow@1", HEAD)
        ends.set()
        refusals = await asyncio.gather(*callers[1:], return_exceptions=True)
        message = "the model slow@1 was refused: slow@1 took more than 60 s"
        assert {str(refusal) for refusal in refusals} == {message}
        with pytest.raises(NotFound, match=message):
            await service.find_heads("slow@1")
        assert loads == ["slow@1"]

    run(tmp_path, ask, loaders=slow_loaders)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.05)


def test_text_ends_with_the_model_that_it_began_with(tmp_path: Path) -> None:
    write_head(tmp_path)

    async def replace(service: AppState) -> list[str]:
        first = make_tasks(["superb"], ClassifyOptions(await service.find_heads("tiny")))
        write_head(tmp_path, labels=LABELS[::-1])
        await service.reload()
        second = make_tasks(["superb"], ClassifyOptions(await service.find_heads("tiny")))
        return [answer["label"] for tasks in (first, second) for (answer,) in classify_all(tasks)]

    assert run(tmp_path, replace) == ["positive", "negative"]


@pytest.mark.parametrize("method", ["moved", "link"])
def test_models_are_followed_by_the_name_of_their_folder(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another folder is moved to its place, or a link is changed, as git-sync does."""
    monkeypatch.setattr(state, "WATCH_S", 0.05)
    first, second, models = (tmp_path / name for name in ("first", "second", "models"))
    for folder in (first, second):
        folder.mkdir()
        write_head(folder)
    write_head(second, name="other")

    def publish(folder: Path) -> None:
        if method == "link":
            (tmp_path / "link").symlink_to(folder)
            (tmp_path / "link").rename(models)
        else:
            folder.rename(models)

    async def follow(service: AppState) -> None:
        assert set(service.registry.entries) == {"reader", "tiny"}
        if method == "moved":
            models.rename(tmp_path / "old")
        publish(second)
        await until(lambda: set(service.registry.entries) == {"other", "reader", "tiny"})
        write_head(models, name="third")  # changes of the new folder are seen too
        await until(lambda: "third" in service.registry.entries)

    publish(first)
    run(models, follow)


def test_reload_logs_what_it_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_head(tmp_path)
    with caplog.at_level(logging.INFO):
        run(tmp_path, AppState.reload)
    messages = [record.getMessage() for record in caplog.records if record.getMessage().startswith("reload")]
    assert messages == ["reload: 0 API keys", "reload: 2 models, 0 refused"]


@pytest.mark.parametrize("owns", [False, True])
def test_garbage_collector_is_tuned_only_by_the_server(tmp_path: Path, owns: bool) -> None:
    """An application that was opened by another program once froze all objects of that program."""
    before = gc.get_threshold()

    async def start(service: AppState) -> tuple[bool, bool]:
        return gc.get_freeze_count() > 0, gc.get_threshold() != before

    write_head(tmp_path)
    gc.unfreeze()
    try:
        assert run(tmp_path, start, owns) == (owns, owns)
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
