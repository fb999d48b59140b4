"""The Open Inference Protocol, driven by an unmodified Triton client and by hand."""

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
def triton_client(server: Server) -> Iterator[Any]:
    client = triton.InferenceServerClient(f"127.0.0.1:{server.port}")
    yield client
    client.close()


def tensor_of(texts: list[Any], **options: Any) -> Any:
    array = np.array(texts, dtype=object)
    tensor = triton.InferInput("text", array.shape, "BYTES")
    tensor.set_data_from_numpy(array, **options)
    return tensor


def test_triton_client_sees_server_and_model(triton_client: Any) -> None:
    assert triton_client.is_server_live()
    assert triton_client.is_server_ready()
    assert triton_client.is_model_ready("tiny")
    assert not triton_client.is_model_ready("nobody")
    metadata = triton_client.get_model_metadata("tiny")
    assert triton_client.is_model_ready("tiny", metadata["versions"][0])
    assert triton_client.get_server_metadata()["name"] == "hardmax"
    assert triton_client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    assert metadata["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    outputs = [output["name"] for output in metadata["outputs"]]
    assert outputs == ["label", "score", "logit", "abstain_reason", "leaders"]


@pytest.mark.parametrize("sent_binary", [True, False])
@pytest.mark.parametrize("wanted_binary", [True, False])
def test_triton_client_gets_the_answers_of_classify(
    triton_client: Any, client: httpx.Client, sent_binary: bool, wanted_binary: bool
) -> None:
    answers = client.post("/classify", json={"input": TEXTS, "explain": "none"}).json()["data"]
    names = ("label", "score", "logit")
    wanted = [triton.InferRequestedOutput(name, binary_data=wanted_binary) for name in names]
    tensor = tensor_of(TEXTS, binary_data=sent_binary)
    result = triton_client.infer("tiny", [tensor], outputs=wanted, request_id="me")
    labels = [label.decode() if isinstance(label, bytes) else label for label in result.as_numpy("label")]
    assert labels == [answer["label"] for answer in answers] == ["positive", "negative", "positive"]
    for name in ("logit", "score"):
        assert result.as_numpy(name).tolist() == pytest.approx([answer[name] for answer in answers], abs=1e-5)
    assert result.get_response()["id"] == "me"


MALFORMED = (b"\x01\x00", b"\x09\x00\x00\x00good", b"\x02\x00\x00\x00\xff\xfe", b"\xff\xff\xff\xff")


@pytest.mark.parametrize(
    ("content", "length_header"),
    [
        (b"{}", {"inference-header-content-length": "-1"}),
        *map(binary_tensor, MALFORMED),
    ],
)
def test_infer_refuses_malformed_binary_bodies(
    client: httpx.Client, content: bytes, length_header: dict[str, str]
) -> None:
    headers = {"content-type": "application/octet-stream", **length_header}
    response = client.post("/v2/models/tiny/infer", content=content, headers=headers)
    assert (response.status_code, list(response.json())) == (400, ["error"])


@pytest.mark.parametrize("kind", ["application/json", "application/octet-stream"])
def test_json_part_has_a_bound_of_its_own(client: httpx.Client, kind: str) -> None:
    """Sent as a binary tensor it would otherwise block the service without a bound."""
    body = b'{"inputs": []' + b" " * 4_000_000 + b"}"
    headers = {"content-type": kind, "inference-header-content-length": str(len(body))}
    response = client.post("/v2/models/tiny/infer", content=body, headers=headers)
    assert response.status_code == 413
    assert "may have 4 MB" in response.json()["error"]
