"""Clients of other servers, unmodified: huggingface_hub and text-embeddings-inference."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError
from server import Server, in_process


def classify(client: httpx.Client, text: str) -> dict[str, Any]:
    return dict(client.post("/classify", json={"input": text}).json()["data"][0])


def test_inference_client_labels_texts_as_classify_does(server: Server, client: httpx.Client) -> None:
    outputs = InferenceClient(base_url=server.url).text_classification("a superb film")
    assert {output.label: output.score for output in outputs} == classify(client, "a superb film")["probs"]
    assert [output.label for output in outputs] == ["positive", "negative"]
    assert outputs[0].score > 0.9


def test_inference_client_gets_the_message_of_an_error(server: Server) -> None:
    with pytest.raises(HfHubHTTPError, match="the text is empty"):
        InferenceClient(base_url=server.url).text_classification(" ")
    with pytest.raises(HfHubHTTPError, match="nobody"):
        InferenceClient(base_url=f"{server.url}/models/nobody").text_classification("a film")


def test_zero_shot_client_gets_the_labels_of_the_model(server: Server) -> None:
    inference_client = InferenceClient(base_url=server.url)
    outputs = inference_client.zero_shot_classification("a superb film", ["positive", "negative"])
    assert [output.label for output in outputs] == ["positive", "negative"]
    with pytest.raises(HfHubHTTPError, match="this model has the labels negative, positive"):
        inference_client.zero_shot_classification("a superb film", ["positive", "boring"])


@pytest.mark.parametrize("path", ["/predict", "/", "/models/tiny"])
def test_header_lists_the_texts_on_which_the_model_abstains(client: httpx.Client, path: str) -> None:
    texts = ["zzkq", "a superb film", "zzkq zzkq"]
    answers = client.post("/classify", json={"input": texts}).json()["data"]
    assert [answer["abstain_reason"] is None for answer in answers] == [False, True, False]
    assert client.post(path, json={"inputs": texts}).headers["x-abstained"] == "0,2"
    assert client.post(path, json={"inputs": "zzkq"}).headers["x-abstained"] == "0"
    assert "x-abstained" not in client.post(path, json={"inputs": ["a superb film"]}).headers


def test_header_of_many_abstentions_is_short_enough_for_proxies(models: Path) -> None:
    with in_process(models) as client:
        listed = client.post("/predict", json={"inputs": ["zzkq"] * 300}).headers["x-abstained"]
    assert listed.split(",") == [*map(str, range(256)), "..."]


def test_inference_client_sends_its_token(locked: Server) -> None:
    """The page is public; a request that is posted to its address needs the key."""
    assert InferenceClient(base_url=locked.url, token="secret").text_classification("superb")
    with pytest.raises(HfHubHTTPError, match="401"):
        InferenceClient(base_url=locked.url, token="wrong").text_classification("superb")
