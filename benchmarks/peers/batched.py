"""FastAPI with our model, our batcher and orjson, and nothing else: what the rest of the service costs.

`/plain` is an ordinary endpoint: FastAPI parses and validates. `/hook` uses FastAPI's own hook for endpoints
that take and give bytes. Neither has keys, limits, ids, deadlines, metrics or a log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute

from service.engine.batching import Batcher
from service.engine.bundle import read_bundle
from service.engine.runtime import Runtime
from service.http.routes.classify import answer_of, raise_first
from service.lifecycle import domain_loaders
from service.schemas.texts import ClassifyRequest
from service.settings import BUNDLED_MODELS, Settings
from service.texts.runs import How, run_texts, size_of

BUDGET = 16384
settings = Settings()
batcher: Batcher[str, dict[str, Any]] = Batcher(run_texts, budget=BUDGET, bound=64 * BUDGET)
models: dict[str, Any] = {}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    bundle = read_bundle(BUNDLED_MODELS / "sentiment")
    models["sentiment"] = domain_loaders(Runtime("cpu", 1), settings)["sentiment"](bundle)
    yield
    batcher.stop()


class Hook(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        async def handle(request: Request) -> Response:
            asked = ClassifyRequest.model_validate_json(await request.body())
            return Response(await classify(asked), media_type="application/json")

        return handle


app = FastAPI(lifespan=lifespan)


async def classify(asked: ClassifyRequest) -> bytes:
    texts = [asked.input] if isinstance(asked.input, str) else asked.input
    how = How(models["sentiment"], asked.explain, False, True, "codepoints")
    results = await batcher.submit(how, [(text, size_of(text)) for text in texts])
    found = raise_first(results, "input", single=isinstance(asked.input, str))
    return orjson.dumps(answer_of("1", "sentiment", found))


@app.post("/plain")
async def plain(body: ClassifyRequest) -> Response:
    return Response(await classify(body), media_type="application/json")


async def hook(body: ClassifyRequest) -> Response:
    raise NotImplementedError  # the route's handler answers


app.router.add_api_route("/hook", hook, methods=["POST"], route_class_override=Hook)
