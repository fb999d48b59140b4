"""The service on a real Ray on this machine: deploy/ray/serve.yaml asked, flooded and hurt; and the job.

Run by `make test-ray`; skipped where Ray is not installed.
"""

import json
import threading
import time
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
    warnings.simplefilter("ignore")  # of Ray's dependencies among each other
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


def shrunk(config: dict[str, Any], port: int) -> dict[str, Any]:
    """The project's configuration for a small machine: two replicas at once, and room for a few requests."""
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
    config = ServeDeploySchema.model_validate(shrunk(CONFIG, port))
    serve.start(
        http_options=config.http_options.model_dump(exclude={"num_cpus", "location"}, exclude_unset=True)
    )
    serve.context._get_global_client().deploy_apps(config)
    # Longer than Ray's own minute: each of its processes reads hundreds of megabytes of modules first.
    eventually(lambda: serve.status().applications["hardmax"].status == "RUNNING", 200)
    limits = httpx.Limits(max_connections=100)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", limits=limits, timeout=60) as client:
        yield client
    serve.shutdown()


@pytest.fixture(scope="module")
def alone() -> Iterator[TestClient]:
    """The same service in one process, without Ray."""
    with TestClient(create_app(Settings(log_level="warning", intra_op_threads=1))) as client:
        yield client


def without_id(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    return {name: value for name, value in answer.json().items() if name != "id"}


def test_configuration_leaves_the_last_word_to_the_service() -> None:
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
    proxy: httpx.Client, alone: TestClient, path: str, body: dict[str, Any]
) -> None:
    assert without_id(proxy.post(path, json=body)) == without_id(alone.post(path, json=body))


def test_proxy_passes_the_services_refusals_and_request_ids_on(proxy: httpx.Client) -> None:
    answer = proxy.post("/dynamics", json={"points": [[0, 0]]}, headers={"x-request-id": "mine"})
    assert answer.status_code == 422
    assert answer.json()["error"]["request_id"] == "mine"


@pytest.mark.parametrize("host", ["hardmax-serve-svc.default.svc.cluster.local:8000", "10.1.2.3"])
def test_names_of_the_cluster_are_answered(proxy: httpx.Client, host: str) -> None:
    """Row 15 of the third attack: 400, as on a machine of its own that listens on loopback."""
    answer = proxy.post("/classify", json={"input": TEXTS[0]}, headers={"host": host})
    assert answer.status_code == 200, answer.text


def test_replica_logs_as_its_settings_say() -> None:
    """Under Ray no request had a line, and `log_format` was obeyed by nobody."""
    done = run_python(
        "import logging; from service.settings import Settings\n"
        "from service.ray_serve import replica\n"
        "from starlette.testclient import TestClient\n"
        "with TestClient(replica(Settings(host='0.0.0.0', log_format='json'))) as client:\n"
        "    client.get('/health', headers={'x-request-id': 'mine'})\n"
        "logging.shutdown()"
    )
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["request_id"] for line in lines if line["logger"] == "access"] == ["mine"], done.stderr


def test_replica_uses_the_threads_that_ray_set_aside(proxy: httpx.Client) -> None:
    assert proxy.get("/info").json()["threads"] == 1


def test_flood_is_answered_or_refused_with_a_time_to_come_back(proxy: httpx.Client) -> None:
    body = {"input": [" ".join(TEXTS) * 20] * 32, "explain": "full"}
    with ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(lambda _: proxy.post("/classify", json=body, timeout=180.0), range(128)))
    statuses = Counter(answer.status_code for answer in answers)
    assert set(statuses) == {200, 429}, statuses
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.json()["error"]["type"] == "overloaded"
    assert int(refused.headers["retry-after"]) >= 1


def replicas() -> list[str]:
    """The names of the replicas' actors that run now."""
    named = ray.util.list_named_actors(all_namespaces=True)
    return sorted(each["name"] for each in named if "SERVE_REPLICA" in each["name"])


def test_killed_replica_costs_at_most_its_requests_in_flight_and_is_replaced(proxy: httpx.Client) -> None:
    before = replicas()
    assert len(before) == 2
    statuses: Counter[int] = Counter()
    stop = threading.Event()

    def caller() -> None:
        while not stop.is_set():
            statuses[proxy.post("/classify", json={"input": TEXTS[0]}).status_code] += 1

    callers = [threading.Thread(target=caller) for _ in range(3)]
    for each in callers:
        each.start()
    time.sleep(1)
    ray.kill(ray.get_actor(before[0], namespace="serve"), no_restart=True)
    for _ in range(240):
        if len(replicas()) == 2 and replicas() != before:
            break
        time.sleep(0.5)
    time.sleep(1)
    stop.set()
    for each in callers:
        each.join()
    assert replicas() != before
    assert len(replicas()) == 2
    failed = sum(count for status, count in statuses.items() if status != 200)
    assert failed <= len(callers), statuses
    assert statuses[200] > 10


def test_job_answers_every_row_as_the_single_process_does(
    cluster: None, alone: TestClient, tmp_path: Path
) -> None:
    texts = [*(f"{text} {i}" for i in range(300) for text in TEXTS), "", None, "!"]
    rows = pa.table({"n": range(len(texts)), "text": texts, "label": ["theirs"] * len(texts)})
    pq.write_table(rows, tmp_path / "in.parquet")
    summary = classify_parquet(str(tmp_path / "in.parquet"), str(tmp_path / "out"), LOCAL)
    assert summary == Summary(texts=1203, refused=2)

    written = pq.read_table(tmp_path / "out").sort_by("n").to_pylist()
    assert [(row["text"], row["label"]) for row in written] == [(text, "theirs") for text in texts]
    refused = {row["text"]: row["hardmax_error"] for row in written if row["hardmax_error"] is not None}
    assert refused == {"": "the text is empty", None: "there is no text"}

    answered = [row for row in written if row["hardmax_error"] is None]
    sample = answered[:: len(answered) // 100]
    expected = without_id(alone.post("/classify", json={"input": [row["text"] for row in sample]}))["data"]
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
