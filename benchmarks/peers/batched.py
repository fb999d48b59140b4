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

from benchmarks.peers.sentiment import Classifier
from service.answers.texts import raise_first
from service.engine.batching import Batcher
from service.schemas.texts import ClassifyRequest
from service.texts.work import Answer, How, Text, run, texts_of

batcher: Batcher[Text, list[Answer]] = Batcher(run, budget=16384)
models: dict[str, Any] = {}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    models["sentiment"] = Classifier().head
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
    how = How((models["sentiment"],), asked.explain)
    found = raise_first(await batcher.submit(how.reader, texts_of(texts, how)), "input")
    data = [{"index": index, **answer} for index, (answer,) in enumerate(found)]
    usage = {"texts": len(data), "tokens": sum(each["tokens"] for each in data)}
    return orjson.dumps({"id": "1", "model": "sentiment", "usage": usage, "data": data})


@app.post("/plain")
async def plain(body: ClassifyRequest) -> Response:
    return Response(await classify(body), media_type="application/json")


async def hook(body: ClassifyRequest) -> Response:
    raise NotImplementedError  # the route's handler answers


app.router.add_api_route("/hook", hook, methods=["POST"], route_class_override=Hook)
