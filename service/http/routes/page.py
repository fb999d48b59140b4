"""The page, its files, Swagger UI and the OpenAPI document.

The files are read and compressed once: Swagger UI has 1.9 MB.
"""

import gzip
import mimetypes
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files as resources
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request, Response

from service.http.bodies import reply
from service.settings import PAGE_FILES
from service.wire.documents import write

WEB = Path(__file__).parents[2] / "web"
SWAGGER_UI = ("docs/swagger-ui-bundle.js", "docs/swagger-ui.css")
HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
}

mimetypes.add_type("text/javascript", ".js")  # not every system knows these types
mimetypes.add_type("font/woff2", ".woff2")

router = APIRouter(include_in_schema=False)


@cache
def files() -> dict[str, bytes]:
    """Return the files of the page by path."""
    return {path.relative_to(WEB).as_posix(): path.read_bytes() for path in WEB.rglob("*") if path.is_file()}


@cache
def page_file(path: str, root_path: str) -> tuple[bytes, bytes, str]:
    """Return a file, its compressed bytes and its ETag. In HTML, links get the prefix of a gateway."""
    if path in SWAGGER_UI:
        file = (resources("fastapi_swagger.resources") / path.removeprefix("docs/")).read_bytes()
    else:
        file = files()[path]
    if path.endswith(".html"):
        file = file.replace(b'="/', f'="{escape(root_path)}/'.encode())
    return file, gzip.compress(file), f'"{sha256(file).hexdigest()[:16]}"'


def answer(path: str, request: Request) -> Response:
    """Return a file, or 304 if the caller has it."""
    if path not in files() and path not in SWAGGER_UI:
        raise HTTPException(404)
    file, compressed, tag = page_file(path, request.scope.get("root_path", ""))
    headers = HEADERS | {"etag": tag, "vary": "accept-encoding"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    media_type = mimetypes.guess_type(path)[0]
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(compressed, 200, headers | {"content-encoding": "gzip"}, media_type)
    return Response(file, 200, headers, media_type)


@router.api_route("/", methods=["GET", "HEAD"])
def index(request: Request) -> Response:
    """Return the page."""
    return answer("index.html", request)


@router.api_route("/docs", methods=["GET", "HEAD"])
def docs(request: Request) -> Response:
    """Return Swagger UI."""
    return answer("docs/docs.html", request)


@router.api_route(PAGE_FILES, methods=["GET", "HEAD"])
def file(path: str, request: Request) -> Response:
    """Return a file of the page."""
    return answer(path, request)


@router.get("/openapi.json")
def openapi(request: Request) -> Response:  # in a thread: the document may have to be made
    """Return the OpenAPI document."""
    root_path, document = request.scope.get("root_path", ""), request.app.openapi()
    if root_path:
        document = {**document, "servers": [{"url": root_path}]}
    return reply(write(document))
