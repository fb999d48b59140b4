"""The service on a local Ray cluster: the deployment of deploy/ray/serve.yaml, and the job.

Run by `make test-ray`; skipped where Ray is not installed.
"""

import json
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from paths import ROOT
from server import eventually, run_python
from starlette.testclient import TestClient

from benchmarks.servers import free_port
from hardmax import Local
from service.app import create_app
from service.errors import InvalidInput, NotFound
from service.settings import Settings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray's dependencies warn about each other
    ray = pytest.importorskip("ray", reason="Ray is not installed (make test-ray)")
    import pyarrow as pa
    import pyarrow.parquet as pq
    from ray import serve
    from ray.serve.schema import ServeDeploySchema

    from hardmax.ray_data import Summary, classify_parquet

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]

CONFIG = yaml.safe_load((ROOT / "deploy/ray/serve.yaml").read_text())
LOCAL = partial(Local, Settings(intra_op_threads=1))
TEXTS = [
    "A superb film, warm and funny, with a wonderful cast.",
    "Dull, predictable and far too long: a waste of two hours.",
    "The first half is not good; the second is brilliant.",
    "I have seen it twice.",
]
CLOUD = {
    "points": [[1, 1], [0.5, -0.5], [-1, -1], [0.3, -0.2], [0.1, -0.2]],
    "alpha": 0.5,
    "include": ["limits"],
}


def shrink(config: dict[str, Any], port: int) -> dict[str, Any]:
    """Return the project's configuration for a small machine: two replicas, with room for a few requests."""
    (application,) = config["applications"]
    (deployment,) = application["deployments"]
    scaling = {**deployment["autoscaling_config"], "min_replicas": 2, "max_replicas": 2}
    small = {"autoscaling_config": scaling, "ray_actor_options": {"num_cpus": 1}}
    arguments = {**application["args"], "max_concurrent_requests": 4, "log_level": "warning"}
    return {
        **config,
        "http_options": {**config["http_options"], "host": "127.0.0.1", "port": port},
        "applications": [{**application, "args": arguments, "deployments": [{**deployment, **small}]}],
    }


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, object_store_memory=200 * 2**20)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def proxy(cluster: None) -> Iterator[httpx.Client]:
    port = free_port()
    config = ServeDeploySchema.model_validate(shrink(CONFIG, port))
    serve.start(
        http_options=config.http_options.model_dump(exclude={"num_cpus", "location"}, exclude_unset=True)
    )
    serve.context._get_global_client().deploy_apps(config)
    # Longer than Ray's default of a minute: each of its processes first imports hundreds of megabytes.
    eventually(lambda: serve.status().applications["hardmax"].status == "RUNNING", 200)
    limits = httpx.Limits(max_connections=100)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", limits=limits, timeout=60) as client:
        yield client
    serve.shutdown()


@pytest.fixture(scope="module")
def single_process() -> Iterator[TestClient]:
    """A client of the same service in one process, without Ray."""
    with TestClient(create_app(Settings(log_level="warning", intra_op_threads=1))) as client:
        yield client


