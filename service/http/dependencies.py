"""The dependencies of endpoints, as in `async def models(service: ServiceDep)`, and the API key."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Depends, Path, Query, Request, Security
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer

from service.runtime.registry import RegistryEntry
from service.settings import PAGE_FILES
from service.state import AppState
from service.text.head import Head

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


ServiceDep = Annotated[AppState, Depends(get_service)]
ModelInPath = Annotated[str, Path(description="The name of a model.")]
VersionInPath = Annotated[str, Path(description="The digest of the model, or its first 12 digits.")]


OnEmpty = Annotated[
    Literal["error", "abstain"],
    Query(description="With abstain, a blank text has the abstain_reason `empty`; it is an error else."),
]


@dataclass(frozen=True, slots=True)
class LabelOptions:
    """The options of protocols that know only labels, and the request that has them."""

    request: Request
    neutral: bool  # answer `neutral` where the model abstains
    accept_blank: bool


async def get_label_options(
    request: Request,
    service: ServiceDep,
    abstain: Annotated[
        Literal["neutral"] | None,
        Query(description="With neutral, the label is `neutral` where the model abstains."),
    ] = None,
    on_empty: OnEmpty = "error",
) -> LabelOptions:
    """Return the options in the query."""
    neutral = abstain == "neutral" or service.settings.abstain_as_neutral
    return LabelOptions(request, neutral, on_empty == "abstain")


LabelOptionsDep = Annotated[LabelOptions, Depends(get_label_options)]


def record_models(request: Request, models: Iterable[Head | RegistryEntry], texts: int | None = None) -> None:
    """Record which models answer, and how many texts, for the header of the response and for the log."""
    request.state.models = {model.name: model.digest for model in models}
    request.state.texts = texts


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
        request.state.key = service.keys.check(
            *(stripped.encode("latin-1") for key in keys if (stripped := key.strip()))
        )


REQUIRE_API_KEY = [Depends(check_key)]
