"""Fuzzes the running service with schemathesis: valid and invalid requests, drawn from its OpenAPI document.

A response must have a documented status below 500. Every second request that names a model or a version names
an existing one, which chance would never do. A request is sent in one piece.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from raw_http import connect, read_response


def fuzz_operations(
    url: str, cases: int, failures: list[str], *, repeatable: bool
) -> Iterator[tuple[str, Counter[int]]]:
    """Yield each operation of the document with the statuses of `cases` requests; append failures."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    names = _names(url)
    for result in schema.get_all_operations():
        operation = result.ok()
        yield operation.label, _fuzz(operation, names, cases, failures, repeatable)


def _names(url: str) -> dict[str, str]:
    """Return a served model of each kind, and a version of the text classifier."""
    models = requests.get(f"{url}/models", timeout=20).json()["models"]
    names = {model["kind"]: model["name"] for model in models}
    versions = requests.get(f"{url}/v2/models/{names['text-classification']}", timeout=20).json()["versions"]
    return {**names, "version": versions[0]}


def _fuzz(
    operation: Any, names: dict[str, str], cases: int, failures: list[str], repeatable: bool
) -> Counter[int]:
    statuses: Counter[int] = Counter()
    documented = set(operation.definition.raw["responses"]) | {"405"}

    @given(case=operation.as_strategy())
    @settings(
        max_examples=cases, deadline=None, database=None, derandomize=repeatable,
        suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate],
    )  # fmt: skip
    def check(case: Any) -> None:
        if statuses.total() % 2:
            _insert_names(names, case)
        head, _ = _send(requests.Request(**case.as_transport_kwargs()).prepare())
        status = int(head[9:12])
        statuses[status] += 1
        if status >= 500 or str(status) not in documented:
            failures.append(f"{operation.label}: {status} for {case.as_curl_command()}"[:500])

    check()
    return statuses


def _insert_names(names: dict[str, str], case: Any) -> None:
    """Replace the names of models and versions in a case by existing ones."""
    model = names.get("sequences" if "/sequences" in case.path else "text-classification")
    for parameter, name in {"name": model, "version": names["version"]}.items():
        if parameter in case.path_parameters:
            case.path_parameters[parameter] = name
    if model and isinstance(case.body, dict) and "model" in case.body:
        case.body["model"] = model


def _send(request: requests.PreparedRequest) -> tuple[bytes, bytes]:
    """Send a request in one piece on a new connection; return the head and the body of the response."""
    body = request.body or b""
    lines = [f"{request.method} {request.path_url} HTTP/1.1", "host: 127.0.0.1"]
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    with connect(urlsplit(request.url).port) as connection:
        connection.sendall(head + (body.encode() if isinstance(body, str) else body))
        return read_response(connection)
