"""The edge's configuration in a real nginx, in front of a stub of the service."""

import json
import re
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from edge import edge
from raw_http import connect, exchange
from server import eventually

from benchmarks.servers import free_port
from service.settings import Settings

MISSING = [name for name in ("nginx", "openssl") if shutil.which(name) is None]

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(bool(MISSING), reason=f"not on this machine: {', '.join(MISSING)}"),
]


class StubService(BaseHTTPRequestHandler):
    """Responds with the request that it received; streams lines from /dynamics; sleeps on /slow."""

    protocol_version = "HTTP/1.1"
    slow = threading.Event()
    body_started = threading.Event()

    def do_GET(self) -> None:
        if self.path == "/slow":
            self.slow.set()
            time.sleep(1)
        headers = {name.lower(): value for name, value in self.headers.items()}
        received = {"path": self.path, "headers": headers, "port": self.client_address[1]}
        self.respond(503 if self.path == "/draining" else 200, json.dumps(received).encode())

    def do_POST(self) -> None:
        self.body_started.set()
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path != "/dynamics":
            self.respond(200, str(len(body)).encode())
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("X-Accel-Buffering", "no")
        self.end_headers()
        for line in (b"first\n", b"last\n"):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()
            time.sleep(1 if line == b"first\n" else 0)
        self.wfile.write(b"0\r\n\r\n")

    def respond(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def stub() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), StubService)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with ExitStack() as stack:
        upstream = stack.enter_context(stub())
        _, port = stack.enter_context(edge(tmp_path_factory.mktemp("edge"), upstream))
        yield stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60))


def test_edge_forwards_the_address_and_scheme_of_the_caller(client: httpx.Client) -> None:
    headers = client.get("/models").json()["headers"]
    assert headers["x-forwarded-proto"] == "http"
    assert headers["x-forwarded-for"] == "127.0.0.1"


def test_edge_keeps_a_callers_request_id_or_creates_one(client: httpx.Client) -> None:
    assert client.get("/", headers={"x-request-id": "mine"}).json()["headers"]["x-request-id"] == "mine"
    assert len(client.get("/").json()["headers"]["x-request-id"]) == 32


@pytest.mark.parametrize("name", ['a","admin":"yes', "a\\", "x" * 129, "a b"])
def test_edge_replaces_request_ids_that_would_need_escaping(client: httpx.Client, name: str) -> None:
    error = client.get("/metrics", headers={"x-request-id": name}).json()["error"]
    assert error.keys() == {"type", "message", "param", "request_id"}
    forwarded_id = client.get("/", headers={"x-request-id": name}).json()["headers"]["x-request-id"]
    for request_id in (error["request_id"], forwarded_id):
        assert len(request_id) == 32
        assert request_id.isalnum()


def test_edge_with_tls_sends_hsts(tmp_path: Path) -> None:
    name, curve = "subjectAltName=IP:127.0.0.1", "ec_paramgen_curve:P-256"
    command = f"openssl req -x509 -newkey ec -pkeyopt {curve} -nodes -days 2 -subj /CN=edge -addext {name}"
    files = ["-keyout", f"{tmp_path}/key.pem", "-out", f"{tmp_path}/certificate.pem"]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    tls_context = ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))
    port = free_port()
    with stub() as upstream, edge(tmp_path, upstream, tls=port) as (_, plain):
        with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=tls_context, timeout=60) as client:
            for path in ("/", "/metrics", "/draining"):
                assert client.get(path).headers["strict-transport-security"] == "max-age=31536000"
            assert client.get("/").json()["headers"]["x-forwarded-proto"] == "https"
        assert "strict-transport-security" not in httpx.get(f"http://127.0.0.1:{plain}/").headers


def test_edge_forwards_complete_bodies_only(tmp_path: Path) -> None:
    """A slow body waits at the edge: the service receives the request once it is complete."""
    head = b"POST /classify HTTP/1.1\r\nhost: x\r\ncontent-length: 20000\r\n\r\n"
    with stub() as upstream, edge(tmp_path, upstream) as (_, port), connect(port) as connection:
        StubService.body_started.clear()
        connection.sendall(head + b" " * 10_000)
        assert not StubService.body_started.wait(0.3)
        connection.sendall(b" " * 10_000)
        assert b"20000" in connection.recv(65536)
        assert StubService.body_started.is_set()


