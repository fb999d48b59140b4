"""create_app(settings): the application, composed of the service's parts, routes and middleware."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from threading import Lock
from typing import Any

from fastapi import FastAPI
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware

from service import __version__
from service.errors import HardmaxError
from service.http.dependencies import REQUIRE_API_KEY
from service.http.errors import handle_error
from service.http.middleware import RequestContextMiddleware, RequestLimitMiddleware, RootPathMiddleware
from service.http.openapi import declare_headers, restore_nulls
from service.http.routes import classify, huggingface, open_inference, operations, page, points
from service.loaders import Loaders
from service.runtime.registry import with_default_model
from service.settings import Settings
from service.state import AppState
from service.wire.protocols import InferRequest
from service.wire.requests import ClassifyRequest, ControlRequest, DynamicsRequest, SequencesRequest

MIN_COMPRESSED_BYTES = 16_384  # an answer with leaders has 700 bytes per text
COMPRESSION_LEVEL = 4
Lifespan = Callable[[AppState, FastAPI], AbstractAsyncContextManager[None]]
TAGS = [
    {"name": "inference", "description": "Classification of texts, point clouds, control and sequences."},
    {"name": "operations", "description": "Health, readiness, metrics, limits and model cards."},
    {"name": "other clients", "description": "The protocols of Hugging Face and Triton."},
    {"name": "v2", "description": "The Open Inference Protocol, as KServe and Triton have it."},
]
DESCRIPTION = """Inference for hardmax transformers: every answer comes with its exact reason."""
ROUTERS = (classify, points, operations, huggingface, open_inference, page)
BODIES = (
    ClassifyRequest,
    ControlRequest,
    DynamicsRequest,
    huggingface.EndpointRequest,
    InferRequest,
    huggingface.PredictRequest,
    SequencesRequest,
)


class Application(FastAPI):
    """FastAPI with an OpenAPI document that includes the bodies which endpoints read by a dependency."""

    lock = Lock()  # simultaneous requests for the document, which takes a third of a second, make it once

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document, which is made on the first call."""
        with self.lock:
            document = super().openapi()
            schemas = document["components"]["schemas"]
            if BODIES[0].__name__ not in schemas:
                template = "#/components/schemas/{model}"
                _, bodies = models_json_schema(
                    [(model, "validation") for model in BODIES], ref_template=template
                )
                schemas |= jsonable_encoder(bodies["$defs"], exclude_none=True)
                restore_nulls(document, self.routes)
                declare_headers(document)
        return document


def create_app(settings: Settings, *, loaders: Loaders | None = None) -> FastAPI:
    """Return the application, which loads its models when it starts.

    Args:
        settings: the settings of the service.
        loaders: functions that load a bundle, by its kind; for tests.
    """
    return make_app(settings, run_service, loaders=loaders)


@asynccontextmanager
async def run_service(service: AppState, app: FastAPI) -> AsyncIterator[None]:
    """Start the service with the application, and stop it at the end."""
    try:
        await service.start()
        await asyncio.to_thread(list, iter_route_contexts(app.routes))  # not in the first request
        yield
    finally:
        await service.stop()


def make_app(settings: Settings, lifespan: Lifespan, *, loaders: Loaders | None = None) -> FastAPI:
    """Return the application; `lifespan` starts and stops its service."""
    service = AppState(with_default_model(settings), loaders)
    app = Application(
        title="hardmax",
        version=__version__,
        description=DESCRIPTION,
        lifespan=partial(lifespan, service),
        openapi_tags=TAGS,
        dependencies=REQUIRE_API_KEY,
        generate_unique_id_function=lambda route: route.name,  # the names in generated clients
        openapi_url=None,  # served by routes/page.py
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry={  # metrics and logs are those of service/observability
            "tracing": service.tracer_provider is not None,
            "tracer_provider": service.tracer_provider,
            "metrics": False,
            "logs": False,
        },
        exception_handlers=dict.fromkeys((HardmaxError, HTTPException, RequestValidationError), handle_error),
        middleware=_middleware(service),
    )
    app.state.service = service
    for module in ROUTERS:
        app.include_router(module.router)
    return app


def _middleware(service: AppState) -> list[Middleware]:
    """Return the middleware, from the outside in."""
    root_path = service.settings.root_path
    cors = Middleware(
        CORSMiddleware,
        allow_origins=service.settings.cors_origins,
        allow_methods=["GET", "POST"],
        allow_headers=["authorization", "content-type", "x-api-key", "x-request-id"],
        expose_headers=["x-request-id", "x-model-digest", "retry-after", huggingface.ABSTAINED],
    )
    return [
        *([Middleware(RootPathMiddleware, root_path)] if root_path else []),
        Middleware(RequestContextMiddleware, service),
        *([cors] if service.settings.cors_allow_origin else []),
        Middleware(GZipMiddleware, minimum_size=MIN_COMPRESSED_BYTES, compresslevel=COMPRESSION_LEVEL),
        Middleware(RequestLimitMiddleware, service),
    ]
