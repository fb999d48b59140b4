"""Requests to /classify as nobody means them: the express lane must answer each as the ordinary way does.

Most are a step or two from a right one: that is where two ways would differ.
"""

from __future__ import annotations

import json
import random
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise

from tests.support.wire import connect

# Long enough to be what a request before it that announces too much still waits for.
END = b"GET /v2 HTTP/1.1\r\nhost: localhost\r\nx-request-id: end\r\nconnection: close\r\nx: %b\r\n\r\n" % (
    b"x" * 600
)
PATIENCE_S = 60.0

Conversation = list[bytes]  # the pieces that one caller sends over one connection

TEXTS = (
    "superb",
    "a good film",
    "",
    " ",
    "a\0b",
    "not good, superb!",
    "\u2028",
    "word " * 60,
    "e\u0301",
    "👍🏽",
)
NAMES = ("tiny", "", "missing", "dynamics", "TINY", "../tiny", None, 3)
ODD: tuple[object, ...] = (None, True, 0, -1, 2**70, 1e400, float("nan"), [], {}, "", "x", [["a"]], {"a": 1})
WORDS = {
    "explain": ("none", "leaders", "full", "all", *ODD),
    "model": (*NAMES, *ODD),
    "truncate": (True, False, *ODD),
    "trajectory": (True, False, *ODD),
    "spans": ("utf16", "code points", *ODD),
    "unknown": ODD,
    "inputs": ("a",),
}
RAW = (
    b"", b" ", b"null", b"[]", b"{}", b'"a"', b"{", b'{"input"}', b'{"input": "a"}garbage',
    b'{"input": "a"} \n',
    b'{"input": "a"}\0', b'\xef\xbb\xbf{"input": "a"}', b'{"input": "\xff"}', b'{"input": "\\ud800"}',
    b'{"input": "\\ud83d\\ude00"}', b'{"input": "a", "input": "superb"}', b'{"input": "a\nb"}',
    b"[" * 4000,
    b'{"input": "' + b"a " * 2040 + b'"}', b'{"input": 1' + b"0" * 400 + b"}",
    b'{"input": ["a", "\\u0000"]}',
    b'{"input": "a", "truncate": 1' + b"0" * 3900 + b"}", "{\"input\": \"a\"}".encode("utf-16"),
    b"input=a",
    b"{'input': 'a'}", b'{"input": "a",}', b'{"INPUT": "a"}', b'{"input": ["a"' + b',"b"' * 900 + b"]}",
)  # fmt: skip
TARGETS = (
    b"/classify/", b"/Classify", b"/classif%79", b"/%63lassify", b"/classify?x=1", b"/classify?",
    b"/classify#a",
    b"//classify", b"/./classify", b"/x/../classify", b"/classify%00", b"/classify%2f", b"/classify;a=1",
    b"http://localhost/classify", b"http://LOCALHOST/classify?input=a", b"/classify%", b"/classify%zz",
    b"*",
    b"/classify\xc3\xa9", b"/classify?\xff", b"classify", b"/classify?explain=none&model=missing",
)  # fmt: skip
METHODS = (b"GET", b"PUT", b"HEAD", b"OPTIONS", b"post", b"DELETE", b"PATCH", b"TRACE", b"POSTS", b"PROPFIND")
TYPES = (
    b"application/json", b"Application/JSON", b"application/json; charset=utf-8",
    b"application/json;charset=UTF8",
    b'application/json; charset="utf-8"', b"application/json; charset=latin-1", b"application/json;",
    b"text/plain",
    b"text/json", b"", b" application/json ", b"application/json, text/plain",
    b"application/x-www-form-urlencoded",
    b"application/jsonx", b"application/json; q=1", b"\xff", b"application/x-npy",
)  # fmt: skip
FIELDS = (
    b"Content-Type: application/json", b"content-type: text/plain", b"CONTENT-TYPE: application/json",
    b"content-encoding: gzip", b"content-encoding: identity", b"Content-Encoding: Identity",
    b"content-encoding:",
    b"accept: text/html", b"accept: */*", b"expect: 100-continue", b"Expect: 200-ok",
    b"x-api-key: secret",
    b"x-api-key: wrong", b"authorization: Bearer secret", b"authorization: bearer  secret ",
    b"authorization: Basic eA==",
    b"authorization: secret", b"x-api-key:", b"origin: https://evil.example",
    b"origin: http://localhost",
    b"origin: null", b"sec-fetch-site: cross-site", b"sec-fetch-site: same-origin",
    b"host: evil.example",
    b"host: localhost", b"connection: close", b"connection: keep-alive", b"connection: x, close",
    b"x-request-id: twice", b"x-request-id: not sane!", b"traceparent: 00-0-0-00", b"cookie: a=b",
    b"x: " + b"y" * 3000, b"transfer-encoding: chunked", b"transfer-encoding: identity", b"te: trailers",
    b"content-length: 3", b"content-length: +3", b"content-length: 0", b"content-length: 400",
    b"upgrade: h2c\r\nconnection: upgrade", b"referer: http://x/", b"range: bytes=0-1", b"no colon",
    b": empty",
    b"x-forwarded-host: evil.example", b"x-forwarded-for: 1.2.3.4", b"x-http-method-override: GET",
    b" folded",
)  # fmt: skip
IDS = re.compile(rb'[0-9a-f]{24}(?=["\r])')
DATES = re.compile(rb"\r\ndate: [^\r]*")


# For servers that are asked: as they are, open to some, and with hardly any room.
SETTINGS: dict[str, dict[str, object]] = {
    "defaults": {},
    "keys": {"api_keys": "secret", "cors_allow_origin": "https://evil.example"},
    "tight limits": {"payload_limit_mb": 0.0002, "payload_total_mb": 0.0055, "max_text_chars": 40},
}


