"""The Prometheus configuration, alerts and dashboard: valid, correct, and about metrics of the service."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from paths import ROOT
from server import Server, eventually, in_process, is_listening, serving

from benchmarks.servers import free_port

FOLDER = ROOT / "docker/prometheus"
ALERTS = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((ROOT / "docker/grafana/dashboards/hardmax.json").read_text())
RUNBOOK = (ROOT / "docs/operate/operations.md").read_text()

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="no Prometheus on this machine (Debian: apt-get install prometheus)",
)


def ask(client: httpx.Client) -> None:
    """Send requests of several kinds, one with an error."""
    assert client.post("/classify", json={"input": "A superb film."}).status_code == 200
    assert client.post("/dynamics", json={"points": [[1, 0], [0, 1], [0.1, 0.1]]}).status_code == 200
    assert client.post("/dynamics", json={"points": [[0, 0]]}).status_code == 422


@pytest.fixture(scope="module")
def exposed(small_models: Path) -> str:
    """The metrics of a service that has answered requests."""
    with in_process(small_models, default_model="sentiment-small") as client:
        ask(client)
        return str(client.get("/metrics").text)


@pytest.mark.system
@needs_prometheus
def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    rule_tests = (ROOT / "tests/system/prometheus/alerts.test.yaml").read_text()
    rule_file = tmp_path / "alerts.test.yaml"
    rule_file.write_text(rule_tests.replace("rule_files: []", f"rule_files: [{FOLDER / 'alerts.yaml'}]"))
    command = ["promtool", "test", "rules", rule_file]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr
    tested = set(re.findall(r"alertname: (\w+)", rule_tests.split("- name: gone")[1]))
    assert tested == {rule["alert"] for rule in RULES if "alert" in rule}


def test_every_alert_has_a_runbook() -> None:
    for rule in RULES:
        if "alert" in rule:
            assert rule["annotations"]["runbook"] == f"docs/operate/operations.md#{rule['alert'].lower()}"
            assert f"\n### {rule['alert']}\n" in RUNBOOK


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def panel_queries() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def test_alerts_and_dashboard_query_existing_metrics(exposed: str) -> None:
    # Series of recording rules have colons in their names; the others are metrics.
    expressions = " ".join([*panel_queries(), *(rule["expr"] for rule in RULES)])
    names = set(re.findall(r"(?<![\w:])((?:hardmax|process)_\w+)", expressions))
    assert names
    assert names <= set(re.findall(r"^(\w+)", exposed, re.MULTILINE))


def test_alerts_and_dashboard_query_existing_labels(exposed: str) -> None:
    labels = set(re.findall(r'[{,](\w+)="', exposed))
    labels |= {"instance", "job"}  # added by Prometheus
    shown = [target.get("legendFormat", "") for panel in panels() for target in panel["targets"]]
    annotations = [text for rule in RULES for text in rule.get("annotations", {}).values()]
    expressions = " ".join([*panel_queries(), *(rule["expr"] for rule in RULES)])
    names = set(re.findall(r"(\w+)[=!]", " ".join(re.findall(r"{(.*?)}", expressions))))
    names |= set(re.findall(r"\w+", " ".join(re.findall(r"by \((.*?)\)", expressions))))
    names |= set(re.findall(r"{{(?: \$labels\.)?(\w+)", " ".join([*shown, *annotations])))
    assert {"queue", "stage", "reason", "abstain_reason"} <= names
    assert names <= labels


@contextmanager
def run_prometheus(folder: Path, server: Server) -> Iterator[httpx.Client]:
    """Run Prometheus with the project's files; only the target and the interval are replaced."""
    text = (FOLDER / "prometheus.yaml").read_text()
    text = text.replace("hardmax:8000", f"127.0.0.1:{server.port}").replace(": 15s", ": 1s")
    (folder / "prometheus.yaml").write_text(text)
    shutil.copy(FOLDER / "alerts.yaml", folder)
    port = free_port()
    flags = [f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"]
    command = ["prometheus", f"--config.file={folder}/prometheus.yaml", *flags, "--log.level=warn"]
    with subprocess.Popen(command) as process:
        try:
            eventually(lambda: is_listening(port))
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30) as client:
                yield client
        finally:
            process.terminate()


def query_prometheus(client: httpx.Client, query: str) -> list[dict[str, Any]]:
    answer = client.get("/api/v1/query", params={"query": query}).json()
    assert answer["status"] == "success", f"{query}: {answer}"
    return list(answer["data"]["result"])


@pytest.mark.system
@needs_prometheus
def test_prometheus_scrapes_the_service_and_answers_every_panel(small_models: Path, tmp_path: Path) -> None:
    with (
        serving(small_models, workers=1) as server,
        run_prometheus(tmp_path, server) as client,
        server.client() as service_client,
    ):
        ask(service_client)
        for _ in range(400):
            service_client.post("/classify", json={"input": ["A dull film.", "これは"]})
            if query_prometheus(client, 'hardmax:request_duration_seconds:p99_5m{route="/classify"} > 0'):
                break
            time.sleep(0.1)
        assert query_prometheus(client, 'up{job="hardmax"}')[0]["value"][1] == "1"
        assert query_prometheus(client, "hardmax_ready")[0]["value"][1] == "1"
        assert float(query_prometheus(client, "hardmax:overloaded:ratio5m")[0]["value"][1]) == 0.0
        for query in panel_queries():
            filled = query.replace("$instance", ".*").replace("$__rate_interval", "1m")
            assert query_prometheus(client, filled), query
        rules = client.get("/api/v1/rules").json()["data"]["groups"][0]["rules"]
        assert {rule["health"] for rule in rules} == {"ok"}
        assert {rule["name"] for rule in rules if rule.get("state") == "firing"} == set()
