"""The page, its files, the documentation for people and the OpenAPI document."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from service.errors import NotFound
from service.http.replies import reply

WEB = Path(__file__).parents[2] / "web"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".woff2": "font/woff2"}
COMPRESSED = ("text/", "application/json", "image/svg+xml")

router = APIRouter(include_in_schema=False)


@router.api_route("/", methods=["GET", "HEAD"])
async def index(request: Request) -> Response:
    return files_of(request).answer("index.html", request)


@router.api_route("/docs", methods=["GET", "HEAD"])
async def docs(request: Request) -> Response:
    return files_of(request).answer("docs/docs.html", request)


@router.api_route("/web/{path:path}", methods=["GET", "HEAD"])
async def file(path: str, request: Request) -> Response:
    return files_of(request).answer(path, request)


@router.get("/openapi.json")
async def openapi(request: Request) -> Response:
    root_path, document = request.scope.get("root_path", ""), request.app.openapi()
    if root_path:
        document = {**document, "servers": [{"url": root_path}]}
    return reply(orjson.dumps(document))


def files_of(request: Request) -> PageFiles:
    files: PageFiles = request.app.state.page
    return files


@dataclass(frozen=True)
class File:
    body: bytes
    compressed: bytes | None
    etag: str
    media_type: str


class PageFiles:
    """Every file below a folder, read and compressed once, when the application is made.

    A request is answered from memory, and only by the exact name of a file: nothing is kept for names that
    strangers make up.
    """

    def __init__(self, folder: Path) -> None:
        self._files = {
            path.relative_to(folder).as_posix(): _read(path) for path in folder.rglob("*") if path.is_file()
        }

    def answer(self, path: str, request: Request) -> Response:
        file = self._files.get(path)
        if file is None:
            raise NotFound("the page has no such file")
        headers = {
            "etag": file.etag,
            "cache-control": "no-cache",
            "vary": "accept-encoding",
            "content-security-policy": POLICY,
        }
        if file.etag in request.headers.get("if-none-match", ""):
            return Response(b"", 304, headers, file.media_type)
        if file.compressed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            return Response(file.compressed, 200, {**headers, "content-encoding": "gzip"}, file.media_type)
        return Response(file.body, 200, headers, file.media_type)


def _read(path: Path) -> File:
    body = path.read_bytes()
    media_type = TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    compressed = gzip.compress(body, mtime=0) if media_type.startswith(COMPRESSED) else None
    return File(body, compressed, f'"{hashlib.sha256(body).hexdigest()[:32]}"', media_type)
