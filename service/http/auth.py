"""Who may call: the dependency of every route, and the two ways in which a key travels."""

from __future__ import annotations

from fastapi import Request, Security
from fastapi.openapi.models import APIKey, APIKeyIn, HTTPBearer
from fastapi.openapi.models import SecurityBase as Model
from fastapi.security.base import SecurityBase
from starlette.types import Scope

from service.lifecycle import Service


class Key(SecurityBase):
    """Refuses a caller without a key. Either header will do, so both schemes check the same."""

    def __init__(self, name: str, model: Model) -> None:
        self.scheme_name = name
        self.model = model

    async def __call__(self, request: Request) -> None:
        check_key(request.app.state.service, request.scope["route"].path, request.scope)


def check_key(service: Service, route: str, scope: Scope) -> None:
    """Raise `Unauthorized` unless the route is public or the request carries a key of ours."""
    if service.keys and not _is_public(service, route, scope["method"]):
        headers = dict(scope["headers"])
        scheme, _, value = headers.get(b"authorization", b"").partition(b" ")
        given = value if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"")
        service.keys.check(given.strip())


def _is_public(service: Service, route: str, method: str) -> bool:
    """The page is public where "/" is; what is posted to the same address is not."""
    return route in service.public_paths and (route != "/" or method != "POST")


KEY_NEEDED = [
    Security(Key("bearer", HTTPBearer())),
    Security(Key("key", APIKey.model_validate({"in": APIKeyIn.header, "name": "X-API-Key"}))),
]
