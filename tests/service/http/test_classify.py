"""POST /classify: several models, options, media types, and bodies that are refused."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from bundles import write_encoder, write_head
from refusals import JSON, refusal
from server import in_process


def classify(client: httpx.Client, text: str, **options: Any) -> dict[str, Any]:
    """Return the answer of one text."""
    return dict(client.post("/classify", json={"input": text, **options}).json()["data"][0])


def test_several_models_answer_what_each_answers_alone(tmp_path: Path) -> None:
    write_head(tmp_path)
    write_head(tmp_path, "topics@1", labels=["food", "film", "time"])
    write_head(
        tmp_path, "topics@2", labels=["food", "film", "time"], multi_label={"thresholds": [0.5, 0.5, 0.5]}
    )
    body = {"input": ["the superb film", "awful"], "explain": "full"}
    with in_process(tmp_path) as client:
        together = client.post("/classify", json={**body, "model": ["tiny", "topics"]}).json()
        assert (together["model"], together["usage"]) == (["tiny", "topics"], {"texts": 2, "tokens": 4})
        for name in ("tiny", "topics"):
            separate = client.post("/classify", json={**body, "model": name}).json()["data"]
            assert [{"index": e["index"], **e["answers"][name]} for e in together["data"]] == separate
        newest = together["data"][0]["answers"]["topics"]
        older = classify(client, "the superb film", model="topics@1")
        assert newest["labels"] == [label for label, p in newest["probs"].items() if p >= 0.5]
        assert "labels" not in older
        assert round(sum(older["probs"].values()), 7) == 1
        cards = {card["name"]: card for card in client.get("/models").json()["models"]}
        assert cards["tiny"]["bias"] == together["data"][0]["answers"]["tiny"]["bias"]
        assert cards["topics@1"]["bias"] == older["bias"]
        assert client.get("/models/topics").json()["name"] == "topics@2"


def test_models_that_read_names_differently_cannot_be_asked_together(tmp_path: Path) -> None:
    write_head(tmp_path)
    write_head(tmp_path, "reads", fold_names=False)
    with in_process(tmp_path) as client:
        assert client.get("/models/reads").json()["format"] == 4
        folded, read = (
            classify(client, "a Paris film", model=name, explain="full") for name in ("tiny", "reads")
        )
        assert folded["words"][1]["read_as"] == "<name>"
        assert "read_as" not in read["words"][1]
        assert folded["logit"] != read["logit"]
        response = client.post("/classify", json={"input": "superb", "model": ["tiny", "reads"]})
        assert refusal(response) == (422, "invalid_input", "model")


def test_models_on_different_encoders_cannot_be_asked_together(tmp_path: Path) -> None:
    write_head(tmp_path)
    digest = write_encoder(tmp_path, "other", seed=1).card["model_sha256"]
    write_head(tmp_path, "far", encoder={"name": "other", "sha256": digest})
    write_head(tmp_path, "lost", encoder={"name": "gone", "sha256": "0" * 64})
    with in_process(tmp_path) as client:
        assert classify(client, "superb", model="far")["n_words"] == 1
        body: dict[str, Any] = {"input": "superb", "model": ["tiny", "far"]}
        assert refusal(client.post("/classify", json=body)) == (422, "invalid_input", "model")
        response = client.post("/classify", json={**body, "model": "lost"})
        assert refusal(response) == (404, "not_found", "model")
        assert "needs the encoder gone (000000000000), which is not here" in response.text


@pytest.mark.parametrize(
    "body",
    [
        b'{"input": "a"} x',
        b"\xef\xbb\xbf" + b'{"input": "good"}',
        '{"input": "good"}'.encode("utf-16"),
        b'{"input": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b'{"input": ' + b"9" * 10_000 + b"}",
    ],
)
@pytest.mark.parametrize("path", ["/classify", "/dynamics", "/sequences/classify", "/control"])
def test_routes_refuse_what_is_not_json(client: httpx.Client, path: str, body: bytes) -> None:
    status, kind, _ = refusal(client.post(path, content=body, headers=JSON))
    assert (status, kind) == (400, "malformed_input")


@pytest.mark.parametrize("half", ["\\ud83d", "\\udc00", "\\ud83d\\u0041"])
@pytest.mark.parametrize("path", ["/classify", "/dynamics", "/sequences/classify", "/control"])
def test_routes_say_that_a_lone_surrogate_is_half_a_character(
    client: httpx.Client, path: str, half: str
) -> None:
    """The body is JSON, so the error is not about its syntax."""
    response = client.post(path, content=f'{{"input": "bad {half}"}}', headers=JSON)
    assert refusal(response) == (422, "invalid_input", None)
    assert "half a character: a lone surrogate" in response.text


def test_classify_refuses_two_media_types(client: httpx.Client) -> None:
    headers = [("content-type", "text/plain"), ("content-type", "application/json")]
    response = client.post("/classify", content=b'{"input": "superb"}', headers=headers)
    assert refusal(response) == (415, "unsupported_media_type", None)


def test_classify_takes_json_by_any_of_its_names_and_in_chunks(client: httpx.Client) -> None:
    for headers in (JSON, {"content-type": "Application/JSON; charset=UTF-8"}):
        duplicate = b'{"input": "awful", "input": "superb"}'  # the last one counts
        for content in (b'{"input": "superb"}', duplicate, iter([b'{"input": ', b'"superb"}'])):
            response = client.post("/classify", content=content, headers=headers)
            assert response.json()["data"][0]["label"] == "positive"


def test_search_that_may_take_too_long_is_refused_at_once(models: Path) -> None:
    """It was refused with 429 by its own trials, after 10 to 41 seconds of work."""
    long, short = "the film was a superb film " * 400, "the film was a superb film " * 40
    with in_process(models, request_timeout_s=30, intra_op_threads=1) as client:
        for texts, param in (([long, short], "input[0]"), ([short] * 16, "input")):
            response = client.post("/classify", json={"input": texts, "flip": True})
            assert refusal(response) == (413, "too_large", param)
            assert "of computing, the limit is 22 s" in response.json()["error"]["message"]
        # its trials have 16 words at most, however long the text is
        response = client.post("/classify", json={"input": long, "sufficient": True})
        assert response.status_code == 200


def test_full_explanations_are_answered_for_a_bounded_number_of_texts(models: Path) -> None:
    with in_process(models) as client:
        for options in ({"explain": "full"}, {"trajectory": True}):
            response = client.post("/classify", json={"input": ["a film"] * 64, **options})
            assert len(response.json()["data"]) == 64
            response = client.post("/classify", json={"input": ["a film"] * 65, **options})
            assert refusal(response) == (413, "too_large", "input")
        response = client.post("/classify", json={"input": ["a film " * 1_000] * 21, "explain": "full"})
    assert refusal(response) == (413, "too_large", "input")
    assert "words x models of full explanations, the limit is 40000" in response.json()["error"]["message"]


def test_sufficient_words_are_answered_for_a_bounded_number_of_texts(client: httpx.Client) -> None:
    body = {"input": "the film was a superb film", "sufficient": True, "flip": True}
    (answer,) = client.post("/classify", json=body).json()["data"]
    assert set(answer["sufficient"]) == {"words", "score"}
    response = client.post("/classify", json={**body, "input": ["a film"] * 17})
    assert refusal(response) == (422, "invalid_input", "flip")
