"""The page, its files, the documentation for people and the OpenAPI document."""

import mimetypes
import os
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.staticfiles import StaticFiles
from starlette.responses import Response

from service.http.bodies import reply_json

WEB = Path(__file__).parents[2] / "web"
HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
}

mimetypes.add_type("text/javascript", ".js")  # systems differ in what they know
mimetypes.add_type("font/woff2", ".woff2")

router = APIRouter(include_in_schema=False)


class PageFiles(StaticFiles):
    def file_response(self, *arguments: Any, **options: Any) -> Response:
        response = super().file_response(*arguments, **options)
        response.headers.update(HEADERS)
        return response


FILES = PageFiles(directory=WEB)


@router.api_route("/", methods=["GET", "HEAD"])
async def index(request: Request) -> Response:
    return await FILES.get_response("index.html", request.scope)


@router.api_route("/docs", methods=["GET", "HEAD"])
async def docs(request: Request) -> Response:
    return await FILES.get_response("docs/docs.html", request.scope)


@router.api_route("/web/{path:path}", methods=["GET", "HEAD"])
async def file(path: str, request: Request) -> Response:
    return await FILES.get_response(os.path.normpath(path), request.scope)


@router.get("/openapi.json")
def openapi(request: Request) -> Response:  # in a thread: the document may have to be made
    root_path, document = request.scope.get("root_path", ""), request.app.openapi()
    if root_path:
        document = {**document, "servers": [{"url": root_path}]}
    return reply_json(document)
