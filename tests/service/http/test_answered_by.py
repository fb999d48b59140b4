"""What every answer says of the model that answered, and the answers to blank texts."""

import json
import logging
from typing import Any

import httpx
import pytest
from bundles import write_head
from server import in_process

from service.observability.logging import JsonFormatter

TENSOR = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["a superb film"]}
LABELS = ["negative", "neutral", "positive"]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("models")
    write_head(folder, "mine@1")
    write_head(folder, "mine@2", labels=LABELS)
    write_head(folder, "topics", labels=["food", "film"], multi_label={"thresholds": [0.0, 0.0]})
    with in_process(folder, default_model="mine") as client:
        yield client


def digest(client: httpx.Client, name: str) -> str:
    return str(client.get(f"/models/{name}").json()["digest"])


@pytest.mark.parametrize(
    ("model", "version"), [("mine", 2), ("mine@1", 1), ("topics", 1), (["topics", "mine"], [1, 2])]
)
def test_answer_names_the_version_and_the_digest_of_its_model(
    client: httpx.Client, model: Any, version: Any
) -> None:
    response = client.post("/classify", json={"input": "a superb film", "model": model})
    assert response.json()["model_version"] == version
    names = [model] if isinstance(model, str) else model
    assert response.headers["x-model-digest"].split(",") == [digest(client, name) for name in names]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/", {"inputs": "a superb film"}),
        ("/predict", {"inputs": "a superb film"}),
        ("/models/mine", {"inputs": "a superb film"}),
        ("/v2/models/mine/infer", {"inputs": [TENSOR]}),
    ],
)
def test_other_protocols_name_the_digest_in_a_header(
    client: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    response = client.post(path, json=body)
    assert response.headers["x-model-digest"] == digest(client, "mine")
    refused = client.post(path, json={"inputs": []})
    assert refused.status_code == 422
    assert "x-model-digest" not in refused.headers


def test_blank_text_is_refused_unless_the_query_says_otherwise(client: httpx.Client) -> None:
    body = {"input": ["a superb film", " \n", ""]}
    assert client.post("/classify", json=body).json()["error"]["param"] == "input[1]"
    data = client.post("/classify?on_empty=abstain", json=body).json()["data"]
    assert [answer["abstain_reason"] == "empty" for answer in data] == [False, True, True]
    alone = client.post("/classify", json={"input": "a superb film"}).json()["data"]
    assert data[0] == alone[0]
    assert data[1] | {"index": 2} == data[2]
    assert data[1]["label"] == "neutral"
    assert data[1]["score"] == data[1]["probs"]["neutral"]
    assert data[1]["logit"] == data[1]["bias"]
    assert (data[1]["leaders"], data[1]["clusters"], data[1]["n_words"]) == ([], [], 0)
    assert client.post("/classify?on_empty=ignore", json=body).status_code == 422


def test_no_label_of_several_applies_to_a_blank_text(client: httpx.Client) -> None:
    url, body = "/classify?on_empty=abstain", {"model": "topics", "flip": True, "sufficient": True}
    (answer,) = client.post(url, json={"input": " ", **body}).json()["data"]
    assert (answer["labels"], answer["abstain_reason"]) == ([], "empty")
    assert answer["flip"] is answer["sufficient"] is None


@pytest.mark.parametrize("path", ["/", "/models/mine", "/predict"])
def test_other_protocols_answer_blank_texts_too(client: httpx.Client, path: str) -> None:
    body = {"inputs": ["a superb film", " "]}
    assert client.post(path, json=body).status_code == 422
    response = client.post(f"{path}?on_empty=abstain&abstain=neutral", json=body)
    assert response.json()[1][0] == {"label": "neutral", "score": 1.0}
    assert "1" in response.headers["x-abstained"].split(",")


def test_access_log_has_the_models_and_the_number_of_texts(
    client: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "service.requests")
    client.post("/classify", json={"input": ["superb", "awful"], "model": ["mine", "topics"]})
    client.get("/health")
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    assert [(line.get("model"), line.get("texts")) for line in lines] == [("mine@2,topics", 2), (None, None)]
