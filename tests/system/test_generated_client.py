"""A client generated from the OpenAPI document calls every route of a real server."""

import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, get_args

import pytest
from server import Server, serving

pytestmark = pytest.mark.system
PACKAGE = "client_of_ours"
TEXT = "a superb film"
TENSOR = {"name": "text", "datatype": "BYTES", "shape": [1], "data": [TEXT]}
CLOUD = {"points": [[1, 0.2], [0.9, 0.8], [-0.6, 1], [0.2, -1]]}
OPERATIONS: dict[str, dict[str, Any]] = {  # operation id -> arguments
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
    **{name: {} for name in ("statistics", "repository_index")},
    **{name: {} for name in ("health", "ready", "info", "models", "metrics")},
    **{name: {} for name in ("server_metadata", "server_live", "server_ready")},
}


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[Server]:
    with serving(models, default_model="tiny") as server:
        yield server


@pytest.fixture(scope="module")
def generated(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the generated package, which can be imported."""
    folder = tmp_path_factory.mktemp("generated")
    (folder / "config.yaml").write_text("post_hooks: []\n")  # no formatting
    source = ["--url", f"{server.url}/openapi.json", "--config", folder / "config.yaml"]
    command = [sys.executable, "-m", "openapi_python_client", "generate", *source]
    options = ["--meta", "none", "--output-path", folder / PACKAGE]
    result = subprocess.run([*command, *options], capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stdout + result.stderr
    sys.path.insert(0, str(folder))
    yield folder / PACKAGE
    sys.path.remove(str(folder))


def call(server: Server, package: Path, operation: str) -> Any:
    """Call an operation with the generated client, and return the parsed response."""
    (module_path,) = package.glob(f"api/*/{operation}.py")
    module = importlib.import_module(".".join((PACKAGE, "api", module_path.parent.name, operation)))
    client = importlib.import_module(f"{PACKAGE}.client").AuthenticatedClient(server.url, token="unused")
    arguments = dict(OPERATIONS[operation])
    if "version" in arguments:
        arguments["version"] = call(server, package, "model_metadata").versions[0]
    if "body" in arguments:
        kind = inspect.get_annotations(module.sync_detailed)["body"]  # JSON, or JSON and a file
        model = next(type_ for type_ in get_args(kind) or (kind,) if hasattr(type_, "from_dict"))
        arguments["body"] = model.from_dict(arguments["body"])
    with client:
        response = module.sync_detailed(client=client, **arguments)
    assert response.status_code == HTTPStatus.OK, response.content
    return response.parsed


def test_generated_client_parses_every_response(server: Server, generated: Path) -> None:
    assert {path.stem for path in generated.glob("api/*/*.py")} - {"__init__"} == set(OPERATIONS)
    answers = {operation: call(server, generated, operation) for operation in OPERATIONS}
    texts = answers["classify"].data
    assert [text.label for text in texts] == ["positive", "negative"]
    parts = [texts[0].bias, *(cluster.contribution for cluster in texts[0].clusters)]
    assert texts[0].logit == pytest.approx(sum(parts))
    assert answers["dynamics"].status == "certified"
    assert len(answers["dynamics"].limits) == answers["dynamics"].n == 4
    assert answers["dynamics"].additional_properties["d"] == 2
    assert answers["control"].feasible is True
    assert {0, 2} <= {leader.index for leader in answers["control"].dynamics.leaders}
    assert [item.label for item in answers["classify_sequences"].data] == ["storm"]
    assert answers["endpoint"][0][0].label == answers["endpoint_of_model"][0][0].label == "positive"
    assert answers["predict"][0].label == "positive"
    for name in ("infer", "version_infer"):
        outputs = {output.name for output in answers[name].outputs}
        assert outputs == {"label", "score", "logit", "abstain_reason"}
    assert answers["health"].status == "ok"
    assert answers["ready"].status == "ready"
    assert {card.name for card in answers["models"].models} == {"tiny", "reader", "dynamics", "scenes"}
    assert answers["model"].name == "tiny"
    assert answers["info"].limits.max_layers > 0
    assert answers["server_metadata"].name == "hardmax"
