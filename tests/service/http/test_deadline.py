"""Cancelled requests: the work ends when the caller leaves, and nothing of it is kept."""

import asyncio
import gc
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import BackgroundTasks
from server import eventually, in_process

from service.errors import Cancelled
from service.http.middleware import Exchange
from service.memory import Slots


class Cloud:
    """An object that only the work of a request refers to."""


def test_nothing_is_kept_of_a_request_whose_caller_left() -> None:
    references: list[weakref.ref[Cloud]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        cloud = Cloud()
        references.append(weakref.ref(cloud))
        assert not (await receive()).get("more_body")
        await asyncio.sleep(10)

    async def work() -> None:
        settings = SimpleNamespace(request_timeout_s=60, payload_limit_bytes=1_000_000)
        service: Any = SimpleNamespace(settings=settings, draining=False, large_texts=Slots(1))
        messages = iter([{"type": "http.request"}, {"type": "http.disconnect"}])

        async def receive() -> dict[str, str]:
            return next(messages)

        async def request() -> None:
            with pytest.raises(Cancelled):
                await Exchange(
                    {"path": "/classify", "headers": [], "state": {}}, {}, receive, print, service
                ).run(app)

        await asyncio.create_task(request())  # one task for each request, as in uvicorn
        gc.collect()
        assert [cloud() for cloud in references] == [None]

    asyncio.run(work())


def test_background_task_of_a_route_is_not_cancelled(models: Path) -> None:
    calls: list[str] = []

    async def later() -> None:
        await asyncio.sleep(0.2)
        calls.append("later")

    with in_process(models) as client:
        app: Any = client.app

        @app.get("/later")
        async def answer(tasks: BackgroundTasks) -> str:
            tasks.add_task(later)
            return "soon"

        assert client.get("/later").json() == "soon"
        eventually(lambda: calls == ["later"], timeout_s=5)
