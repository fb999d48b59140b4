"""One request of `exchanges/*.yaml`: how it is sent, and what of its answer is part of the contract."""

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

from tests.contract.served import MODEL

FOLDER = Path(__file__).parent / "exchanges"
METHODS = ("get", "post", "put", "delete", "head", "options")
HEADERS = (
    "retry-after",
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
CARD_ONLY = {"figures", "data"}  # of a model's card: other answers have these names too
RELATIVE, ABSOLUTE = 1e-6, 1e-9  # how closely numbers are compared; answers/*.csv compares bits


def load(path: Path) -> dict[str, Any]:
    """Read one file of exchanges."""
    document: dict[str, Any] = yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return document


def fill(value: Any, names: dict[str, str]) -> Any:
    """Replace `${name}` in every string."""
    if isinstance(value, str):
        return re.sub(r"\$\{(\w+)\}", lambda found: names[found[1]], value)
    if isinstance(value, list):
        return [fill(each, names) for each in value]
    if isinstance(value, dict):
        return {fill(name, names): fill(each, names) for name, each in value.items()}
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
        options["content"], extra = binary_tensor(exchange["tensor"], exchange.get("fields", {}))
        headers = extra | headers
    return reduce(client.request(method, exchange[method], headers=headers, **options), exchange)


def binary_tensor(texts: list[str], fields: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
    """Return a body of the binary tensor extension, and its headers."""
    tensor = b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in texts)
    declared = {"name": "text", "datatype": "BYTES", "shape": [len(texts)]}
    declared |= {"parameters": {"binary_data_size": len(tensor)}}
    head = json.dumps({"inputs": [declared], **fields}).encode()
    kind = {"content-type": "application/octet-stream", "inference-header-content-length": str(len(head))}
    return head + tensor, kind


def reduce(response: httpx.Response, exchange: dict[str, Any]) -> dict[str, Any]:
    """Return what the contract fixes of a response."""
    assert response.headers["x-request-id"]
    kind = response.headers.get("content-type", "")
    answer: dict[str, Any] = {"status": response.status_code}
    if kind:
        answer["type"] = kind
    headers = {name: response.headers[name] for name in HEADERS if name in response.headers}
    if headers:
        answer["headers"] = headers
    if exchange.get("answer_is") == "document":  # long, and described elsewhere
        answer["has"] = bool(response.content)
    elif not response.content:
        pass
    elif kind == "application/json":
        answer["json"] = normalize(response.json())
    elif kind == "application/x-ndjson":
        lines = [normalize(json.loads(line)) for line in response.text.splitlines()]
        answer["progress"] = sorted({name for line in lines[:-1] for name in line["progress"]})
        answer["last line"] = lines[-1]
    elif kind == "application/x-npz":
        arrays = np.load(io.BytesIO(response.content), allow_pickle=False)
        answer["arrays"] = {name: arrays[name].tolist() for name in sorted(arrays)}
        answer["arrays"]["summary"] = normalize(json.loads(answer["arrays"]["summary"]))
    elif kind == "application/octet-stream":
        length = int(response.headers["inference-header-content-length"])
        answer["json"] = normalize(json.loads(response.content[:length]))
        answer["tensors"] = base64.b64encode(response.content[length:]).decode()
    elif "openmetrics" in kind or kind.startswith("text/plain"):
        families = re.findall(r"^# TYPE (hardmax_\S+ \S+)$", response.text, re.MULTILINE)
        answer["families"] = sorted(each for each in families if "_created " not in each)
    elif response.content:
        answer["text"] = response.text
    return answer


def normalize(value: Any) -> Any:
    """Replace what changes from run to run, and the model's name by `${model}`."""
    if isinstance(value, dict):
        card = "kind" in value and "description" in value
        return {
            name: CHANGING[name]
            if name in CHANGING and not isinstance(each, int) and (card or name not in CARD_ONLY)
            else "<time>"
            if name == "created"
            else "<positive integer>"  # of a certificate: many prove the same, and processors round otherwise
            if name == "weight" and re.fullmatch(r"[1-9]\d*", str(each))
            else each
            if name == "kind"
            else normalize(each)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [normalize(each) for each in value]
    return "${model}" if value == MODEL else value


def same(expected: Any, found: Any) -> bool:
    """Whether two answers are alike: numbers nearly, all else exactly; messages only need to be there."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.keys() == found.keys() and all(
            (isinstance(found[name], str) and bool(found[name]))
            if name == "message"
            else same(expected[name], found[name])
            for name in expected
        )
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(same, expected, found))
    if isinstance(expected, float) and isinstance(found, float):
        return math.isclose(expected, found, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return type(expected) is type(found) and expected == found
