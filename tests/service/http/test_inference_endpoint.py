"""Unmodified clients of other servers: huggingface_hub's, and what speaks text-embeddings-inference."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError
from refusals import refusal
from server import Server, in_process


def ours(client: httpx.Client, text: str) -> dict[str, Any]:
    return dict(client.post("/classify", json={"input": text}).json()["data"][0])


def test_inference_client_labels_texts_as_classify_does(server: Server, client: httpx.Client) -> None:
    found = InferenceClient(base_url=server.url).text_classification("a superb film")
    assert {each.label: each.score for each in found} == ours(client, "a superb film")["probs"]
    assert [each.label for each in found] == ["positive", "negative"]
    assert found[0].score > 0.9


def test_inference_client_asks_for_a_model_by_its_url_and_for_the_best_label(server: Server) -> None:
    asked = InferenceClient(model=f"{server.url}/models/tiny")
    (best,) = asked.text_classification("an awful film", top_k=1)
    assert best.label == "negative"
    raw = asked.text_classification("an awful film", function_to_apply="none")
    low, high = sorted(each.score for each in raw)
    assert high == -low > 0


def test_inference_client_hears_what_is_wrong(server: Server) -> None:
    with pytest.raises(HfHubHTTPError, match="the text is empty"):
        InferenceClient(base_url=server.url).text_classification(" ")
    with pytest.raises(HfHubHTTPError, match="nobody"):
        InferenceClient(base_url=f"{server.url}/models/nobody").text_classification("a film")


def test_zero_shot_client_hears_which_labels_there_are(server: Server) -> None:
    asked = InferenceClient(base_url=server.url)
    found = asked.zero_shot_classification("a superb film", ["positive", "negative"])
    assert [each.label for each in found] == ["positive", "negative"]
    with pytest.raises(HfHubHTTPError, match="this model has the labels negative, positive"):
        asked.zero_shot_classification("a superb film", ["positive", "boring"])


def test_candidate_labels_are_chosen_before_the_best_and_for_every_text(client: httpx.Client) -> None:
    parameters = {"candidate_labels": ["negative"], "top_k": 1}
    one, several = (
        client.post("/", json={"inputs": inputs, "parameters": parameters}).json()
        for inputs in ("superb", ["superb", "awful"])
    )
    assert [each["label"] for each in one] == ["negative"]
    assert several[0] == one
    assert [each["label"] for each in several[1]] == ["negative"]


@pytest.mark.parametrize("path", ["/predict", "/", "/models/tiny"])
def test_header_lists_the_texts_on_which_the_model_abstains(client: httpx.Client, path: str) -> None:
    texts = ["zzkq", "a superb film", "zzkq zzkq"]
    reasons = [
        each["abstain_reason"] for each in client.post("/classify", json={"input": texts}).json()["data"]
    ]
    assert [reason is None for reason in reasons] == [False, True, False]
    assert client.post(path, json={"inputs": texts}).headers["x-abstained"] == "0,2"
    assert client.post(path, json={"inputs": "zzkq"}).headers["x-abstained"] == "0"
    assert "x-abstained" not in client.post(path, json={"inputs": ["a superb film"]}).headers


def test_header_of_many_abstentions_is_short_enough_for_proxies(models: Path) -> None:
    with in_process(models) as client:
        listed = client.post("/predict", json={"inputs": ["zzkq"] * 300}).headers["x-abstained"]
    assert listed.split(",") == [*map(str, range(256)), "..."]


def test_clients_of_vllm_are_answered_in_its_shape(client: httpx.Client) -> None:
    texts = ["superb", "awful"]
    answer = client.post("/v1/classify", json={"model": "tiny", "input": texts, "user": "me"}).json()
    plain = [ours(client, text) for text in texts]
    told = [(e["index"], e["label"], e["probs"], e["num_classes"], e["leaders"]) for e in answer["data"]]
    assert told == [
        (index, each["label"], list(each["probs"].values()), 2, each["leaders"])
        for index, each in enumerate(plain)
    ]
    assert (answer["object"], answer["model"], answer["usage"]["total_tokens"]) == ("list", "tiny", 2)
    assert refusal(client.post("/v1/classify", json={"input": [" "]})) == (422, "invalid_input", "input[0]")


def test_inference_client_sends_its_token(locked: Server) -> None:
    """The page may be public; what is posted to its address needs the key all the same."""
    assert InferenceClient(base_url=locked.url, token="secret").text_classification("superb")
    with pytest.raises(HfHubHTTPError, match="401"):
        InferenceClient(base_url=locked.url, token="wrong").text_classification("superb")


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/", {"inputs": ["fine", " "]}, 422, "inputs[1]"),
        ("/", {"inputs": {"text": "fine"}}, 422, None),
        ("/predict", {"inputs": [["one"], []]}, 422, "inputs[1]"),
    ],
)
def test_endpoints_refuse_by_name(
    client: httpx.Client, path: str, body: object, status: int, param: str | None
) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == status, answer.text
    if param:
        assert answer.json()["error"]["param"] == param