def test_edge_bounds_the_large_bodies_of_an_address(tmp_path: Path) -> None:
    """Otherwise bodies that never end would fill its /tmp, and every caller would get 500."""
    large = b"POST /classify HTTP/1.1\r\nhost: x\r\ncontent-length: 20000000\r\n\r\n" + b" " * 1_500_000
    chunked = b"POST /classify HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\n \r\n"
    with stub() as upstream, edge(tmp_path, upstream, large_address=1) as (_, port), ExitStack() as stack:
        first = stack.enter_context(connect(port))
        first.sendall(large)
        eventually(lambda: "buffered to a temporary file" in (tmp_path / "error.log").read_text())
        for request in (large, chunked):
            second = stack.enter_context(connect(port))
            with suppress(ConnectionError):
                second.sendall(request)
            assert second.recv(65536).startswith(b"HTTP/1.1 429 ")
        small = httpx.post(f"http://127.0.0.1:{port}/classify", content=b" " * 900_000)
        assert small.text == "900000"


def test_edge_forwards_a_long_matrix_in_the_query(client: httpx.Client) -> None:
    path = "/dynamics?A=" + "1" * 60_000  # as long as the client sends one
    assert client.get(path).json()["path"] == path


@pytest.mark.parametrize(
    ("head", "status", "error_type"),
    [
        (b"GET / HTTP/1.1\r\nhost: x\r\nx-long: " + b"a" * 70_000, 400, "malformed_input"),
        (b"\x16\x03\x01 no HTTP", 400, "malformed_input"),
        (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked", 400, "malformed_input"),
        (b"TRACE / HTTP/1.1\r\nhost: x", 405, "method_not_allowed"),
    ],
)
def test_edge_refuses_invalid_heads_like_the_service(
    client: httpx.Client, head: bytes, status: int, error_type: str
) -> None:
    with connect(client.base_url.port or 0) as connection:
        with suppress(ConnectionError):
            connection.sendall(head + b"\r\n\r\n")
        response = connection.recv(65536).decode()
    assert response.split()[1] == str(status)
    assert json.loads(response.partition("\r\n\r\n")[2])["error"]["type"] == error_type


def test_edge_compresses_responses(client: httpx.Client) -> None:
    response = client.get(f"/{'a' * 2000}")
    assert response.headers["content-encoding"] == "gzip"
    assert "accept-encoding" not in response.json()["headers"]


def test_edge_does_not_expose_metrics(client: httpx.Client) -> None:
    assert client.get("/sentiment/metrics").status_code == 404  # below a root path
    assert client.get("/metrics/").status_code == 200  # the stub's: the service has no such route
    response = client.get("/metrics")
    assert response.status_code == 404
    assert response.json()["error"]["type"] == "not_found"
    assert response.headers["x-request-id"] == response.json()["error"]["request_id"]


def test_edge_forwards_the_largest_body_of_the_service(client: httpx.Client) -> None:
    size = Settings().payload_limit_bytes + 1  # the service refuses this itself
    assert client.post("/classify", content=b" " * size).text == str(size)


def test_edge_refuses_larger_bodies_like_the_service(client: httpx.Client) -> None:
    response = client.post("/classify", content=b" " * (64 * 2**20 + 1))
    assert response.status_code == 413
    assert response.json()["error"]["type"] == "too_large"
    assert "64 MiB" in response.json()["error"]["message"]


def test_edge_forwards_progress_lines_at_once(client: httpx.Client) -> None:
    with client.stream("POST", "/dynamics", content=b"{}") as response:
        arrivals = [(line, time.monotonic()) for line in response.iter_lines()]
    assert [line for line, _ in arrivals] == ["first", "last"]
    # The stub sends them one second apart; if the edge buffered them, they would arrive together.
    assert arrivals[1][1] - arrivals[0][1] > 0.5


def test_edge_responds_with_503_without_the_service(tmp_path: Path) -> None:
    with edge(tmp_path, upstream=free_port()) as (_, port):
        response = httpx.get(f"http://127.0.0.1:{port}/models", timeout=60)
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert response.json()["error"]["type"] == "not_ready"


def test_edge_bounds_the_concurrent_requests_of_an_address(tmp_path: Path) -> None:
    with stub() as upstream, edge(tmp_path, upstream, address=1) as (_, port):
        base = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=base, timeout=60) as client, ThreadPoolExecutor(1) as pool:
            StubService.slow.clear()
            slow = pool.submit(client.get, "/slow")
            assert StubService.slow.wait(60)
            response = client.get("/models")
            assert (response.status_code, response.headers["retry-after"]) == (429, "1")
            assert response.json()["error"]["type"] == "overloaded"
            assert slow.result().status_code == 200
            assert {client.get("/models").status_code for _ in range(20)} == {200}


def test_edge_bounds_the_request_rate_of_an_address(tmp_path: Path) -> None:
    requests = b"GET /models HTTP/1.1\r\nhost: x\r\n\r\n" * 500 + b"GET / HTTP/1.0\r\n\r\n"
    with stub() as upstream, edge(tmp_path, upstream, rate=1) as (_, port):
        statuses = re.findall(rb"HTTP/1.1 (\d+) ", exchange(port, requests))
    assert set(statuses) == {b"200", b"429"}
