"""The Prometheus configuration, alerts and dashboard: valid, correct, and about metrics of the service."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from paths import ROOT
from server import in_process

FOLDER = ROOT / "docker/prometheus"
ALERTS = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((ROOT / "docker/grafana/dashboards/hardmax.json").read_text())
RUNBOOK = (ROOT / "docs/operate/operations.md").read_text()

needs_prometheus = pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="no Prometheus on this machine (Debian: apt-get install prometheus)",
)


@pytest.fixture(scope="module")
def exposed(small_models: Path) -> str:
    """The metrics of a service that has answered requests."""
    with in_process(small_models, default_model="sentiment-small") as client:
        assert client.post("/classify", json={"input": "A superb film."}).status_code == 200
        assert client.post("/dynamics", json={"points": [[1, 0], [0, 1], [0.1, 0.1]]}).status_code == 200
        assert client.post("/dynamics", json={"points": [[0, 0]]}).status_code == 422
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


@pytest.mark.system
@needs_prometheus
def test_prometheus_accepts_configuration_metrics_and_queries(exposed: str, tmp_path: Path) -> None:
    for name in ("alerts.yaml", "prometheus.yaml"):
        shutil.copy(FOLDER / name, tmp_path)
    queries = [query.replace("$__rate_interval", "1m") for query in panel_queries()]
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    for command in ("check config prometheus.yaml", "check rules panels.yaml", "check metrics"):
        result = subprocess.run(
            ["promtool", *command.split()], cwd=tmp_path, input=exposed, capture_output=True, text=True
        )
        assert result.returncode == 0, result.stdout + result.stderr
