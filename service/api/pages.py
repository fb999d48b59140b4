"""The page and its files: read once, answered from memory with an ETag and, where it pays, compressed."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path

from service.api.exchange import Exchange, Header, Reply
from service.errors import NotFound

POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".html": "text/html",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
    ".json": "application/json",
}
COMPRESSED = ("text/", "application/json", "image/svg+xml")


@dataclass(frozen=True)
class File:
    body: bytes
    compressed: bytes | None
    etag: bytes
    media_type: bytes


class Pages:
    """All files below a folder. Changes are seen without a restart: a page being written is reloaded."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, tuple[int, File]] = {}

    async def index(self, exchange: Exchange) -> Reply:
        return self._reply(exchange, "index.html")

    async def docs(self, exchange: Exchange) -> Reply:
        return self._reply(exchange, "docs.html")

    async def file(self, exchange: Exchange) -> Reply:
        return self._reply(exchange, exchange.parameters["path"])

    def _reply(self, exchange: Exchange, path: str) -> Reply:
        file = self._file(path)
        headers: list[Header] = [
            (b"etag", file.etag),
            (b"cache-control", b"no-cache"),
            (b"vary", b"accept-encoding"),
            (b"content-security-policy", POLICY),
        ]
        if file.etag in exchange.headers.get(b"if-none-match", b""):
            return Reply(b"", status=304, media_type=file.media_type, headers=headers)
        body = file.body
        if file.compressed is not None and b"gzip" in exchange.headers.get(b"accept-encoding", b""):
            body = file.compressed
            headers.append((b"content-encoding", b"gzip"))
        return Reply(body, media_type=file.media_type, headers=headers)

    def _file(self, path: str) -> File:
        place = (self._folder / path).resolve()
        if not place.is_relative_to(self._folder.resolve()) or not place.is_file():
            raise NotFound("there is no such file")
        changed = place.stat().st_mtime_ns
        known = self._files.get(path)
        if known is None or known[0] != changed:
            known = self._files[path] = (changed, _read(place))
        return known[1]


def _read(place: Path) -> File:
    body = place.read_bytes()
    media_type = TYPES.get(place.suffix) or mimetypes.guess_type(place.name)[0] or "application/octet-stream"
    compressed = gzip.compress(body, mtime=0) if media_type.startswith(COMPRESSED) else None
    if media_type.startswith("text/"):
        media_type += "; charset=utf-8"
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    return File(body, compressed, etag.encode(), media_type.encode())
