"""Attacks on the service: each is a function that runs one round and returns the answers that it got.

Rounds are short and end by themselves.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import shutil
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np
from graphs import change_graph, negate_contributions
from small_models import MODEL

from tests.support.raw_http import NPY, npy, npy_with_shape, post_request, request_head

Attack = Callable[[int], list[bytes]]  # port -> the first bytes of each answer

GET = b"GET %b HTTP/1.1\r\nhost: localhost\r\n\r\n"
TEXT_BODY = b'{"input": "a superb film"}'
HOLD_S = 2.0
PAUSE_S = 1.0  # between the rounds of an attack
HTTP2_UPGRADE = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQ\r\n"


def connect(port: int) -> socket.socket:
    """Connect from an address of the attackers: the edge limits each address."""
    return socket.create_connection(("127.0.0.1", port), timeout=60, source_address=("127.0.0.2", 0))


def send(port: int, *pieces: bytes, wait_s: float = HOLD_S) -> list[bytes]:
    """Send everything, even if the server refuses it; return the first bytes of an answer that is in time."""
    with connect(port) as connection:
        connection.settimeout(wait_s)
        with suppress(OSError):
            for piece in pieces:
                connection.sendall(piece)
        with suppress(OSError):
            answer = connection.recv(4096)
            return [answer] if answer else []
    return []


def hold(port: int, count: int, request: bytes) -> list[bytes]:
    """Open `count` connections that send a request, read nothing, and stay open for a while."""
    with ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(connect(port))
            connection.setblocking(False)
            with suppress(OSError):
                connection.send(request)
        time.sleep(HOLD_S)
    return []


def huge_heads(port: int) -> list[bytes]:
    long = GET[:-2] % b"/health" + b"x: " + b"a" * 5_000_000
    wide = GET[:-2] % b"/health" + b"".join(b"x%d: y\r\n" % n for n in range(200_000))
    target = b"GET /" + b"a" * 5_000_000
    return [*send(port, long), *send(port, wide), *send(port, target)]


def slow_bodies(port: int) -> list[bytes]:
    with ExitStack() as stack:
        callers = [stack.enter_context(connect(port)) for _ in range(64)]
        for caller in callers:
            caller.sendall(request_head(1000))
        for _ in range(5):
            for caller in callers:
                with suppress(OSError):
                    caller.send(b" ")
            time.sleep(1)
    return []


def cloud_request(points: Any, parameters: str) -> bytes:
    """Return a request to /dynamics, as npy."""
    return post_request(npy(points), f"/dynamics?{parameters}", NPY)


def answers_unread(port: int) -> list[bytes]:
    points = np.random.default_rng(0).normal(size=(2_000, 8))
    return hold(port, 4, cloud_request(points, "stop=never&max_layers=200&include=trajectory"))


def streams_unread(port: int) -> list[bytes]:
    """Send more requests than the queue of clouds holds."""
    points = np.random.default_rng(0).normal(size=(2_500, 2))
    request = cloud_request(points, "stop=never&max_layers=100&include=trajectory")
    stream = request.replace(b"host:", b"accept: application/x-ndjson\r\nhost:", 1)
    return hold(port, 18, stream)


def small_bodies_of_many_numbers(port: int) -> list[bytes]:
    points = np.random.default_rng(0).integers(1, 100, (250_000, 2), np.int8)
    return hold(port, 8, cloud_request(points, "max_layers=1"))


def crawling_clouds(port: int) -> list[bytes]:
    """Send clouds of three points that run for all their layers, also with a trajectory, and disconnect."""
    points = np.array([[2, 0], [1, 0.9], [-0.1, 0.5]])
    endless = "alpha=1e-12&stop=converged&tolerance=0&max_layers=100000"
    plain, recorded = (cloud_request(points, f"{endless}{part}") for part in ("", "&include=trajectory"))
    return [*hold(port, 19, plain), *hold(port, 5, recorded)]


def clouds_of_callers_who_leave(port: int) -> list[bytes]:
    """Leave while a cloud runs: to start a process in its place would take longer than the cloud."""
    points = np.random.default_rng(0).normal(size=(300, 3))
    for _ in range(50):
        with connect(port) as caller, suppress(OSError):
            caller.sendall(cloud_request(points, "alpha=1e-12&stop=never"))
            time.sleep(0.005)
    return []


def longest_searches(port: int) -> list[bytes]:
    """Search texts that are short enough for their searches, and too long."""
    documents = (
        {"input": ["good bad film " * 10] * 16, "sufficient": True},
        {"input": ["good bad film " * 266] * 16, "sufficient": True},
        {"input": "good bad film " * 853, "flip": True},
    )
    bodies = [json.dumps(document).encode() for document in documents]
    return [answer for body in bodies for answer in send(port, post_request(body), wait_s=10)]


def tied_points(port: int) -> list[bytes]:
    """Send 60,000 points on an axis before a wall of 2,000."""
    axis, wall = np.zeros((60_000, 2)), np.full((2_000, 2), 3.0)
    axis[:, 0], wall[:, 1] = np.arange(1, 60_001) / 60_001, np.linspace(-1, 1, 2_000)
    return send(port, cloud_request(np.concatenate([wall, axis]), ""), wait_s=10)


def ties_with_smallest_alpha(port: int) -> list[bytes]:
    """Send 100,000 exact ties with the smallest alpha, and disconnect."""
    x = np.arange(1, 100_001) / 100_002
    points = np.concatenate([[[0.0, 2.0], [2.0, 0.0]], np.stack([x, x], axis=1)])
    return send(port, cloud_request(points, "alpha=1e-300&stop=never"), wait_s=3)


def endless_sequences(port: int) -> list[bytes]:
    """Send a sequence of 700,000 tokens, and disconnect."""
    body = b'{"model": "scenes", "sequences": [[' + b"[0,0]," * 700_000 + b"[1,1]]]}"
    return send(port, post_request(body, "/sequences/classify"), wait_s=3)


def requests_refused_at_once(port: int) -> list[bytes]:
    """Send what is too much or no document at all, and noise that is not HTTP."""
    head = request_head(0).replace(b"content-length: 0", b"transfer-encoding: chunked")
    noise = random.Random(time.monotonic()).randbytes(2_000)
    spans = b'{"input": "a superb film", "flip": true, "without": [' + b"[0,1]," * 500_000 + b"[0,1]]}"
    requests = (
        head + b"2\r\n{}\r\n0\r\nx: " + b"a" * 3_000_000 + b"\r\n\r\n",  # a long trailer
        post_request(TEXT_BODY).replace(b"\r\n", b"\r\n" + HTTP2_UPGRADE, 1),
        noise + b"\r\n\r\n",
        GET % (b"/web/" + b"%x" % random.getrandbits(64) * 500),
        post_request(b'{"points": [' + b"[0]," * 280_000 + b"[0]]}", "/dynamics"),
        post_request(npy_with_shape("(2**62, 4)"), "/dynamics", NPY),
        *map(post_request, (spans, b"[" * 200_000, b'{"input": [' + b'"a",' * 500_000 + b'"a"]}')),
    )
    return [answer for request in requests for answer in send(port, request, wait_s=10)]


def pathological_texts(port: int) -> list[bytes]:
    long = ("<" * 200_000, "<a" * 100_000, "'" * 200_000, "\N{LATIN SMALL LIGATURE FFI}" * 200_000)
    texts = (" " * 199_998 + "'z", *long)
    bodies = [json.dumps({"input": text}, ensure_ascii=False).encode() for text in texts]
    return [answer for body in bodies for answer in send(port, post_request(body), wait_s=20)]


def expanding_text(port: int) -> list[bytes]:
    """Send 2,560 words of a ligature that normalization expands to 18 letters."""
    text = " ".join(["\N{ARABIC LIGATURE SALLALLAHOU ALAYHE WASALLAM}" * 61] * 2_560)
    return send(port, post_request(json.dumps({"input": text}, ensure_ascii=False).encode()), wait_s=20)


def many_models(port: int) -> list[bytes]:
    document = {"input": ["?! " * 500] * 16, "model": [MODEL] * 32, "flip": True, "explain": "full"}
    return send(port, post_request(json.dumps(document).encode()), wait_s=10)


def largest_batches(port: int) -> list[bytes]:
    """Send as many texts as a request may have, of as many words as are read, and disconnect."""
    body = json.dumps({"input": ["?!" * 1_280] * 1_024}).encode()
    return send(port, post_request(body), wait_s=5)


def largest_explanations(port: int) -> list[bytes]:
    texts = ("?!" * 100_000, "x" * 200_000)
    documents = [{"input": [text] * 10, "explain": "full", "trajectory": True} for text in texts]
    bodies = [json.dumps(document).encode() for document in documents]
    return [answer for body in bodies for answer in send(port, post_request(body), wait_s=10)]


def infeasible_control(port: int) -> list[bytes]:
    """Request that eight inner points of half a megabyte lead, and disconnect."""
    points = np.random.default_rng(1).normal(size=(800, 32))
    points[:8] *= 0.05
    body = json.dumps({"points": points.tolist(), "leaders": list(range(8))}).encode()
    return send(port, post_request(body, "/control"), wait_s=3)


def callers_who_leave(port: int) -> list[bytes]:
    for _ in range(50):
        with connect(port) as caller, suppress(OSError):
            reset = b"\1\0\0\0\0\0\0\0"  # closing sends RST instead of FIN
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            caller.sendall(post_request(TEXT_BODY) * 2)
    return []


def bundles_that_come_and_go(models: Path, port: int) -> list[bytes]:
    """Add an invalid bundle and a head that claims to be the served one but negates its answers."""
    broken = models / f"broken-{random.getrandbits(32):x}"
    broken.mkdir()
    card = random.choice((b"[" * 200_000, b" " * 3_000_000, b"{}", b"\xff"))
    (broken / "card.json").write_bytes(card)
    folder = models / f"stranger-{random.getrandbits(32):x}"
    hidden = folder.with_name(f".{folder.name}")
    shutil.copytree(models / MODEL, hidden)
    document = json.loads((hidden / "card.json").read_text())
    (hidden / "card.json").write_text(json.dumps({**document, "name": folder.name}))
    change_graph(hidden, negate_contributions)
    hidden.rename(folder)
    time.sleep(5)
    body = json.dumps({"input": "a superb film", "model": folder.name}).encode()
    answers = send(port, post_request(body), wait_s=10)
    shutil.rmtree(folder)
    shutil.rmtree(broken)
    return answers


FUNCTIONS: tuple[Attack, ...] = (
    huge_heads, slow_bodies, answers_unread, streams_unread, crawling_clouds, clouds_of_callers_who_leave,
    longest_searches, small_bodies_of_many_numbers, tied_points, ties_with_smallest_alpha, endless_sequences,
    requests_refused_at_once, pathological_texts, expanding_text, many_models, largest_batches,
    largest_explanations, infeasible_control, callers_who_leave,
)  # fmt: skip
ATTACKS: dict[str, Attack] = {attack.__name__: attack for attack in FUNCTIONS} | {
    "bodies_that_never_come": lambda port: hold(port, 8, request_head(64_000_000)),
    "pipelines_unread": lambda port: hold(port, 10, GET % b"/docs" * 2_000),
    "pages_unread": lambda port: hold(port, 260, GET % b"/"),  # more than MAX_CONCURRENT_REQUESTS
    "half_heads": lambda port: hold(port, 300, b"GET /" + b"a" * 60_000),
    "nothing_said": lambda port: hold(port, 300, b""),
}
NAMES = {*ATTACKS, bundles_that_come_and_go.__name__}


@dataclass
class AttackCounts:
    """The number of rounds of each attack, and the statuses of its answers."""

    rounds: Counter[str] = field(default_factory=Counter)
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)


class Siege:
    """Runs all attacks at once, each in a thread that repeats it, until the block is left.

    The threads have their own process, so that ordinary callers do not wait for its interpreter lock.
    """

    def __init__(self, port: int, models: Path) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._stop, self._results = spawn.Event(), spawn.SimpleQueue()
        self._process = spawn.Process(target=_run_attacks, args=(port, models, self._stop, self._results))
        self.counts = AttackCounts()

    def __enter__(self) -> Siege:
        self._process.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self.counts = self._results.get()
        self._process.join()


def _run_attacks(port: int, models: Path, stop: Event, results: SimpleQueue[AttackCounts]) -> None:
    counts = AttackCounts()
    attacks = ATTACKS | {bundles_that_come_and_go.__name__: partial(bundles_that_come_and_go, models)}
    threads = [
        threading.Thread(target=_repeat, args=(name, attack, port, stop, counts))
        for name, attack in attacks.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put(counts)


def _repeat(name: str, attack: Attack, port: int, stop: Event, counts: AttackCounts) -> None:
    while not stop.wait(PAUSE_S):
        with suppress(OSError):  # the server may end a connection at any moment of a round
            for answer in attack(port):
                counts.statuses[name, int(answer[9:12])] += 1
            counts.rounds[name] += 1
