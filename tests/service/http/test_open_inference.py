"""The Open Inference Protocol, driven by an unmodified Triton client and by hand."""

import json
import warnings
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from raw_http import binary_tensor
from server import Server

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    triton = pytest.importorskip("tritonclient.http")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
TEXTS = ["superb", "an awful film", "the film"]


@pytest.fixture
def asked(server: Server) -> Iterator[Any]:
    client = triton.InferenceServerClient(f"127.0.0.1:{server.port}")
    yield client
    client.close()


def tensor_of(texts: list[Any], **options: Any) -> Any:
    given = np.array(texts, dtype=object)
    tensor = triton.InferInput("text", given.shape, "BYTES")
    tensor.set_data_from_numpy(given, **options)
    return tensor


def test_triton_client_sees_server_and_model(asked: Any) -> None:
    assert asked.is_server_live()
    assert asked.is_server_ready()
    assert asked.is_model_ready("tiny")
    assert not asked.is_model_ready("nobody")
    metadata = asked.get_model_metadata("tiny")
    assert asked.is_model_ready("tiny", metadata["versions"][0])
    assert asked.get_server_metadata()["name"] == "hardmax"
    assert asked.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    assert metadata["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    outputs = [each["name"] for each in metadata["outputs"]]
    assert outputs == ["label", "score", "logit", "abstain_reason", "leaders"]


@pytest.mark.parametrize("sent_binary", [True, False])
@pytest.mark.parametrize("wanted_binary", [True, False])
def test_triton_client_gets_the_answers_of_classify(
    asked: Any, client: httpx.Client, sent_binary: bool, wanted_binary: bool
) -> None:
    plain = client.post("/classify", json={"input": TEXTS, "explain": "none"}).json()["data"]
    names = ("label", "score", "logit")
    wanted = [triton.InferRequestedOutput(name, binary_data=wanted_binary) for name in names]
    tensor = tensor_of(TEXTS, binary_data=sent_binary)
    result = asked.infer("tiny", [tensor], outputs=wanted, request_id="me")
    labels = [each.decode() if isinstance(each, bytes) else each for each in result.as_numpy("label")]
    assert labels == [each["label"] for each in plain] == ["positive", "negative", "positive"]
    for name in ("logit", "score"):
        assert result.as_numpy(name).tolist() == pytest.approx([each[name] for each in plain], abs=1e-5)
    assert result.get_response()["id"] == "me"


def test_triton_client_hears_reasons_and_that_a_verdict_is_undecided(
    asked: Any, client: httpx.Client
) -> None:
    texts = ["superb", "zzkq"]
    plain = client.post("/classify", json={"input": texts}).json()["data"]
    wanted = [triton.InferRequestedOutput(name) for name in ("abstain_reason", "leaders", "label")]
    told = asked.infer("tiny", [tensor_of(texts)], outputs=wanted)
    as_label = asked.infer("tiny", [tensor_of(texts)], outputs=wanted, query_params={"abstain": "neutral"})
    assert told.as_numpy("abstain_reason").tolist() == [b"", b"no_known_words"]
    assert [json.loads(each) for each in told.as_numpy("leaders")] == [each["leaders"] for each in plain]
    assert told.as_numpy("label").tolist() == [each["label"].encode() for each in plain]
    assert as_label.as_numpy("label").tolist() == [b"positive", b"neutral"]


def test_triton_client_gets_all_outputs_if_it_names_none(asked: Any) -> None:
    tensor = tensor_of([["superb"], ["awful"]])
    result = asked.infer("tiny", [tensor])
    assert result.as_numpy("label").tolist() == [[b"positive"], [b"negative"]]
    with pytest.raises(triton.InferenceServerException, match="no model"):
        asked.infer("nobody", [tensor])


def body(**changes: Any) -> dict[str, Any]:
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["superb"]}
    return {"inputs": [tensor | changes]}


@pytest.mark.parametrize(
    ("request_body", "status"),
    [
        (body(shape=[-1]), 422),
        (body(data=[""]), 422),
        (body(data=None), 422),
        (body(parameters={"binary_data_size": 7}), 400),
    ],
)
def test_infer_refuses_in_the_protocols_shape(client: httpx.Client, request_body: Any, status: int) -> None:
    answer = client.post("/v2/models/tiny/infer", json=request_body)
    assert answer.status_code == status
    assert list(answer.json()) == ["error"]


LYING = (b"\x01\x00", b"\x09\x00\x00\x00good", b"\x02\x00\x00\x00\xff\xfe", b"\xff\xff\xff\xff")


@pytest.mark.parametrize(
    ("content", "length"),
    [
        *((b"{}", {"inference-header-content-length": length}) for length in ("x", "-1")),
        *map(binary_tensor, LYING),
    ],
)
def test_infer_refuses_binary_bodies_that_lie(
    client: httpx.Client, content: bytes, length: dict[str, str]
) -> None:
    headers = {"content-type": "application/octet-stream", **length}
    answer = client.post("/v2/models/tiny/infer", content=content, headers=headers)
    assert (answer.status_code, list(answer.json())) == (400, ["error"])


@pytest.mark.parametrize("kind", ["application/json", "application/octet-stream"])
def test_json_part_has_a_bound_of_its_own(client: httpx.Client, kind: str) -> None:
    """Under the type of a binary tensor it would hold up the service as long as it likes."""
    body = b'{"inputs": []' + b" " * 4_000_000 + b"}"
    headers = {"content-type": kind, "inference-header-content-length": str(len(body))}
    refused = client.post("/v2/models/tiny/infer", content=body, headers=headers)
    assert refused.status_code == 413
    assert "may have 4 MB" in refused.json()["error"]
