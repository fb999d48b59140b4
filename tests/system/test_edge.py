"""The edge's configuration in a real nginx, with a fresh certificate and a stub of the service behind it."""

import http.client
import json
import re
import shutil
import signal
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


class Stub(BaseHTTPRequestHandler):
    """Tells what reached it; streams lines from /dynamics; takes its time on /slow."""

    protocol_version = "HTTP/1.1"
    slow = threading.Event()
    begun = threading.Event()

    def do_GET(self) -> None:
        if self.path == "/slow":
            self.slow.set()
            time.sleep(1)
        headers = {name.lower(): value for name, value in self.headers.items()}
        heard = {"path": self.path, "headers": headers, "port": self.client_address[1]}
        self.answer(503 if self.path == "/draining" else 200, json.dumps(heard).encode())

    def do_POST(self) -> None:
        self.begun.set()
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path != "/dynamics":
            self.answer(200, str(len(body)).encode())
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

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def stub() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stub)
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


def test_edge_tells_the_service_who_called_and_how(client: httpx.Client) -> None:
    headers = client.get("/models").json()["headers"]
    assert headers["x-forwarded-proto"] == "http"
    assert headers["x-forwarded-for"] == "127.0.0.1"


def test_edge_keeps_a_callers_request_id_and_gives_one_to_who_has_none(client: httpx.Client) -> None:
    assert client.get("/", headers={"x-request-id": "mine"}).json()["headers"]["x-request-id"] == "mine"
    assert len(client.get("/").json()["headers"]["x-request-id"]) == 32


@pytest.mark.parametrize("name", ['a","admin":"yes', "a\\", "x" * 129, "a b"])
def test_edge_takes_over_no_request_id_that_would_need_escaping(client: httpx.Client, name: str) -> None:
    own = client.get("/metrics", headers={"x-request-id": name}).json()["error"]
    assert own.keys() == {"type", "message", "param", "request_id"}
    passed = client.get("/", headers={"x-request-id": name}).json()["headers"]["x-request-id"]
    for given in (own["request_id"], passed):
        assert len(given) == 32
        assert given.isalnum()


def test_edge_with_tls_asks_browsers_to_stay_with_it(tmp_path: Path) -> None:
    name, curve = "subjectAltName=IP:127.0.0.1", "ec_paramgen_curve:P-256"
    command = f"openssl req -x509 -newkey ec -pkeyopt {curve} -nodes -days 2 -subj /CN=edge -addext {name}"
    files = ["-keyout", f"{tmp_path}/key.pem", "-out", f"{tmp_path}/certificate.pem"]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    trust = ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))
    port = free_port()
    with stub() as upstream, edge(tmp_path, upstream, tls=port) as (_, plain):
        with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=trust, timeout=60) as client:
            for path in ("/", "/metrics", "/draining"):
                assert client.get(path).headers["strict-transport-security"] == "max-age=31536000"
            assert client.get("/").json()["headers"]["x-forwarded-proto"] == "https"
        assert "strict-transport-security" not in httpx.get(f"http://127.0.0.1:{plain}/").headers


def test_edge_gives_the_service_whole_bodies_only(tmp_path: Path) -> None:
    """A slow body waits at the edge: the service sees its request once it is complete."""
    head = b"POST /classify HTTP/1.1\r\nhost: x\r\ncontent-length: 20000\r\n\r\n"
    with stub() as upstream, edge(tmp_path, upstream) as (_, port), connect(port) as caller:
        Stub.begun.clear()
        caller.sendall(head + b" " * 10_000)
        assert not Stub.begun.wait(0.3)
        caller.sendall(b" " * 10_000)
        assert b"20000" in caller.recv(65536)
        assert Stub.begun.is_set()


def test_edge_bounds_the_large_bodies_that_it_keeps(tmp_path: Path) -> None:
    """Those of one address: bodies that never end would fill its /tmp, and everybody would get 500."""
    announced = b"POST /classify HTTP/1.1\r\nhost: x\r\ncontent-length: 20000000\r\n\r\n" + b" " * 1_500_000
    chunked = b"POST /classify HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\n \r\n"
    with stub() as upstream, edge(tmp_path, upstream, large_address=1) as (_, port), ExitStack() as stack:
        first = stack.enter_context(connect(port))
        first.sendall(announced)
        eventually(lambda: "buffered to a temporary file" in (tmp_path / "error.log").read_text())
        for request in (announced, chunked):
            second = stack.enter_context(connect(port))
            with suppress(ConnectionError):
                second.sendall(request)
            assert second.recv(65536).startswith(b"HTTP/1.1 429 ")
        small = httpx.post(f"http://127.0.0.1:{port}/classify", content=b" " * 900_000)
        assert small.text == "900000"


