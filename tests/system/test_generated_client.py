"""A client generated from the OpenAPI document, asked for every route of a real server."""

import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, get_args

import pytest
from bundles import write_models
from server import Server, serving

pytestmark = pytest.mark.system
PACKAGE = "client_of_ours"
TEXT = "a superb film"
TENSOR = {"name": "text", "datatype": "BYTES", "shape": [1], "data": [TEXT]}
CLOUD = {"points": [[1, 0.2], [0.9, 0.8], [-0.6, 1], [0.2, -1]]}
ASKED: dict[str, dict[str, Any]] = {  # every operation and what it is asked
    "classify": {"body": {"input": [TEXT, "awful"], "explain": "full"}},
    "dynamics": {"body": {**CLOUD, "alpha": 0.5, "include": ["assignment", "limits"]}},
    "control": {"body": {**CLOUD, "leaders": [0, 2]}},
    "classify_sequences": {"body": {"model": "scenes", "sequences": [[[0, 0], [5, 5]]]}},
    "endpoint": {"body": {"inputs": TEXT}},
    "endpoint_of_model": {"name": "tiny", "body": {"inputs": TEXT}},
    "predict": {"body": {"inputs": TEXT}},
    "infer": {"name": "tiny", "body": {"inputs": [TENSOR]}},
    "version_infer": {"name": "tiny", "version": None, "body": {"inputs": [TENSOR]}},
    "model": {"name": "tiny"},
    "model_config": {"name": "tiny"},
    "model_metadata": {"name": "tiny"},
    "model_ready": {"name": "tiny"},
    "version_metadata": {"name": "tiny", "version": None},
    "version_ready": {"name": "tiny", "version": None},
    "vllm": {"body": {"input": TEXT}},
    **{name: {} for name in ("v1_models", "statistics", "repository_index")},
    **{name: {} for name in ("health", "ready", "info", "models", "metrics")},
    **{name: {} for name in ("server_metadata", "server_live", "server_ready")},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(write_models(tmp_path_factory.mktemp("models")), default_model="tiny") as server:
        yield server


@pytest.fixture(scope="module")
def generated(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The package, importable."""
    folder = tmp_path_factory.mktemp("generated")
    (folder / "config.yaml").write_text("post_hooks: []\n")  # it is not to be formatted, only used
    source = ["--url", f"{server.url}/openapi.json", "--config", folder / "config.yaml"]
    command = [sys.executable, "-m", "openapi_python_client", "generate", *source]
    options = ["--meta", "none", "--output-path", folder / PACKAGE]
    ran = subprocess.run([*command, *options], capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    sys.path.insert(0, str(folder))
    yield folder / PACKAGE
    sys.path.remove(str(folder))


def ask(server: Server, package: Path, operation: str) -> Any:
    """One operation by the generated client: the typed answer."""
    (place,) = package.glob(f"api/*/{operation}.py")
    module = importlib.import_module(".".join((PACKAGE, "api", place.parent.name, operation)))
    client = importlib.import_module(f"{PACKAGE}.client").AuthenticatedClient(server.url, token="unused")
    arguments = dict(ASKED[operation])
    if "version" in arguments:
        arguments["version"] = ask(server, package, "model_metadata").versions[0]
    if "body" in arguments:
        kind = inspect.get_annotations(module.sync_detailed)["body"]  # JSON, or JSON and a file
        model = next(each for each in get_args(kind) or (kind,) if hasattr(each, "from_dict"))
        arguments["body"] = model.from_dict(arguments["body"])
    with client:
        answer = module.sync_detailed(client=client, **arguments)
    assert answer.status_code == HTTPStatus.OK, answer.content
    return answer.parsed


def test_generated_client_has_every_operation(server: Server, generated: Path) -> None:
    with server.client() as client:
        document = client.get("/openapi.json").json()
    operations = {each["operationId"] for route in document["paths"].values() for each in route.values()}
    assert operations == set(ASKED)
    assert {path.stem for path in generated.glob("api/*/*.py")} - {"__init__"} == operations


def test_generated_client_reads_what_every_operation_answers(server: Server, generated: Path) -> None:
    found = {operation: ask(server, generated, operation) for operation in ASKED}
    texts = found["classify"].data
    assert [text.label for text in texts] == ["positive", "negative"]
    parts = [texts[0].bias, *(each.contribution for each in texts[0].clusters)]
    assert texts[0].logit == pytest.approx(sum(parts))
    assert found["dynamics"].status == "certified"
    assert len(found["dynamics"].limits) == found["dynamics"].n == 4
    assert found["dynamics"].additional_properties["d"] == 2
    assert found["control"].feasible is True
    assert {0, 2} <= {leader.index for leader in found["control"].dynamics.leaders}
    assert [each.label for each in found["classify_sequences"].data] == ["storm"]
    assert found["endpoint"][0][0].label == found["endpoint_of_model"][0][0].label == "positive"
    assert found["predict"][0].label == "positive"
    for name in ("infer", "version_infer"):
        assert {each.name for each in found[name].outputs} == {"label", "score", "logit", "abstain_reason"}
    assert found["health"].status == "ok"
    assert found["ready"].status == "ready"
    assert {card.name for card in found["models"].models} == {"tiny", "reader", "dynamics", "scenes"}
    assert found["model"].name == "tiny"
    assert found["info"].limits.max_layers > 0
    assert found["server_metadata"].name == "hardmax"
