"""Routes for operators: health, readiness, information, model cards, metrics."""

from typing import Any, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from hardmax.models.service import Info, Limits, LoadError, ModelCard, ModelList
from service import __version__
from service.errors import NotFound
from service.http import openapi
from service.http.bodies import reply
from service.http.dependencies import OPEN, ModelInPath, ServiceDep
from service.observability.metrics import CONTENT_TYPE
from service.runtime.bundle import version_of
from service.runtime.card import HEAD
from service.runtime.registry import RegistryEntry
from service.state import AppState
from service.text.decision import describe_labels
from service.wire.documents import write
from service.wire.protocols import ResponseModel

router = APIRouter(tags=["operations"])
PROBE: dict[str, Any] = {"responses": openapi.responses(errors=(503,)), "openapi_extra": OPEN}


class Health(ResponseModel):
    """The answer of GET /health."""

    status: Literal["ok"] = Field(
        description="The status is always ok: a process that is not healthy answers 503."
    )


class Ready(ResponseModel):
    """The answer of GET /ready."""

    status: Literal["ready"] = Field(
        description="The status is always ready: a process that is not ready answers 503."
    )


@router.get("/health", **PROBE, summary="Check that the process is alive")
@router.head("/health", include_in_schema=False)  # for some monitors
async def health(service: ServiceDep) -> Health:
    """Answer 200 while the inference thread works, otherwise 503: restart the process then."""
    service.check_health()
    return Health(status="ok")


@router.get("/ready", **PROBE, summary="Check that the service can take requests")
@router.head("/ready", include_in_schema=False)
async def ready(service: ServiceDep) -> Ready:
    """Answer 200 if models are loaded and warm and the service is not stopping, otherwise 503."""
    service.check_ready()
    return Ready(status="ready")


@router.get("/info", responses=openapi.responses(errors=(401,)), summary="Get version, provider and limits")
async def info(service: ServiceDep) -> Info:
    """Return the version, the provider, the default model, the limits and the bundles that were refused."""
    settings, refused = service.settings, service.registry.refused
    return Info(
        version=__version__,
        provider=service.provider,
        threads=settings.intra_op_threads,
        default_model=settings.default_model,
        models=list(service.registry.entries),
        load_errors=[LoadError(name=name, reason=reason) for name, reason in refused.items()],
        limits=Limits.model_validate(settings, from_attributes=True),
    )


@router.get(
    "/models",
    response_model=ModelList,
    responses=openapi.responses(errors=(401,)),
    summary="List the cards of all models",
)
async def models(service: ServiceDep) -> Response:
    """Return the card of every model that is served."""
    cards = [_describe_entry(service, entry) for entry in service.registry.entries.values()]
    return reply(write({"models": cards}))


@router.get(
    "/models/{name}",
    response_model=ModelCard,
    responses=openapi.responses(errors=(401, 404, 422)),
    summary="Get the card of a model",
)
async def model(service: ServiceDep, name: ModelInPath) -> Response:
    """Return the card of one model: kind, labels, version, digest, license and figures."""
    entry = service.registry.get(name)
    if entry is None:
        raise NotFound(str(service.registry.missing_reason(name)), param="name")
    return reply(write(_describe_entry(service, entry)))


@router.get(
    "/metrics",
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    openapi_extra=OPEN,
    response_class=Response,
    summary="Get metrics for Prometheus",
)
async def metrics(service: ServiceDep) -> Response:
    """Return metrics in the text format of Prometheus. Several workers answer with their sum."""
    return reply(service.metrics.render(), CONTENT_TYPE)


def _describe_entry(service: AppState, entry: RegistryEntry) -> dict[str, Any]:
    """Return the card of the bundle with what this process adds."""
    return {
        **entry.card,
        **(describe_labels(entry.card) if entry.kind == HEAD else {}),
        **(entry.model.metadata() if entry.kind == HEAD and entry.model is not None else {}),
        "default": entry is service.registry.get(service.settings.default_model),
        "version": version_of(entry.name),
        "digest": entry.digest,
        "loaded_at": entry.loaded_at.isoformat(timespec="seconds"),
    }
