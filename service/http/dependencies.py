"""The dependencies of endpoints, as in `async def models(service: ServiceOf)`; and the API key."""

from typing import Annotated, Literal

from fastapi import Depends, Path, Query, Request, Security
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer

from service.errors import InvalidInput
from service.http.bodies import RequestSize
from service.settings import PAGE_FILES
from service.state import AppState

PUBLIC_ROUTES = frozenset(
    [
        *("/", "/docs", "/openapi.json", PAGE_FILES),
        *("/health", "/ready", "/metrics", "/v2/health/live", "/v2/health/ready"),
    ]
)

Bearer = HTTPBearer(scheme_name="bearer", auto_error=False)
Header = APIKeyHeader(name="X-API-Key", scheme_name="key", auto_error=False)


async def service_of(request: Request) -> AppState:
    """Return the state of the application."""
    service: AppState = request.app.state.service
    return service


async def id_of(request: Request) -> str:
    """Return the id of the request."""
    name: str = request.state.request_id
    return name


async def size_of(request: Request) -> RequestSize:
    """Return the size of the request, which waits for a slot if it is large."""
    size: RequestSize = request.state.size
    return size


ServiceOf = Annotated[AppState, Depends(service_of)]
RequestId = Annotated[str, Depends(id_of)]
SizeOf = Annotated[RequestSize, Depends(size_of)]
ModelInPath = Annotated[str, Path(description="The name of a model.")]
VersionInPath = Annotated[str, Path(description="The digest of the model, or its first 12 digits.")]


async def neutral_of(
    service: ServiceOf,
    request: Request,
    abstain: Annotated[
        Literal["neutral"] | None,
        Query(description="With neutral, the label is `neutral` where the model abstains."),
    ] = None,
) -> bool:
    """Return whether `neutral` is answered where the model abstains."""
    if "undecided" in request.query_params:
        message = "the query parameter undecided=label is abstain=neutral since 0.4"
        raise InvalidInput(message, param="undecided")
    return abstain == "neutral" or service.settings.abstain_as_neutral


NeutralOf = Annotated[bool, Depends(neutral_of)]


async def check_key(
    request: Request,
    service: ServiceOf,
    bearer: Annotated[HTTPAuthorizationCredentials | None, Security(Bearer)],
    header: Annotated[str | None, Security(Header)],
) -> None:
    """Refuse a caller without a key, unless the route is public. Either header will do."""
    if not service.keys.required:
        return
    route = request.scope["route"].path
    # The page is public where "/" is, its files always; what is posted to the same address is not.
    public = route in PUBLIC_ROUTES and (route != "/" or request.method != "POST")
    if not public:
        given = (bearer.credentials if bearer else "", header or "")  # a proxy may want the other for itself
        service.keys.check(*(key.encode("latin-1") for each in given if (key := each.strip())))


KEY_NEEDED = [Depends(check_key)]
