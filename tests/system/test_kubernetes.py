"""The manifests in deploy/ match the schemas of Kubernetes, and are consistent with each other."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from paths import ROOT

from service.settings import Settings, load_settings

DEPLOY = ROOT / "deploy"
VERSIONS = ("1.29", "1.34")


def manifests(folder: str) -> dict[str, dict[str, Any]]:
    """Return the objects that the kustomization of `folder` applies, by kind."""
    kustomization = yaml.safe_load((DEPLOY / folder / "kustomization.yaml").read_text())
    objects = [yaml.safe_load((DEPLOY / folder / name).read_text()) for name in kustomization["resources"]]
    return {manifest["kind"]: manifest for manifest in objects}


KUBERNETES = manifests("kubernetes")
INGRESS = yaml.safe_load((DEPLOY / "kubernetes/ingress.yaml").read_text())
KSERVE = manifests("kserve")
POD = KUBERNETES["Deployment"]["spec"]["template"]["spec"]
CONTAINER = POD["containers"][0]
CONTAINERS = [CONTAINER, KSERVE["ServingRuntime"]["spec"]["containers"][0]]


@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_fit_the_schemas_of_their_kinds(version: str) -> None:
    for kind, manifest in {**KUBERNETES, "Ingress": INGRESS}.items():
        if kind != "ServiceMonitor":  # of its own operator
            assert kubernetes_validate.validate(manifest, version, strict=True) == version


def test_ingress_example_exposes_every_route_except_those_of_operators() -> None:
    (rule,) = INGRESS["spec"]["rules"]
    paths = [(path["path"], path["pathType"]) for path in rule["http"]["paths"]]

    def matches(route: str) -> bool:
        return any(
            route == path or (kind == "Prefix" and route.startswith(f"{path}/")) for path, kind in paths
        )

    routes = json.loads((ROOT / "docs/openapi.json").read_text())["paths"]
    assert {route for route in routes if not matches(route)} == {"/health", "/ready", "/metrics"}
    assert {path["backend"]["service"]["name"] for path in rule["http"]["paths"]} == {"hardmax"}


def test_guide_puts_a_path_in_front_of_every_route_of_the_ingress_example() -> None:
    guide = (ROOT / "docs/operate/gateway.md").read_text()
    (command,) = re.findall(r"^\$ (sed .+) > ingress\.yaml$", guide, re.MULTILINE)
    sed = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)
    below, (rule,) = yaml.safe_load(sed.stdout), INGRESS["spec"]["rules"]
    assert kubernetes_validate.validate(below, VERSIONS[-1], strict=True) == VERSIONS[-1]
    paths = [path["path"] for path in below["spec"]["rules"][0]["http"]["paths"]]
    assert paths == [f"/sentiment{path['path']}" for path in rule["http"]["paths"]]


def test_ingress_example_has_the_bounds_of_the_edge() -> None:
    edge = (ROOT / "docker/edge/nginx.conf").read_text()
    bounds = {name.rpartition("/")[2]: value for name, value in INGRESS["metadata"]["annotations"].items()}
    assert f"client_max_body_size {bounds['proxy-body-size']};" in edge
    assert f"proxy_read_timeout {bounds['proxy-read-timeout']}s;" in edge
    assert f"limit_conn address {bounds['limit-connections']};" in edge
    assert f"rate={bounds['limit-rps']}r/s;" in edge
    assert f"proxy_buffers {bounds['proxy-buffers-number']} {bounds['proxy-buffer-size']};" in edge


@pytest.mark.parametrize("version", VERSIONS)
def test_kserve_containers_fit_a_pod(version: str) -> None:
    spec = {name: KSERVE["ServingRuntime"]["spec"][name] for name in ("containers", "volumes")}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hardmax"}, "spec": spec}
    assert kubernetes_validate.validate(pod, version, strict=True) == version


# The fields that we use of custom resources, whose full definitions are those of their operators.


def test_kserve_service_uses_a_runtime_of_its_protocol_and_format() -> None:
    runtime, model = KSERVE["ServingRuntime"], KSERVE["InferenceService"]["spec"]["predictor"]["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert [model["protocolVersion"]] == runtime["spec"]["protocolVersions"] == ["v2"]
    formats = [(item["name"], item["version"]) for item in runtime["spec"]["supportedModelFormats"]]
    assert (model["modelFormat"]["name"], model["modelFormat"]["version"]) in formats
    # KServe finds the serving container by this name.
    assert [container["name"] for container in runtime["spec"]["containers"]] == ["kserve-container"]


def test_selectors_find_the_pods() -> None:
    labels = KUBERNETES["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert KUBERNETES["Service"]["spec"]["selector"] == labels
    for kind in ("Deployment", "PodDisruptionBudget", "NetworkPolicy"):
        field = "podSelector" if kind == "NetworkPolicy" else "selector"
        assert KUBERNETES[kind]["spec"][field] == {"matchLabels": labels}, kind
    selected = KUBERNETES["ServiceMonitor"]["spec"]["selector"]
    assert selected == {"matchLabels": KUBERNETES["Service"]["metadata"]["labels"]}


def test_ports_have_the_same_names() -> None:
    (port,) = CONTAINER["ports"]
    (service_port,) = KUBERNETES["Service"]["spec"]["ports"]
    assert port == {"name": "http", "containerPort": Settings().port}
    assert service_port["targetPort"] == port["name"]
    assert KUBERNETES["ServiceMonitor"]["spec"]["endpoints"][0]["port"] == service_port["name"]
    assert KUBERNETES["NetworkPolicy"]["spec"]["ingress"][0]["ports"][0]["port"] == port["name"]


def test_autoscaler_targets_the_deployment_which_sets_no_replicas() -> None:
    target = KUBERNETES["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    deployment = KUBERNETES["Deployment"]
    reference = {name: deployment[name] for name in ("apiVersion", "kind")}
    assert target == {**reference, "name": deployment["metadata"]["name"]}
    assert "replicas" not in deployment["spec"]


def test_pod_outlives_the_drain() -> None:
    grace = float(environment(CONTAINER)["HARDMAX_SHUTDOWN_GRACE_S"])
    wait = float(CONTAINER["lifecycle"]["preStop"]["exec"]["command"][-1].split("sleep(")[1].rstrip(")"))
    assert POD["terminationGracePeriodSeconds"] > grace + wait


@pytest.mark.parametrize("container", CONTAINERS)
def test_container_is_hardened(container: dict[str, Any]) -> None:
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]  # the only writable folder


@pytest.mark.parametrize("container", CONTAINERS)
def test_environment_is_accepted_by_the_service(container: dict[str, Any], tmp_path: Path) -> None:
    keys = tmp_path / "api_keys"
    keys.touch()
    values = environment(container)
    if "HARDMAX_API_KEYS_FILE" in values:
        values["HARDMAX_API_KEYS_FILE"] = str(keys)
    settings = load_settings(values)
    assert settings.intra_op_threads == int(container["resources"]["requests"]["cpu"])


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on this machine")
@pytest.mark.parametrize(("folder", "objects"), [("kubernetes", KUBERNETES), ("kserve", KSERVE)])
def test_kustomize_builds_the_same_objects(folder: str, objects: dict[str, Any]) -> None:
    result = subprocess.run(
        ["kubectl", "kustomize", str(DEPLOY / folder)], check=True, capture_output=True, timeout=60
    )
    assert {manifest["kind"] for manifest in yaml.safe_load_all(result.stdout)} == set(objects)


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container["env"]}
