"""The express lane: short texts to /classify are answered before FastAPI's machinery.

Finding the route, resolving dependencies and making a response take longer than the inference of a short
text. The lane is a middleware behind the others: ids, hosts, headers, failures, deadlines, places, room,
metrics and the log are those of every request. It calls the rules of the ordinary way, so an answer is the
same to the bit.
It takes a small plain request while no long batch runs. All else, and whatever would be refused, goes on to
the ordinary way. EXPRESS_LANE=false turns it off.
"""

from __future__ import annotations

import orjson
from pydantic import ValidationError
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import HardmaxError, Unauthorized
from service.http.auth import check_key
from service.http.routes import classify
from service.lifecycle import Service
from service.schemas.texts import ClassifyRequest
from service.texts.runs import bytes_of, is_brief, size_of

LONGEST_BODY = 4096  # bytes
JSON = b"application/json"
HEADERS = ((b"cache-control", b"no-store"), (b"content-type", JSON))


class Express:
    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self._service = service
        self._route = next(route for route in classify.router.routes if isinstance(route, Route))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._takes(scope):
            await self.app(scope, receive, send)
            return
        message = await receive()
        answer = None
        if not message.get("more_body") and len(message.get("body", b"")) <= LONGEST_BODY:
            answer = await self._answer(scope, message.get("body", b""))
        if answer is None:
            await self.app(scope, _again(message, receive), send)
            return
        scope["route"] = self._route
        headers = [*HEADERS, (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def _takes(self, scope: Scope) -> bool:
        if scope["type"] != "http" or scope["path"] != self._route.path or scope["method"] != "POST":
            return False
        headers = dict(reversed(scope["headers"]))  # of two with one name the first counts
        return (
            headers.get(b"content-type") == JSON
            and len(headers.get(b"content-length", b"unknown")) <= 4
            and b"content-encoding" not in headers
            and self._service.texts.idle
            and not scope["app"].dependency_overrides
            and self._has_key(scope)
        )

    def _has_key(self, scope: Scope) -> bool:
        try:
            check_key(self._service, self._route.path, scope)
        except Unauthorized:
            return False
        return True

    async def _answer(self, scope: Scope, body: bytes) -> bytes | None:
        """None where the ordinary way must answer."""
        service = self._service
        try:
            asked = ClassifyRequest.model_validate_json(body)
            name, how, texts = await classify.choose(asked, service.registry, service.settings)
            sizes = [size_of(text) for text in texts]
            if not is_brief(how, max(sizes), sum(sizes)):
                return None
            scope["state"]["holding"].expect(bytes_of(how, texts))
            return orjson.dumps(await classify.answer(service, scope["state"], asked, name, how, texts))
        except (ValidationError, HardmaxError):
            return None


def _again(message: Message, receive: Receive) -> Receive:
    """A `receive` that begins with what was received already."""
    waiting = [message]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again