def conversations(seed: int, count: int) -> Iterator[Conversation]:
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        requests = [request(rng, at) for at in range(rng.choice((1, 1, 2, 4)))]
        yield list(_pieces(rng, b"".join(requests) + END))


def request(rng: random.Random, number: int) -> bytes:
    """One request, wrong in no, one or two places, or anywhere."""
    odd = rng.choice(((), ("body",), ("body",), ("head",), ("head",), ("type",), ("body", "head"), ("all",)))
    everything = "all" in odd

    body = _body(rng) if everything or "body" in odd else json.dumps({"input": rng.choice(TEXTS)}).encode()
    method = rng.choice(METHODS) if everything and rng.random() < 0.3 else b"POST"
    target = rng.choice(TARGETS) if "head" in odd and rng.random() < 0.3 else b"/classify"
    kind = rng.choice(TYPES) if everything or "type" in odd else TYPES[0]
    fields = [b"content-type: " + kind, b"host: localhost", b"x-request-id: n%d" % number]
    if rng.random() < 0.05:
        fields.pop(rng.randrange(3))
    if rng.random() < 0.5:
        fields.append(b"x-api-key: secret")
    content = _content(rng, body, fields)
    if everything or "head" in odd:
        for _ in range(rng.choice((1, 1, 2))):
            fields.insert(rng.randrange(len(fields) + 1), rng.choice(FIELDS))
    fields = [_cased(rng, field) for field in fields]
    version = rng.choice((b"1.0", b"0.9", b"2.0")) if everything and rng.random() < 0.1 else b"1.1"
    ends = b"\n" if rng.random() < 0.02 else b"\r\n"
    return ends.join([b"%b %b HTTP/%b" % (method, target, version), *fields, b"", b""]) + content


def _body(rng: random.Random) -> bytes:
    if rng.random() < 0.3:
        return rng.choice(RAW)
    many = [
        rng.choice((*TEXTS, *ODD) if rng.random() < 0.1 else TEXTS) for _ in range(rng.choice((0, 1, 2, 5)))
    ]
    document: dict[str, object] = {
        "input": rng.choice((rng.choice(TEXTS), rng.choice(TEXTS), many, rng.choice(ODD)))
    }
    for name in rng.sample(sorted(WORDS), rng.choice((0, 1, 1, 2))):
        document[name] = rng.choice(WORDS[name])
    if rng.random() < 0.05:
        del document["input"]
    body = json.dumps(document, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if rng.random() < 0.1:
        at = rng.randrange(len(body) + 1)
        body = body[:at] + rng.randbytes(1) + body[at + rng.randrange(2) :]
    return body


def _content(rng: random.Random, body: bytes, fields: list[bytes]) -> bytes:
    """The body as it is framed; the fields that say how are added."""
    if rng.random() < 0.2:
        fields.append(b"transfer-encoding: chunked")
        return _chunked(rng, body)
    size = len(body) + (rng.choice((-1, 1, 5)) if rng.random() < 0.03 else 0)
    fields.append(b"content-length: %b%d" % (b"0" * rng.choice((0, 0, 0, 3)), max(0, size)))
    return body


def _chunked(rng: random.Random, body: bytes) -> bytes:
    content = b""
    while body:
        size = rng.choice((1, 2, 7, len(body)))
        extension = rng.choice((b"", b"", b";a=b", b" "))
        content += b"%x%b\r\n%b\r\n" % (len(body[:size]), extension, body[:size])
        body = body[size:]
    trailer = rng.choice((b"", b"", b"x: y\r\n", b"content-type: text/plain\r\n", b"x-api-key: secret\r\n"))
    return content + rng.choice((b"0", b"0", b"000", b"0;x")) + b"\r\n" + trailer + b"\r\n"


def _cased(rng: random.Random, field: bytes) -> bytes:
    if rng.random() < 0.9:
        return field
    name, colon, value = field.partition(b":")
    return (
        rng.choice((name.upper(), name.title()))
        + colon
        + rng.choice((b"", b" ", b"\t ", b"  "))
        + value.strip()
    )


def _pieces(rng: random.Random, sent: bytes) -> Iterator[bytes]:
    """Mostly whole; sometimes the head is cut. What is behind it comes at once: when a request is refused in
    the middle of its body, it would depend on the moment how much of the rest is still read."""
    head = sent.find(b"\r\n\r\n") + 3
    cuts = sorted(rng.randrange(head) for _ in range(rng.choice((0, 0, 0, 1, 3))))
    for start, end in pairwise((0, *cuts, len(sent))):
        yield sent[start:end]


def same(said: bytes, said_there: bytes) -> bool:
    """Whether two servers said the same; the order of the headers does not count."""
    heads, heads_there = (
        [sorted(part.split(b"\r\n")) for part in each.split(b"\r\n\r\n")] for each in (said, said_there)
    )
    return heads == heads_there


def taken(said: bytes) -> int:
    """How many answers came from the express lane, which alone writes its headers in this order."""
    return said.count(b"cache-control: no-store\r\ncontent-type: application/json\r\ncontent-length: ")


def play(port: int, conversation: Conversation) -> bytes:
    """All that the server says, without dates and the ids it makes."""
    answer = b""
    with connect(port) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(PATIENCE_S)
        with suppress(ConnectionError):  # it was refused early; what was said can be read
            for piece in conversation:
                connection.sendall(piece)
        while piece := connection.recv(65536):
            answer += piece
    return DATES.sub(b"", IDS.sub(b"ID", answer))