@pytest.mark.parametrize(
    "head",
    [b"GET / HTTP/1.1\r\nhost: x\r\nx-long: " + b"a" * 70_000 + b"\r\n\r\n", b"\x16\x03\x01 no HTTP\r\n\r\n"],
)
def test_edge_refuses_what_is_no_head_in_the_services_words(client: httpx.Client, head: bytes) -> None:
    with connect(client.base_url.port or 0) as caller:
        with suppress(ConnectionError):
            caller.sendall(head)
        answer = caller.recv(65536).decode()
    assert answer.split()[1] == "400"
    assert json.loads(answer.partition("\r\n\r\n")[2])["error"]["type"] == "malformed_input"


def test_edge_compresses_what_the_service_sends_plain(client: httpx.Client) -> None:
    answer = client.get(f"/{'a' * 2000}")
    assert answer.headers["content-encoding"] == "gzip"
    assert "accept-encoding" not in answer.json()["headers"]


def test_edge_reuses_its_connection_to_the_service(client: httpx.Client) -> None:
    # A worker keeps its own connections, so there are at most as many as workers, not as many as requests.
    ports = [client.get("/").json()["port"] for _ in range(32)]
    assert len(set(ports)) < 16


def test_edge_keeps_metrics_inside(client: httpx.Client) -> None:
    answer = client.get("/metrics")
    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "not_found"
    assert answer.headers["x-request-id"] == answer.json()["error"]["request_id"]


def test_edge_lets_the_largest_body_of_the_service_pass(client: httpx.Client) -> None:
    size = Settings().payload_limit_bytes + 1  # the service refuses this itself, in its own words
    assert client.post("/classify", content=b" " * size).text == str(size)


def test_edge_refuses_a_larger_body_in_the_services_words(client: httpx.Client) -> None:
    answer = client.post("/classify", content=b" " * (64 * 2**20 + 1))
    assert answer.status_code == 413
    assert answer.json()["error"]["type"] == "too_large"
    assert "64 MiB" in answer.json()["error"]["message"]


def test_edge_passes_the_services_own_refusals_on(client: httpx.Client) -> None:
    answer = client.get("/draining")
    assert answer.status_code == 503
    assert answer.json()["path"] == "/draining"


def test_edge_sends_progress_lines_on_as_they_are_made(client: httpx.Client) -> None:
    with client.stream("POST", "/dynamics", content=b"{}") as answer:
        arrivals = [(line, time.monotonic()) for line in answer.iter_lines()]
    assert [line for line, _ in arrivals] == ["first", "last"]
    # One second apart at the stub; together if they were kept back.
    assert arrivals[1][1] - arrivals[0][1] > 0.5


def test_edge_says_that_the_service_is_away(tmp_path: Path) -> None:
    with edge(tmp_path, upstream=free_port()) as (_, port):
        answer = httpx.get(f"http://127.0.0.1:{port}/models", timeout=60)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["error"]["type"] == "not_ready"


def test_edge_bounds_what_an_address_asks_at_once(tmp_path: Path) -> None:
    with stub() as upstream, edge(tmp_path, upstream, address=1) as (_, port):
        base = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=base, timeout=60) as client, ThreadPoolExecutor(1) as pool:
            Stub.slow.clear()
            slow = pool.submit(client.get, "/slow")
            assert Stub.slow.wait(60)
            refused = client.get("/models")
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            assert refused.json()["error"]["type"] == "overloaded"
            assert slow.result().status_code == 200
            assert {client.get("/models").status_code for _ in range(20)} == {200}


def test_edge_bounds_how_often_an_address_asks(tmp_path: Path) -> None:
    requests = b"GET /models HTTP/1.1\r\nhost: x\r\n\r\n" * 500 + b"GET / HTTP/1.0\r\n\r\n"
    with stub() as upstream, edge(tmp_path, upstream, rate=1) as (_, port):
        statuses = re.findall(rb"HTTP/1.1 (\d+) ", exchange(port, requests))
    assert set(statuses) == {b"200", b"429"}


def test_edge_finishes_what_it_took_before_it_stops(tmp_path: Path) -> None:
    with stub() as upstream, edge(tmp_path, upstream) as (process, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        Stub.slow.clear()
        connection.request("GET", "/slow")
        assert Stub.slow.wait(60)
        process.send_signal(signal.SIGQUIT)
        assert json.loads(connection.getresponse().read())["path"] == "/slow"
        connection.close()
        assert process.wait(timeout=60) == 0
