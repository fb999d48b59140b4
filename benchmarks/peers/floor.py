"""The floor: a raw ASGI app that reads the body and sends the bytes of one of our answers, no model run."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.peers.sentiment import Classifier, Explain
from benchmarks.reviews import reviews


def prepare(explain: Explain) -> bytes:
    item = Classifier().classify(reviews(22, 1), explain)
    usage = {"texts": 1, "tokens": item[0]["tokens"]}
    answer = {"id": "0" * 32, "model": "sentiment", "usage": usage, "data": item}
    return json.dumps(answer, separators=(",", ":")).encode()


ANSWERS = {f"/{explain}": prepare(explain) for explain in ("leaders", "none")}


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    answer = ANSWERS[scope["path"]]
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})
