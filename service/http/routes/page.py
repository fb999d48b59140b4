"""The page, its files, the documentation for people and the OpenAPI document.

The files are read once and cached: together they are smaller than a photograph.
"""

import mimetypes
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request, Response

from service.http.bodies import reply_json
from service.settings import PAGE_FILES

WEB = Path(__file__).parents[2] / "web"
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
def page_file(path: str, root_path: str) -> tuple[bytes, str]:
    """Return a file and its ETag. In HTML, absolute links get the prefix of a gateway."""
    file = files()[path]
    if path.endswith(".html"):
        file = file.replace(b'="/', f'="{escape(root_path)}/'.encode())
    return file, f'"{sha256(file).hexdigest()[:16]}"'


def answer(path: str, request: Request) -> Response:
    """Return a file, or 304 if the caller has it."""
    if path not in files():
        raise HTTPException(404)
    file, tag = page_file(path, request.scope.get("root_path", ""))
    headers = HEADERS | {"etag": tag}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file, media_type=mimetypes.guess_type(path)[0], headers=headers)


@router.api_route("/", methods=["GET", "HEAD"])
async def index(request: Request) -> Response:
    """Return the page."""
    return answer("index.html", request)


@router.api_route("/docs", methods=["GET", "HEAD"])
async def docs(request: Request) -> Response:
    """Return the page of the API documentation."""
    return answer("docs/docs.html", request)


@router.api_route(PAGE_FILES, methods=["GET", "HEAD"])
async def file(path: str, request: Request) -> Response:
    """Return a file of the page."""
    return answer(path, request)


@router.get("/openapi.json")
def openapi(request: Request) -> Response:  # in a thread: the document may have to be made
    """Return the OpenAPI document."""
    root_path, document = request.scope.get("root_path", ""), request.app.openapi()
    if root_path:
        document = {**document, "servers": [{"url": root_path}]}
    return reply_json(document)
