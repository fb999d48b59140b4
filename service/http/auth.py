"""Who may call: the dependency of every route, and the two ways in which a key travels."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer

from service.lifecycle import Service

Bearer = HTTPBearer(scheme_name="bearer", auto_error=False)
Header = APIKeyHeader(name="X-API-Key", scheme_name="key", auto_error=False)


async def check_key(
    request: Request,
    bearer: Annotated[HTTPAuthorizationCredentials | None, Security(Bearer)],
    header: Annotated[str | None, Security(Header)],
) -> None:
    """Refuse a caller without a key, unless the route is public. Either header will do."""
    service: Service = request.app.state.service
    route = request.scope["route"].path
    if service.keys and not _is_public(service, route, request.method):
        given = bearer.credentials if bearer else header or ""
        service.keys.check(given.strip().encode("latin-1"))


def _is_public(service: Service, route: str, method: str) -> bool:
    """The page is public where "/" is; what is posted to the same address is not."""
    return route in service.public_paths and (route != "/" or method != "POST")


KEY_NEEDED = [Depends(check_key)]
