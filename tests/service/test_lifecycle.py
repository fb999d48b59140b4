"""Loading and watching: a hostile bundle costs itself, and a folder is followed by its name."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bundles import write_head, write_models
from onnx import TensorProto, helper

from service import lifecycle
from service.engine.runtime import Runtime
from service.errors import InferenceError
from service.lifecycle import Service
from service.settings import Settings


def endless(folder: Path) -> None:
    """A bundle of kind dynamics whose graph loops for ever."""
    folder.mkdir()
    go_on = helper.make_node("Identity", ["going"], ["goes_on"])
    same = helper.make_node("Identity", ["value"], ["next"])
    body = helper.make_graph(
        [go_on, same], "body",
        [helper.make_tensor_value_info("turn", TensorProto.INT64, []),
         helper.make_tensor_value_info("going", TensorProto.BOOL, []),
         helper.make_tensor_value_info("value", TensorProto.FLOAT, [])],
        [helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
         helper.make_tensor_value_info("next", TensorProto.FLOAT, [])],
    )  # fmt: skip
    true = helper.make_tensor("true", TensorProto.BOOL, [], [True])
    graph = helper.make_graph(
        [helper.make_node("Loop", ["", "true", "x"], ["y"], body=body)], "endless",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])],
        [true],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "model.onnx").write_bytes(model.SerializeToString())


def test_run_that_never_ends_is_stopped_when_its_time_is_over(tmp_path: Path) -> None:
    """Row 12: as in a bundle with an endless Loop, which held up every reload."""
    endless(tmp_path / "endless")
    runtime = Runtime("cpu", 1)
    with runtime.limit(0.5), pytest.raises(InferenceError, match="terminate"):
        runtime.open((tmp_path / "endless" / "model.onnx").read_bytes()).run(
            {"x": np.ones((), np.float32)}, ["y"]
        )


def damage_inputs(folder: Path) -> None:
    """Give the graph another input: the bundle is whole, and every run of it fails."""
    model = onnx.load(folder / "model.onnx")
    model.graph.input.append(helper.make_tensor_value_info("another", TensorProto.FLOAT, [1]))
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    card = json.loads((folder / "card.json").read_text())
    card["model_sha256"] = hashlib.sha256((folder / "model.onnx").read_bytes()).hexdigest()
    (folder / "card.json").write_text(json.dumps(card))


def run(models: Path, use: Callable[[Service], Awaitable[Any]], **limits: Any) -> Any:
    async def live() -> Any:
        settings = Settings(models_dir=models, bundled_models=False, default_model="tiny", **limits)
        service = Service(settings)
        await service.start()
        try:
            return await use(service)
        finally:
            await service.stop()

    return asyncio.run(live())


def test_bundle_of_clouds_that_cannot_run_is_refused_when_it_is_loaded(tmp_path: Path) -> None:
    """Row 19: it was taken, and every request failed with 500."""
    write_models(tmp_path)

    async def refused(service: Service) -> dict[str, str]:
        return dict(service.registry.refused)

    assert run(tmp_path, refused, max_points=1, max_dimension=1, max_layers=1) == {}
    damage_inputs(tmp_path / "dynamics")
    assert set(run(tmp_path, refused)) == {"dynamics"}


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(400):
        if holds():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("this did not come about in time")


@pytest.mark.parametrize("way", ["moved", "link"])
def test_models_are_followed_by_the_name_of_their_folder(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 13: another folder is moved to its place, or a link is turned, as git-sync does."""
    monkeypatch.setattr(lifecycle, "WATCH_S", 0.05)
    first, second, models = (tmp_path / name for name in ("first", "second", "models"))
    for folder in (first, second):
        folder.mkdir()
        write_head(folder)
    write_head(second, name="other")
    if way == "link":
        models.symlink_to(first)
    else:
        first.rename(models)

    async def follow(service: Service) -> None:
        assert set(service.registry.entries) == {"reader", "tiny"}
        if way == "link":
            turned = tmp_path / "turned"
            turned.symlink_to(second)
            turned.rename(models)
        else:
            models.rename(tmp_path / "old")
            second.rename(models)
        await until(lambda: set(service.registry.entries) == {"other", "reader", "tiny"})
        write_head(models, name="third")  # and what comes later is seen too
        await until(lambda: "third" in service.registry.entries)

    run(models, follow)


def test_reload_says_what_it_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_head(tmp_path)
    with caplog.at_level(logging.INFO):
        run(tmp_path, Service.reload)
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("reload")]
    assert said == ["reload: 0 API keys", "reload: 2 models, 0 refused"]
