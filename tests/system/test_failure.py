"""What nobody foresaw: dead inference ends its process and another comes; a caller hears a fixed sentence."""

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

FAULTY = (faulty_server.__file__,)
NOT_READY = (503, "not_ready", None)


class Failing(Encoder):
    """A model with a fault that nobody foresaw, told in words that no caller may read."""

    def tokenize(self, text: str) -> TokenizedText:
        if text == "fail":
            raise ZeroDivisionError("the password is swordfish")
        return super().tokenize(text)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    write_head(tmp_path)
    return tmp_path


def end_inference(client: httpx.Client) -> None:
    """By a text that the thread does not survive; the caller is told."""
    body = {"input": ["fine", "fatal"], "explain": "full"}
    assert refusal(client.post("/classify", json=body)) == NOT_READY


@pytest.mark.alone
def test_dead_inference_thread_turns_health_red_and_ends_the_process_with_1(models: Path) -> None:
    with serving(models, command=FAULTY, default_model="tiny") as server, server.client() as client:
        fine = client.post("/classify", json={"input": "fine", "explain": "full"})
        with in_process(models) as plain:
            asked = plain.post("/classify", json={"input": "fine", "explain": "full"})
        assert fine.json()["data"] == asked.json()["data"]
        assert client.get("/health").json() == {"status": "ok"}
        end_inference(client)
        # Red for half a second, then nobody answers.
        assert [refusal(client.get(path)) for path in ("/health", "/ready")] == [NOT_READY] * 2
        assert client.get("/v2/health/live").status_code == 503
        assert refusal(client.post("/classify", json={"input": "fine"})) == NOT_READY
        assert server.process.wait(TIMEOUT_S) == 1
        eventually(lambda: "the inference thread died" in server.output)


@pytest.mark.system
def test_process_whose_inference_died_is_replaced_by_its_supervisor(models: Path) -> None:
    with serving(models, command=FAULTY, default_model="tiny", workers=2) as server:
        eventually(lambda: len(server.workers) == 2)
        before = {worker.pid for worker in server.workers}
        with server.client() as client:
            end_inference(client)
        eventually(lambda: "] died" in server.output)
        (ended,) = re.findall(r"Child process \[(\d+)\] died", server.output)
        eventually(lambda: len({worker.pid for worker in server.workers} - before) == 1)
        assert before - {worker.pid for worker in server.workers} == {int(ended)}
        with server.client() as client:
            eventually(lambda: "hardmax_ready 2.0" in client.get("/metrics").text)
            assert client.get("/health").json() == {"status": "ok"}
        assert server.stop() == 0


def test_unforeseen_failure_is_a_fixed_sentence_for_callers_and_a_traceback_for_the_log(
    models: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with in_process(models, faulty_server.loaders_with_encoder(Failing)) as client:
        answer = client.post("/classify", json={"input": "fail"})
    assert answer.status_code == 500
    assert "swordfish" not in answer.text
    assert "swordfish" in caplog.text
    assert answer.json()["error"]["request_id"] == answer.headers["x-request-id"]
