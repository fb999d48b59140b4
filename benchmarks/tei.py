"""The queue of text-embeddings-inference in Python: one thread takes as many waiting texts as its token
budget allows, without a timer. (The original is written in Rust and cannot run the head of this graph.)
"""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response

from model_export.measure.served import ServedModel
from service.runtime.bundle import PRETRAINED_DEFAULT
from service.runtime.session import Runtime
from service.settings import PRETRAINED_FOLDER

MAX_BATCH_TOKENS = 16_384  # its default
Waiting = tuple[str, asyncio.Future[dict[str, Any]], asyncio.AbstractEventLoop]
waiting_texts: queue.SimpleQueue[Waiting] = queue.SimpleQueue()


def classify_batches(model: ServedModel) -> None:
    while True:
        batch = [waiting_texts.get()]
        tokens = len(batch[0][0]) // 4
        while tokens < MAX_BATCH_TOKENS and not waiting_texts.empty():
            batch.append(waiting_texts.get())
            tokens += len(batch[-1][0]) // 4
        items = model.classify([text for text, _, _ in batch])
        batch[0][2].call_soon_threadsafe(set_results, batch, items)


def set_results(batch: list[Waiting], items: list[dict[str, Any]]) -> None:
    for (_, future, _), item in zip(batch, items, strict=True):
        if not future.done():
            future.set_result(item)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    model = ServedModel(PRETRAINED_FOLDER, PRETRAINED_DEFAULT, Runtime("cpu", 1))
    threading.Thread(target=classify_batches, args=(model,), daemon=True).start()
    yield


app = FastAPI(lifespan=lifespan)


@app.post("/predict")
async def predict(request: Request) -> Response:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[dict[str, Any]] = loop.create_future()
    waiting_texts.put((orjson.loads(await request.body())["inputs"], future, loop))
    return Response(orjson.dumps([await future]), media_type="application/json")
