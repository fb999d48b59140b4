"""Unexpected failures: a process whose inference thread died is replaced, and callers get a fixed message."""

import re
from pathlib import Path

import faulty_server
import httpx
import pytest
from bundles import write_head
from refusals import refusal
from server import TIMEOUT_S, eventually, in_process, serving

from service.text.encoder import Encoder
from service.text.tokenizer import TokenizedText

FAULTY_COMMAND = (faulty_server.__file__,)
NOT_READY = (503, "not_ready", None)


class FailingEncoder(Encoder):
    """An encoder with an unexpected error, whose message no caller may read."""

    def tokenize(self, text: str, *, fold_names: bool = True) -> TokenizedText:
        if text == "fail":
            raise ZeroDivisionError("the password is swordfish")
        return super().tokenize(text, fold_names=fold_names)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    write_head(tmp_path)
    return tmp_path


def end_inference(client: httpx.Client) -> None:
    """Send a text that ends the inference thread; the response is an error."""
    body = {"input": ["fine", "fatal"], "explain": "full"}
    assert refusal(client.post("/classify", json=body)) == NOT_READY


@pytest.mark.alone
def test_dead_inference_thread_fails_health_and_ends_the_process(models: Path) -> None:
    with serving(models, command=FAULTY_COMMAND, default_model="tiny") as server, server.client() as client:
        response = client.post("/classify", json={"input": "fine", "explain": "full"})
        with in_process(models) as plain_client:
            expected = plain_client.post("/classify", json={"input": "fine", "explain": "full"})
        assert response.json()["data"] == expected.json()["data"]
        assert client.get("/health").json() == {"status": "ok"}
        end_inference(client)
        # Health fails for half a second before the process ends.
        assert [refusal(client.get(path)) for path in ("/health", "/ready")] == [NOT_READY] * 2
        assert client.get("/v2/health/live").status_code == 503
        assert refusal(client.post("/classify", json={"input": "fine"})) == NOT_READY
        assert server.process.wait(TIMEOUT_S) == 1
        eventually(lambda: "the inference thread died" in server.output)


@pytest.mark.system
def test_supervisor_replaces_a_process_whose_inference_died(models: Path) -> None:
    with serving(models, command=FAULTY_COMMAND, default_model="tiny", workers=2) as server:
        eventually(lambda: len(server.workers) == 2)
        before = {worker.pid for worker in server.workers}
        with server.client() as client:
            end_inference(client)
        eventually(lambda: "] died" in server.output)
        (ended_pid,) = re.findall(r"Child process \[(\d+)\] died", server.output)
        eventually(lambda: len({worker.pid for worker in server.workers} - before) == 1)
        assert before - {worker.pid for worker in server.workers} == {int(ended_pid)}
        with server.client() as client:
            eventually(lambda: "hardmax_ready 2.0" in client.get("/metrics").text)
            assert client.get("/health").json() == {"status": "ok"}
        assert server.stop() == 0


def test_unexpected_error_is_logged_and_hidden_from_callers(
    models: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with in_process(models, faulty_server.loaders_with_encoder(FailingEncoder)) as client:
        response = client.post("/classify", json={"input": "fail"})
    assert response.status_code == 500
    assert "swordfish" not in response.text
    assert "swordfish" in caplog.text
    assert response.json()["error"]["request_id"] == response.headers["x-request-id"]
