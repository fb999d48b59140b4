"""Sends the requests of `exchanges/*.yaml`, and reduces the responses to what the contract fixes."""

import base64
import io
import json
import math
import re
import struct
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import yaml
from fastapi.testclient import TestClient

from tests.contract.application import MODEL

FOLDER = Path(__file__).parent / "exchanges"
METHODS = ("get", "post", "put", "delete", "head", "options")
HEADERS = (
    "retry-after",
    "x-model-digest",
    "allow",
    "www-authenticate",
    "inference-header-content-length",
    "access-control-allow-origin",
    "content-security-policy",
)
CHANGING = {  # values that no contract fixes
    "id": "<id>",
    "request_id": "<id>",
    "created": "<time>",
    "loaded_at": "<time>",
    "model_version": "<digest>",
    "digest": "<digest>",
    "sha256": "<digest>",
    "model_sha256": "<digest>",
    "figures": "<figures>",
    "data": "<data>",
    "version": "<version>",
    "versions": "<versions>",
}
CARD_ONLY = {"figures", "data"}  # of a model card: other responses have fields of these names too
RELATIVE, ABSOLUTE = 1e-6, 1e-9  # tolerances of numbers; answers/*.csv is compared exactly


def load_yaml(path: Path) -> dict[str, Any]:
    """Read one file of exchanges."""
    document: dict[str, Any] = yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return document


def placeholder_names(client: TestClient) -> dict[str, str]:
    """Return the values of `${name}` in requests."""
    return {"model": MODEL, "version": client.get(f"/v2/models/{MODEL}").json()["versions"][-1]}


def fill(value: Any, names: dict[str, str]) -> Any:
    """Replace `${name}` in every string."""
    if isinstance(value, str):
        return re.sub(r"\$\{(\w+)\}", lambda match: names[match[1]], value)
    if isinstance(value, list):
        return [fill(item, names) for item in value]
    if isinstance(value, dict):
        return {fill(name, names): fill(item, names) for name, item in value.items()}
    return value


def send(client: TestClient, exchange: dict[str, Any]) -> dict[str, Any]:
    """Send the request and return its answer, reduced to what the contract fixes."""
    client.cookies.clear()
    method = next(name for name in METHODS if name in exchange)
    headers, options = dict(exchange.get("headers", {})), {}
    if "json" in exchange:
        options["json"] = exchange["json"]
    elif "text" in exchange:
        options["content"] = exchange["text"].encode()
        headers = {"content-type": "application/json"} | headers
    elif "json_repeat" in exchange:  # a long text: {"input": "word word …"}
        word, count = exchange["json_repeat"]
        options["json"] = {"input": word * count, **exchange.get("also", {})}
    elif "text_digits" in exchange:  # a cloud with a very large integer
        options["content"] = b'{"points": [[' + b"7" * exchange["text_digits"] + b", 1]]}"
        headers = {"content-type": "application/json"} | headers
    elif "base64" in exchange:
        options["content"] = base64.b64decode(exchange["base64"])
    elif "npy" in exchange:
        body = io.BytesIO()
        np.save(body, np.array(exchange["npy"], exchange.get("dtype", "float64")))
        options["content"] = body.getvalue()
        headers = {"content-type": "application/x-npy"} | headers
    elif "tensor" in exchange:
        options["content"], tensor_headers = binary_tensor(exchange["tensor"], exchange.get("fields", {}))
        headers = tensor_headers | headers
    return reduce(client.request(method, exchange[method], headers=headers, **options), exchange)


def binary_tensor(texts: list[str], fields: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
    """Return a body of the binary tensor extension, and its headers."""
    tensor = b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in texts)
    tensor_info = {"name": "text", "datatype": "BYTES", "shape": [len(texts)]}
    tensor_info |= {"parameters": {"binary_data_size": len(tensor)}}
    head = json.dumps({"inputs": [tensor_info], **fields}).encode()
    headers = {"content-type": "application/octet-stream", "inference-header-content-length": str(len(head))}
    return head + tensor, headers


def reduce(response: httpx.Response, exchange: dict[str, Any]) -> dict[str, Any]:
    """Return what the contract fixes of a response."""
    assert response.headers["x-request-id"]
    content_type = response.headers.get("content-type", "")
    answer: dict[str, Any] = {"status": response.status_code}
    if content_type:
        answer["type"] = content_type
    headers = {name: response.headers[name] for name in HEADERS if name in response.headers}
    headers = {name: re.sub(r"\b[0-9a-f]{64}\b", "<digest>", value) for name, value in headers.items()}
    if headers:
        answer["headers"] = headers
    if exchange.get("answer_is") == "document":  # long, and described elsewhere
        answer["has"] = bool(response.content)
    elif not response.content:
        pass
    elif content_type == "application/json":
        answer["json"] = normalize(response.json())
    elif content_type == "application/x-ndjson":
        lines = [normalize(json.loads(line)) for line in response.text.splitlines()]
        answer["progress"] = sorted({name for line in lines[:-1] for name in line["progress"]})
        answer["last line"] = lines[-1]
    elif content_type == "application/octet-stream":
        length = int(response.headers["inference-header-content-length"])
        answer["json"] = normalize(json.loads(response.content[:length]))
        answer["tensors"] = base64.b64encode(response.content[length:]).decode()
    elif "openmetrics" in content_type or content_type.startswith("text/plain"):
        families = re.findall(r"^# TYPE (hardmax_\S+ \S+)$", response.text, re.MULTILINE)
        answer["families"] = sorted(item for item in families if "_created " not in item)
    elif response.content:
        answer["text"] = response.text
    return answer


def normalize(value: Any) -> Any:
    """Replace what changes from run to run, and the model's name by `${model}`."""
    if isinstance(value, dict):
        is_card = "kind" in value and "description" in value
        return {name: normalize_field(name, item, is_card) for name, item in value.items()}
    if isinstance(value, list):
        return [normalize(item) for item in value]
    return "${model}" if value == MODEL else value


def normalize_field(name: str, value: Any, is_card: bool) -> Any:
    """Normalize the value of a field."""
    if name == "model_version" and not isinstance(value, str):  # a number, but in the protocol of /v2
        return value
    if name in CHANGING and not isinstance(value, int) and (is_card or name not in CARD_ONLY):
        return CHANGING[name]
    if name == "created":
        return "<time>"
    if name == "weight" and re.fullmatch(r"[1-9]\d*", str(value)):
        return "<positive integer>"  # of a certificate, which is not unique and depends on rounding
    return value if name == "kind" else normalize(value)


def answers_match(expected: Any, actual: Any) -> bool:
    """Whether two answers are equal: numbers nearly, all else exactly; messages only need to exist."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        return expected.keys() == actual.keys() and all(
            (isinstance(actual[name], str) and bool(actual[name]))
            if name == "message"
            else answers_match(expected[name], actual[name])
            for name in expected
        )
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(answers_match, expected, actual))
    if isinstance(expected, float) and isinstance(actual, float):
        return math.isclose(expected, actual, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return type(expected) is type(actual) and expected == actual
