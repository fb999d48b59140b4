"""Prometheus' configuration, alerts and dashboard: well-formed, right, about metrics that the service has."""

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
from server import Server, eventually, is_listening, serving

from benchmarks.servers import free_port

FOLDER = ROOT / "docker/prometheus"
ALERTS = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((ROOT / "docker/grafana/dashboards/hardmax.json").read_text())
RUNBOOK = (ROOT / "docs/operations.md").read_text()

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="no Prometheus on this machine (Debian: apt-get install prometheus)",
)


@pytest.fixture(scope="module")
def server(small_models: Path) -> Iterator[Server]:
    """A service that has answered a little of everything, one refusal among it."""
    with serving(small_models, workers=1) as server, server.client() as client:
        assert client.post("/classify", json={"input": "A superb film."}).status_code == 200
        assert client.post("/dynamics", json={"points": [[1, 0], [0, 1], [0.1, 0.1]]}).status_code == 200
        assert client.post("/dynamics", json={"points": [[0, 0]]}).status_code == 422
        yield server


@pytest.mark.system
@needs_prometheus
def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    cases = (ROOT / "tests/system/prometheus/alerts.test.yaml").read_text()
    filled = tmp_path / "alerts.test.yaml"
    filled.write_text(cases.replace("rule_files: []", f"rule_files: [{FOLDER / 'alerts.yaml'}]"))
    done = subprocess.run(["promtool", "test", "rules", filled], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    tried = set(re.findall(r"alertname: (\w+)", cases.split("- name: gone")[1]))
    assert tried == {rule["alert"] for rule in RULES if "alert" in rule}


def test_every_alert_has_a_page_in_the_manual() -> None:
    for rule in RULES:
        if "alert" in rule:
            assert rule["annotations"]["runbook"] == f"docs/operations.md#{rule['alert'].lower()}"
            assert f"\n### {rule['alert']}\n" in RUNBOOK


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def test_dashboard_panels_stand_apart_and_have_a_source() -> None:
    sources = (ROOT / "docker/grafana/provisioning/datasources/prometheus.yaml").read_text()
    (source,) = yaml.safe_load(sources)["datasources"]
    cells: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        mine = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert not mine & cells, panel["title"]
        cells |= mine
        assert place["x"] + place["w"] <= 24
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {source["uid"]}
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_alerts_and_dashboard_ask_for_metrics_that_the_service_has(server: Server) -> None:
    with server.client() as client:
        exposed = set(re.findall(r"^(\w+)", client.get("/metrics").text, re.MULTILINE))
    # Our own recorded series have colons; what is left are metrics.
    asked = " ".join([*queries(), *(rule["expr"] for rule in RULES)])
    names = set(re.findall(r"(?<![\w:])((?:hardmax|process)_\w+)", asked))
    assert names
    assert names <= exposed


def test_alerts_and_dashboard_ask_for_labels_that_metrics_have(server: Server) -> None:
    with server.client() as client:
        exposed = client.get("/metrics").text
    labels = {name for each in re.findall(r"{(.+?)} ", exposed) for name in re.findall(r'(\w+)="', each)}
    labels |= {"instance", "job"}  # Prometheus' own
    shown = [target.get("legendFormat", "") for panel in panels() for target in panel["targets"]]
    told = [text for rule in RULES for text in rule.get("annotations", {}).values()]
    asked = " ".join([*queries(), *(rule["expr"] for rule in RULES)])
    names = {name for within in re.findall(r"{(.*?)}", asked) for name in re.findall(r"(\w+)[=!]", within)}
    names |= {name for by in re.findall(r"by \((.*?)\)", asked) for name in re.findall(r"\w+", by)}
    names |= set(re.findall(r"{{(?: \$labels\.)?(\w+)", " ".join([*shown, *told])))
    assert {"queue", "stage", "reason", "abstain_reason"} <= names
    assert names <= labels


@contextmanager
def prometheus(folder: Path, scraped: Server) -> Iterator[httpx.Client]:
    """A real Prometheus with the project's files: only the target and the pace are this test's."""
    text = (FOLDER / "prometheus.yaml").read_text()
    text = text.replace("hardmax:8000", f"127.0.0.1:{scraped.port}").replace(": 15s", ": 1s")
    (folder / "prometheus.yaml").write_text(text)
    shutil.copy(FOLDER / "alerts.yaml", folder)
    port = free_port()
    place = [f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"]
    command = ["prometheus", f"--config.file={folder}/prometheus.yaml", *place, "--log.level=warn"]
    with subprocess.Popen(command) as process:
        try:
            eventually(lambda: is_listening(port))
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30) as client:
                yield client
        finally:
            process.terminate()


def ask(client: httpx.Client, query: str) -> list[dict[str, Any]]:
    answer = client.get("/api/v1/query", params={"query": query}).json()
    assert answer["status"] == "success", f"{query}: {answer}"
    return list(answer["data"]["result"])


@pytest.mark.system
@needs_prometheus
def test_prometheus_scrapes_the_service_and_answers_every_panel(server: Server, tmp_path: Path) -> None:
    with prometheus(tmp_path, server) as client, server.client() as calls:
        for _ in range(400):
            calls.post("/classify", json={"input": ["A dull film.", "これは"]})
            if ask(client, 'hardmax:request_duration_seconds:p99_5m{route="/classify"} > 0'):
                break
            time.sleep(0.1)
        assert ask(client, 'up{job="hardmax"}')[0]["value"][1] == "1"
        assert ask(client, "hardmax_ready")[0]["value"][1] == "1"
        assert float(ask(client, "hardmax:overloaded:ratio5m")[0]["value"][1]) == 0.0
        for query in queries():
            assert ask(client, query.replace("$instance", ".*").replace("$__rate_interval", "1m")), query
        rules = client.get("/api/v1/rules").json()["data"]["groups"][0]["rules"]
        assert {rule["health"] for rule in rules} == {"ok"}
        assert {rule["name"] for rule in rules if rule.get("state") == "firing"} == set()
