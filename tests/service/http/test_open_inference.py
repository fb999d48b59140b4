"""The Open Inference Protocol, driven by an unmodified Triton client and by hand."""

from __future__ import annotations

import json
import warnings
from typing import Any

import httpx
import numpy as np
import pytest
from server import Server

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    triton = pytest.importorskip("tritonclient.http")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
BINARY = "application/octet-stream"
TEXTS = ["superb", "an awful film", "the film"]


def test_triton_client_sees_server_and_model(server: Server) -> None:
    client = triton.InferenceServerClient(f"127.0.0.1:{server.port}")
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("tiny")
    assert not client.is_model_ready("nobody")
    metadata = client.get_model_metadata("tiny")
    assert client.is_model_ready("tiny", metadata["versions"][0])
    assert client.get_server_metadata()["name"] == "hardmax"
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    assert metadata["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    assert [each["name"] for each in metadata["outputs"]] == [
        *("label", "score", "logit", "undecided", "leaders"),
    ]
    client.close()


@pytest.mark.parametrize("sent_binary", [True, False])
@pytest.mark.parametrize("wanted_binary", [True, False])
def test_triton_client_gets_the_answers_of_classify(
    server: Server, client: httpx.Client, sent_binary: bool, wanted_binary: bool
) -> None:
    plain = client.post("/classify", json={"input": TEXTS, "explain": "none"}).json()["data"]
    tensor = triton.InferInput("text", [len(TEXTS)], "BYTES")
    tensor.set_data_from_numpy(np.array(TEXTS, dtype=object), binary_data=sent_binary)
    names = ("label", "score", "logit")
    wanted = [triton.InferRequestedOutput(name, binary_data=wanted_binary) for name in names]
    asked = triton.InferenceServerClient(f"127.0.0.1:{server.port}")
    result = asked.infer("tiny", [tensor], outputs=wanted, request_id="me")
    asked.close()
    labels = [each.decode() if isinstance(each, bytes) else each for each in result.as_numpy("label")]
    assert labels == [each["label"] for each in plain] == ["positive", "negative", "positive"]
    assert result.as_numpy("logit").tolist() == pytest.approx([each["logit"] for each in plain], abs=1e-5)
    assert result.as_numpy("score").tolist() == pytest.approx([each["score"] for each in plain], abs=1e-5)
    assert result.get_response()["id"] == "me"


def test_triton_client_hears_reasons_and_that_a_verdict_is_undecided(
    server: Server, client: httpx.Client
) -> None:
    texts = ["superb", "zzkq"]
    plain = client.post("/classify", json={"input": texts}).json()["data"]
    tensor = triton.InferInput("text", [2], "BYTES")
    tensor.set_data_from_numpy(np.array(texts, dtype=object))
    wanted = [triton.InferRequestedOutput(name) for name in ("undecided", "leaders", "label")]
    asked = triton.InferenceServerClient(f"127.0.0.1:{server.port}")
    told = asked.infer("tiny", [tensor], outputs=wanted)
    as_label = asked.infer("tiny", [tensor], outputs=wanted, query_params={"undecided": "label"})
    asked.close()
    assert told.as_numpy("undecided").tolist() == [b"", b"nothing known"]
    assert [json.loads(each) for each in told.as_numpy("leaders")] == [each["leaders"] for each in plain]
    assert told.as_numpy("label").tolist() == [each["label"].encode() for each in plain]
    assert as_label.as_numpy("label").tolist() == [b"positive", b"neutral"]


def test_triton_client_gets_all_outputs_if_it_names_none(server: Server) -> None:
    tensor = triton.InferInput("text", [2, 1], "BYTES")
    tensor.set_data_from_numpy(np.array([["superb"], ["awful"]], dtype=object))
    asked = triton.InferenceServerClient(f"127.0.0.1:{server.port}")
    result = asked.infer("tiny", [tensor])
    assert result.as_numpy("label").tolist() == [[b"positive"], [b"negative"]]
    with pytest.raises(triton.InferenceServerException, match="no model"):
        asked.infer("nobody", [tensor])
    asked.close()


def body(**changes: Any) -> dict[str, Any]:
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["superb"]}
    return {"inputs": [tensor | changes]}


@pytest.mark.parametrize(
    ("request_body", "status"),
    [
        ({"inputs": []}, 422),
        ({}, 422),
        (body(name="image"), 422),
        (body(datatype="FP32"), 422),
        (body(shape=[2]), 422),
        (body(shape=[-1]), 422),
        (body(shape=[9], data=["x"] * 9), 413),
        (body(shape=[0], data=[]), 413),
        (body(data=[1]), 422),
        (body(data=[""]), 422),
        (body(data=None), 422),
        ({**body(), "outputs": [{"name": "mood"}]}, 422),
        (body(parameters={"binary_data_size": 7}), 400),
    ],
)
def test_infer_refuses_in_the_protocols_shape(client: httpx.Client, request_body: Any, status: int) -> None:
    answer = client.post("/v2/models/tiny/infer", json=request_body)
    assert answer.status_code == status
    assert list(answer.json()) == ["error"]


@pytest.mark.parametrize(
    ("length", "content"),
    [("x", b"{}"), ("99999", b"{}"), ("-1", b"{}"), (None, b"{}")],
)
def test_infer_refuses_binary_bodies_that_lie(
    client: httpx.Client, length: str | None, content: bytes
) -> None:
    headers = {"content-type": "application/octet-stream"}
    if length is not None:
        headers["inference-header-content-length"] = length
    answer = client.post("/v2/models/tiny/infer", content=content, headers=headers)
    assert (answer.status_code, list(answer.json())) == (400, ["error"])


@pytest.mark.parametrize(
    "tensor", [b"\x01\x00", b"\x09\x00\x00\x00good", b"\x02\x00\x00\x00\xff\xfe", b"\xff\xff\xff\xff"]
)
def test_infer_refuses_broken_bytes_tensors(client: httpx.Client, tensor: bytes) -> None:
    head = body(parameters={"binary_data_size": len(tensor)})
    del head["inputs"][0]["data"]
    text = json.dumps(head).encode()
    answer = client.post(
        "/v2/models/tiny/infer", content=text + tensor,
        headers={"inference-header-content-length": str(len(text)), "content-type": BINARY},
    )  # fmt: skip
    assert (answer.status_code, list(answer.json())) == (400, ["error"])


def test_models_of_the_protocol_that_are_none_are_refused(client: httpx.Client) -> None:
    for path in ("/v2/models/nobody", "/v2/models/nobody/ready", "/v2/models/tiny/versions/9", "/v2/x"):
        answer = client.get(path)
        assert (answer.status_code, list(answer.json())) == (404, ["error"])
