"""The server: start, signals, keys, models that are added and removed, deadlines, and limits."""

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import faulty_server
import httpx
import numpy as np
import pytest
from bundles import LABELS, write_head
from graphs import change_graph, loop_forever
from raw_http import NPY, connect, npy, post_request, read_status, request_head
from refusals import refusal
from server import SERVE, TIMEOUT_S, Server, environ, eventually, in_process, serving

from service import __version__, state
from service.errors import ConfigurationError
from service.observability.logging import TextFormatter
from service.server import DRAIN_S, KILL_AFTER_S, LAST_REQUESTS_S, listen
from service.settings import PRETRAINED_FOLDER, Settings

CLOSING = post_request(b'{"input": "superb"}').replace(
    b"content-length", b"connection: close\r\ncontent-length", 1
)
CLOUD, ENDLESS = (
    npy(np.random.default_rng(3).normal(size=(40_000, 32))),
    "/dynamics?stop=never&max_layers=100000",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of models that a test may change."""
    write_head(tmp_path / "models")
    return tmp_path / "models"


def label(client: httpx.Client, model: str = "tiny") -> str:
    answer = client.post("/classify", json={"input": "superb", "model": model})
    return str(answer.json()["data"][0]["label"])


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.system)])
def test_sigterm_under_load_loses_no_accepted_request_and_every_log_line_is_json(
    models: Path, workers: int
) -> None:
    statuses: list[int] = []

    def call(server: Server) -> None:
        """Send requests on new connections until the server no longer listens."""
        while True:
            start_s = time.monotonic()
            try:
                connection = connect(server.port)
            except ConnectionError:  # refused, or reset while it waited to be accepted
                return
            with connection:
                try:
                    connection.sendall(CLOSING)
                    is_late = time.monotonic() - start_s > LAST_REQUESTS_S / 2  # on a busy machine
                    response = connection.recv(65536)
                except ConnectionError:  # in the kernel's queue when the socket was closed: never accepted
                    return
                if not response and is_late:  # it may have been closed before it sent anything
                    return
                statuses.append(int(response[9:12] or 0))

    options = {"default_model": "tiny", "workers": workers, "log_format": "json"}
    with serving(models, **options) as server, ThreadPoolExecutor(8) as pool:
        callers = [pool.submit(call, server) for _ in range(8)]
        eventually(lambda: len(statuses) > 50)
        assert server.stop() == 0
        for caller in callers:
            caller.result(TIMEOUT_S)
    assert set(statuses) == {200}
    messages = [json.loads(line).get("message", "") for line in server.output.splitlines()]
    greeting = f"hardmax {__version__} on {server.url}; page {server.url}/ "
    assert any(message.startswith(greeting) for message in messages)
    assert "stopping on SIGTERM, within 30 s" in messages


def test_sigterm_makes_it_unready_at_once_and_finishes_what_runs(models: Path) -> None:
    """The start names the default model, the page and the watched folder; the stop says why."""
    body = b'{"input": "superb"}'
    with serving(models, default_model="tiny") as server, server.client() as client:
        with connect(server.port) as caller:
            caller.sendall(request_head(len(body)) + body[:5])
            eventually(lambda: "hardmax_requests_in_flight 1" in client.get("/metrics").text)
            server.process.send_signal(signal.SIGTERM)
            answers: list[httpx.Response] = []  # the listener is open for a moment only

            def is_unready() -> bool:
                answers.append(client.get("/ready"))
                return answers[-1].status_code == 503

            eventually(is_unready)
            assert refusal(answers[-1]) == (503, "not_ready", None)
            assert answers[-1].headers["connection"] == "close"
            caller.sendall(body[5:])
            assert caller.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert server.process.wait(TIMEOUT_S) == 0
        eventually(lambda: "stopping on SIGTERM, within 30 s" in server.output)
        lines = [line.split(maxsplit=1) for line in server.output.splitlines()]
        assert ["default", "tiny"] in lines
        kinds = ("  text-classification ", "  dynamics ", "  encoder ")
        table = [line for line in server.output.splitlines() if line.startswith(kinds)]
        assert {len(line) - len(line.split(maxsplit=1)[1]) for line in table} == {23}  # one column of names
        assert ["watches", str(models)] in lines
        assert ["page", f"{server.url}/   (documentation /docs, metrics /metrics)"] in lines


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.system)])
def test_stop_ends_within_its_grace_period_whatever_still_runs(
    models: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that nothing can interrupt, a cloud of many seconds, and a body that does not arrive."""
    monkeypatch.setenv(faulty_server.KILL_AFTER_S, "2")
    options = {"default_model": "tiny", "shutdown_grace_s": 1, "workers": workers}
    with (
        serving(models, command=(faulty_server.__file__,), **options) as server,
        connect(server.port) as caller,
        connect(server.port) as sender,
        connect(server.port) as computing,
    ):
        computing.sendall(post_request(CLOUD, ENDLESS, NPY))
        caller.sendall(b"GET /stuck HTTP/1.1\r\nhost: localhost\r\n\r\n")
        sender.sendall(request_head(9))
        eventually(lambda: "stuck" in server.output)
        time.sleep(0.1)
        assert server.stop(timeout_s=1 + 2 + 5) == 0
        for connection in (caller, sender, computing):
            assert connection.recv(65536).startswith(b"HTTP/1.1 503 ")


@pytest.mark.system
def test_stop_is_obeyed_while_a_bundle_never_ends_to_load(folder: Path) -> None:
    """SIGTERM was once ignored for a minute, and SIGHUP ended a process that had not yet set its handler."""
    shutil.copytree(PRETRAINED_FOLDER / "dynamics", folder / "dynamics")
    change_graph(folder / "dynamics", loop_forever)
    settings = environ(port=0, models_dir=folder, pretrained_models=False, default_model="tiny")
    command = [sys.executable, faulty_server.__file__]
    with subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "loads dynamics\n"
            process.send_signal(signal.SIGHUP)
            time.sleep(0.2)
            process.terminate()
            assert process.wait(KILL_AFTER_S + 3) == 0
        finally:
            process.kill()


def test_api_keys_open_what_is_not_public(
    models: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys"
    file.write_text("\ufefffrom-file\n\n# ours\n")  # some editors write a byte order mark
    settings = {"api_keys": "one, two, voilà, shop:four", "api_keys_file": file}
    with in_process(models, **settings) as client, caplog.at_level("INFO", "service"):

        def classify(headers: dict[str, Any]) -> httpx.Response:
            return client.post("/classify", json={"input": "superb"}, headers=headers)

        def statuses(*keys: str) -> list[int]:
            return [classify({"x-api-key": key.encode()}).status_code for key in keys]

        def reload() -> None:
            assert client.portal is not None
            client.portal.call(client.app.state.service.reload)  # type: ignore[attr-defined]

        for headers in ({"x-api-key": "on"}, {"authorization": "one"}):
            assert refusal(classify(headers)) == (401, "unauthorized", None)
        assert classify({"authorization": "Bearer of-a-proxy", "x-api-key": "two"}).status_code == 200
        assert statuses("two", "voilà", "from-file") == [200] * 3
        assert statuses("four", "shop:four", "shop") == [200, 401, 401]
        lines = [TextFormatter().format(record) for record in caplog.records]
        assert ["key=shop" in line for line in lines[-3:]] == [True, False, False]
        assert "four" not in "".join(lines)
        file.write_text("newer\n")
        reload()
        assert statuses("newer", "from-file", "one") == [200, 401, 200]
        file.unlink()
        reload()
        assert statuses("newer") == [200]
    assert any("keys not read again" in record.getMessage() for record in caplog.records)


@pytest.fixture
def fast_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for changes in MODELS_DIR every 50 ms."""
    monkeypatch.setattr(state, "WATCH_S", 0.05)


def test_models_are_added_replaced_and_removed_while_serving(folder: Path, fast_watch: None) -> None:
    with in_process(folder) as client:

        def names() -> list[str]:
            return sorted(card["name"] for card in client.get("/models").json()["models"])

        assert label(client) == "positive"
        write_head(folder, name="second")
        eventually(lambda: names() == ["reader", "second", "tiny"])
        assert label(client, "second") == "positive"
        write_head(folder, name="second", labels=LABELS[::-1])
        eventually(lambda: label(client, "second") == "negative")
        (folder / "second/model.onnx").write_bytes(b"broken")
        eventually(lambda: [e["name"] for e in client.get("/info").json()["load_errors"]] == ["second"])
        assert "card" in client.get("/info").json()["load_errors"][0]["reason"]
        assert label(client, "second") == "negative"
        shutil.rmtree(folder / "second")
        eventually(lambda: names() == ["reader", "tiny"])
        assert client.post("/classify", json={"input": "superb", "model": "second"}).status_code == 404
        assert client.get("/info").json()["load_errors"] == []


@pytest.mark.system
def test_broken_default_model_stops_the_start_and_says_why(folder: Path) -> None:
    card = json.loads((folder / "tiny/card.json").read_text())
    (folder / "tiny/card.json").write_text(json.dumps({**card, "model_sha256": "0" * 64}))
    env = environ(models_dir=folder, pretrained_models=False, default_model="tiny", port=0)
    process = subprocess.run([sys.executable, *SERVE], env=env, text=True, capture_output=True, timeout=60)
    assert process.returncode == 2
    reason = "tiny: model.onnx is not the file its card describes"
    assert process.stderr.splitlines()[-1] == f"hardmax: DEFAULT_MODEL: the model tiny was refused: {reason}"
    assert "Traceback" not in process.stderr


def test_broken_bundles_are_named_and_the_other_models_are_served(folder: Path, fast_watch: None) -> None:
    write_head(folder, name="many", abstain_margin="many")
    write_head(folder, name="deep")
    (folder / "deep/card.json").write_text("[" * 200_000)
    with in_process(folder) as client:
        assert label(client) == "positive"
        errors = {error["name"]: error["reason"] for error in client.get("/info").json()["load_errors"]}
        assert errors.keys() == {"many", "deep"}
        assert errors["deep"].startswith("deep/card.json is not JSON")
        assert "hardmax_bundles_refused 2.0" in client.get("/metrics").text
        shutil.rmtree(folder / "deep")
        eventually(lambda: "hardmax_bundles_refused 1.0" in client.get("/metrics").text)
        write_head(folder, name="later")
        eventually(lambda: "later" in client.get("/info").json()["models"])


def test_server_is_not_ready_while_its_default_model_is_missing(folder: Path, fast_watch: None) -> None:
    write_head(folder, name="other")
    with in_process(folder) as client:
        assert client.get("/ready").status_code == 200
        (folder / "tiny").rename(folder / ".away")
        eventually(lambda: client.get("/ready").status_code == 503)
        assert "there is no model tiny" in client.get("/ready").json()["error"]["message"]
        assert client.get("/health").status_code == 200
        (folder / ".away").rename(folder / "tiny")
        eventually(lambda: client.get("/ready").status_code == 200)


def test_model_that_was_missing_during_a_reload_is_served_again(folder: Path, fast_watch: None) -> None:
    """The folder is then as it was before, so that a comparison of folders alone would see no change."""
    with in_process(folder) as client:
        registry = client.app.state.service.registry
        refresh, away = registry.refresh, folder / ".away"

        def refresh_without_it() -> None:
            registry.refresh = refresh
            (folder / "tiny").rename(away)
            refresh()
            away.rename(folder / "tiny")

        registry.refresh = refresh_without_it
        write_head(folder, name="other")
        eventually(lambda: "other" in registry.entries, 20)
        eventually(lambda: client.get("/ready").status_code == 200, 20)


def test_port_in_use_is_refused_in_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        reason = f"cannot listen on 127.0.0.1:{port} (Address already in use)"
        with pytest.raises(ConfigurationError, match=re.escape(f"{reason}: choose another port with --port")):
            listen(Settings(port=port))


def test_deadline_is_answered_504_and_frees_its_place(models: Path) -> None:
    headers = {"content-type": "application/x-npy", "accept": "application/x-ndjson"}
    with in_process(models, request_timeout_s=2) as client:
        response = client.post(ENDLESS, content=CLOUD, headers={**headers, "accept": "*/*"})
        assert refusal(response) == (504, "deadline_exceeded", None)
        eventually(lambda: client.post("/dynamics", json={"points": [[1, 2]]}).status_code == 200)
        *_, last = client.post(ENDLESS, content=CLOUD, headers=headers).text.splitlines()
        assert json.loads(last)["error"]["type"] == "deadline_exceeded"


def test_more_requests_than_may_run_are_refused_and_a_second_interrupt_stops_at_once(models: Path) -> None:
    limits = {"max_concurrent_requests": 2, "shutdown_grace_s": 600, "request_timeout_s": 600}
    with (
        serving(models, default_model="tiny", **limits) as server,
        server.client() as client,
        connect(server.port) as first,
        connect(server.port) as second,
    ):

        def in_flight() -> bool:
            return "hardmax_requests_in_flight 2" in client.get("/metrics").text

        for caller in (first, second):
            caller.sendall(post_request(CLOUD, ENDLESS, NPY))
        eventually(in_flight)
        for body in ({"input": "good"}, {"input": ["good", "bad"]}):
            response = client.post("/classify", json=body)
            assert refusal(response) == (429, "overloaded", None)
            assert int(response.headers["retry-after"]) >= 1
        with connect(server.port) as connection:
            connection.sendall(request_head(9))  # it is refused before its body arrives
            assert read_status(connection) == 429
            connection.sendall(b'{"a": [1]' + post_request(b"{}"))
            assert read_status(connection) == 429
        assert client.get("/health").status_code == 200
        second.close()
        eventually(lambda: client.post("/classify", json={"input": "good"}).status_code == 200)
        server.process.send_signal(signal.SIGINT)
        eventually(lambda: "stopping on SIGINT, within 600 s" in server.output)
        assert server.stop(signal.SIGINT) == 0


@pytest.mark.alone
def test_request_on_the_last_accepted_connection_is_answered(models: Path) -> None:
    """uvicorn closed the connection with the server, and a request sent a moment later was lost."""
    with serving(models, default_model="tiny") as server, connect(server.port) as connection:
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: "stopping on SIGTERM" in server.output)
        time.sleep(DRAIN_S + LAST_REQUESTS_S / 4)
        connection.sendall(b"GET /info HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert read_status(connection) == 200
