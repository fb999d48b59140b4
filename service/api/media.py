"""Media types: what a body claims to be, and what an answer is wanted as."""

from __future__ import annotations

from service.api.exchange import Exchange
from service.errors import UnsupportedMediaType

JSON = "application/json"
NPY = "application/x-npy"
NPZ = "application/x-npz"
NDJSON = "application/x-ndjson"
BINARY = "application/octet-stream"


def require_json(exchange: Exchange) -> None:
    """A body without a media type is taken for JSON."""
    given = exchange.headers.get(b"content-type")
    if given is not None and given != b"application/json":
        body_type(exchange, JSON)


def body_type(exchange: Exchange, *accepted: str) -> str:
    """Which of the accepted types the body is, the first if it does not say."""
    given = exchange.headers.get(b"content-type", b"").decode("latin-1")
    kind, *parameters = (part.strip().lower() for part in given.split(";"))
    if not kind:
        return accepted[0]
    if kind not in accepted:
        raise UnsupportedMediaType(f"send the body as {' or '.join(accepted)}")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name == "charset" and value.strip('"') not in ("utf-8", "utf8"):
            raise UnsupportedMediaType("the body's charset should be utf-8")
    if (encoding := exchange.headers.get(b"content-encoding", b"identity").lower()) != b"identity":
        raise UnsupportedMediaType(f"content-encoding {encoding.decode('latin-1')[:40]} is not read here")
    return kind


def wanted(exchange: Exchange, *offered: str) -> str:
    """The first offered type that the Accept header names; the first of all if it names none of them."""
    accept = exchange.headers.get(b"accept", b"").decode("latin-1").lower()
    named = [part.split(";")[0].strip() for part in accept.split(",")]
    return next((kind for kind in named if kind in offered), offered[0])