def without_id(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    return {name: value for name, value in response.json().items() if name != "id"}


def test_configuration_has_wider_limits_than_the_service() -> None:
    (application,) = CONFIG["applications"]
    (deployment,) = application["deployments"]
    settings = Settings(**application["args"])
    assert settings.max_concurrent_requests < deployment["max_ongoing_requests"]
    assert deployment["autoscaling_config"]["target_ongoing_requests"] < settings.max_concurrent_requests
    assert CONFIG["http_options"]["request_timeout_s"] > settings.request_timeout_s
    assert deployment["graceful_shutdown_timeout_s"] > settings.shutdown_grace_s


@pytest.mark.parametrize(
    ("path", "body"), [("/classify", {"input": TEXTS, "explain": "full"}), ("/dynamics", CLOUD)]
)
def test_proxy_answers_as_the_single_process_does(
    proxy: httpx.Client, single_process: TestClient, path: str, body: dict[str, Any]
) -> None:
    assert without_id(proxy.post(path, json=body)) == without_id(single_process.post(path, json=body))


def test_proxy_passes_on_errors_and_request_ids(proxy: httpx.Client) -> None:
    response = proxy.post("/dynamics", json={"points": [[0, 0]]}, headers={"x-request-id": "mine"})
    assert response.status_code == 422
    assert response.json()["error"]["request_id"] == "mine"


@pytest.mark.parametrize("host", ["hardmax-serve-svc.default.svc.cluster.local:8000", "10.1.2.3"])
def test_names_of_the_cluster_are_answered(proxy: httpx.Client, host: str) -> None:
    """They were once answered 400, as by a server that listens on loopback."""
    response = proxy.post("/classify", json={"input": TEXTS[0]}, headers={"host": host})
    assert response.status_code == 200, response.text


def test_replica_logs_as_its_settings_say() -> None:
    """Under Ray requests were not logged, and `log_format` had no effect."""
    process = run_python(
        "import logging; from service.settings import Settings\n"
        "from service.ray_serve import create_replica\n"
        "from starlette.testclient import TestClient\n"
        "with TestClient(create_replica(Settings(host='0.0.0.0', log_format='json'))) as client:\n"
        "    client.get('/health', headers={'x-request-id': 'mine'})\n"
        "logging.shutdown()"
    )
    lines = [json.loads(line) for line in process.stderr.splitlines()]
    assert [line["request_id"] for line in lines if line["logger"] == "access"] == ["mine"], process.stderr


def test_replica_uses_the_threads_that_ray_set_aside(proxy: httpx.Client) -> None:
    assert proxy.get("/info").json()["threads"] == 1


def test_flood_is_answered_or_refused_with_retry_after(proxy: httpx.Client) -> None:
    body = {"input": [" ".join(TEXTS) * 5] * 32, "explain": "full"}
    with ThreadPoolExecutor(64) as pool:
        responses = list(pool.map(lambda _: proxy.post("/classify", json=body, timeout=180.0), range(128)))
    statuses = Counter(response.status_code for response in responses)
    assert set(statuses) == {200, 429}, statuses
    refused = next(response for response in responses if response.status_code == 429)
    assert refused.json()["error"]["type"] == "overloaded"
    assert int(refused.headers["retry-after"]) >= 1


def test_job_answers_every_row_as_the_single_process_does(
    cluster: None, single_process: TestClient, tmp_path: Path
) -> None:
    texts = [*(f"{text} {i}" for i in range(300) for text in TEXTS), "", None, "!"]
    rows = pa.table({"n": range(len(texts)), "text": texts, "label": ["theirs"] * len(texts)})
    pq.write_table(rows, tmp_path / "in.parquet")
    summary = classify_parquet(str(tmp_path / "in.parquet"), str(tmp_path / "out"), LOCAL)
    assert summary == Summary(texts=1203, refused=0)

    out = pq.read_table(tmp_path / "out").sort_by("n").to_pylist()
    assert [(row["text"], row["label"]) for row in out] == [(text, "theirs") for text in texts]
    assert {row["text"] for row in out if row["abstain_reason"] == "empty"} == {"", None}

    answers = [row for row in out if row["abstain_reason"] != "empty"]
    sample = answers[:: len(answers) // 100]
    body = {"input": [row["text"] for row in sample]}
    expected = without_id(single_process.post("/classify", json=body))["data"]
    results = [(row["hardmax_label"], row["score"], row["abstain_reason"]) for row in sample]
    assert results == [(item["label"], item["score"], item["abstain_reason"]) for item in expected]
    assert [row["leaders"] for row in sample] == [
        [
            f"{leader['word']} {leader['contribution']:+.2f}"
            for leader in item["leaders"]
            if abs(leader["contribution"]) >= 0.05
        ]
        for item in expected
    ]


def test_job_says_what_is_wrong_before_it_starts(cluster: None, tmp_path: Path) -> None:
    source = str(tmp_path / "in.parquet")
    pq.write_table(pa.table({"review": TEXTS}), source)
    with pytest.raises(InvalidInput, match="no column text; it has review"):
        classify_parquet(source, str(tmp_path / "out"), LOCAL)
    with pytest.raises(NotFound, match="no model 'nothing'"):
        classify_parquet(source, str(tmp_path / "out"), LOCAL, column="review", model="nothing")
    (tmp_path / "out").mkdir()
    with pytest.raises(InvalidInput, match="exists already"):
        classify_parquet(source, str(tmp_path / "out"), LOCAL, column="review")
