"""The dependencies of endpoints, as in `async def models(service: ServiceDep)`, and the API key."""

from typing import Annotated, Any, Literal

from fastapi import Depends, Path, Query, Request, Security
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer

from service.memory import HeldSlots
from service.settings import PAGE_FILES
from service.state import AppState

OPEN: dict[str, Any] = {"security": [{}]}  # in the document, of routes that need no key
PUBLIC_ROUTES = frozenset(
    [
        *("/", "/docs", "/openapi.json", PAGE_FILES),
        *("/health", "/ready", "/metrics", "/v2/health/live", "/v2/health/ready"),
    ]
)

Bearer = HTTPBearer(scheme_name="bearer", auto_error=False)
Header = APIKeyHeader(name="X-API-Key", scheme_name="key", auto_error=False)


async def get_service(request: Request) -> AppState:
    """Return the state of the application."""
    service: AppState = request.app.state.service
    return service


async def get_request_id(request: Request) -> str:
    """Return the id of the request."""
    request_id: str = request.state.request_id
    return request_id


async def get_held(request: Request) -> HeldSlots:
    """Return what the request holds until it is answered."""
    held: HeldSlots = request.state.held
    return held


ServiceDep = Annotated[AppState, Depends(get_service)]
RequestId = Annotated[str, Depends(get_request_id)]
HeldDep = Annotated[HeldSlots, Depends(get_held)]
ModelInPath = Annotated[str, Path(description="The name of a model.")]
VersionInPath = Annotated[str, Path(description="The digest of the model, or its first 12 digits.")]


async def get_neutral(
    service: ServiceDep,
    abstain: Annotated[
        Literal["neutral"] | None,
        Query(description="With neutral, the label is `neutral` where the model abstains."),
    ] = None,
) -> bool:
    """Return whether the answer is `neutral` where the model abstains."""
    return abstain == "neutral" or service.settings.abstain_as_neutral


NeutralDep = Annotated[bool, Depends(get_neutral)]


async def check_key(
    request: Request,
    service: ServiceDep,
    bearer: Annotated[HTTPAuthorizationCredentials | None, Security(Bearer)],
    header: Annotated[str | None, Security(Header)],
) -> None:
    """Refuse a caller without a key in one of the headers, unless the route is public."""
    if not service.keys.required:
        return
    route = request.scope["route"].path
    # the page and its files are public; POST / is not
    public = route in PUBLIC_ROUTES and (route != "/" or request.method != "POST")
    if not public:
        keys = (bearer.credentials if bearer else "", header or "")  # a proxy may use the other header
        request.state.key_name = service.keys.check(
            *(stripped.encode("latin-1") for key in keys if (stripped := key.strip()))
        )


REQUIRE_API_KEY = [Depends(check_key)]
