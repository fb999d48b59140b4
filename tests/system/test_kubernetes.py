"""The manifests in deploy/ against Kubernetes' own schemas, and against what they promise each other."""

import json
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
    """What the kustomization of `folder` applies, by kind."""
    kustomization = yaml.safe_load((DEPLOY / folder / "kustomization.yaml").read_text())
    objects = [yaml.safe_load((DEPLOY / folder / name).read_text()) for name in kustomization["resources"]]
    return {each["kind"]: each for each in objects}


KUBERNETES = manifests("kubernetes")
INGRESS = yaml.safe_load((DEPLOY / "kubernetes/ingress.yaml").read_text())
KSERVE = manifests("kserve")
POD = KUBERNETES["Deployment"]["spec"]["template"]["spec"]
CONTAINER = POD["containers"][0]
CONTAINERS = [CONTAINER, KSERVE["ServingRuntime"]["spec"]["containers"][0]]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", [kind for kind in KUBERNETES if kind != "ServiceMonitor"])
def test_manifest_fits_the_schema_of_its_kind(kind: str, version: str) -> None:
    assert kubernetes_validate.validate(KUBERNETES[kind], version, strict=True) == version


@pytest.mark.parametrize("version", VERSIONS)
def test_ingress_example_fits_its_schema(version: str) -> None:
    assert kubernetes_validate.validate(INGRESS, version, strict=True) == version


def test_ingress_example_leads_to_every_route_but_those_of_operators() -> None:
    (rule,) = INGRESS["spec"]["rules"]
    offered = [(each["path"], each["pathType"]) for each in rule["http"]["paths"]]

    def leads_to(route: str) -> bool:
        return any(
            route == path or (kind == "Prefix" and route.startswith(f"{path}/")) for path, kind in offered
        )

    routes = json.loads((ROOT / "docs/openapi.json").read_text())["paths"]
    assert {route for route in routes if not leads_to(route)} == {"/health", "/ready", "/metrics"}
    assert {each["backend"]["service"]["name"] for each in rule["http"]["paths"]} == {"hardmax"}


def test_ingress_example_has_the_bounds_of_the_edge() -> None:
    edge = (ROOT / "docker/edge/nginx.conf").read_text()
    bounds = {name.rpartition("/")[2]: value for name, value in INGRESS["metadata"]["annotations"].items()}
    assert f"client_max_body_size {bounds['proxy-body-size']};" in edge
    assert f"proxy_read_timeout {bounds['proxy-read-timeout']}s;" in edge
    assert f"limit_conn address {bounds['limit-connections']};" in edge
    assert f"rate={bounds['limit-rps']}r/s;" in edge
    assert f"proxy_buffers {bounds['proxy-buffers-number']} {bounds['proxy-buffer-size']};" in edge


def test_schema_refuses_a_field_that_does_not_exist() -> None:
    broken = {**KUBERNETES["Service"], "spec": {**KUBERNETES["Service"]["spec"], "selectors": {}}}
    with pytest.raises(kubernetes_validate.ValidationError, match="selectors"):
        kubernetes_validate.validate(broken, VERSIONS[0], strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_kserve_containers_fit_a_pod(version: str) -> None:
    spec = {name: KSERVE["ServingRuntime"]["spec"][name] for name in ("containers", "volumes")}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hardmax"}, "spec": spec}
    assert kubernetes_validate.validate(pod, version, strict=True) == version


def fields(value: Any, path: str = "") -> set[str]:
    """The paths of all fields, those of the items of a list too."""
    if isinstance(value, list):
        return set().union(*(fields(each, path) for each in value))
    if not isinstance(value, dict) or path.endswith(("matchLabels", "annotations", "containers")):
        return {path}
    return set().union(*(fields(each, f"{path}.{name}".lstrip(".")) for name, each in value.items()))


# Of the custom resources' definitions the fields that we use; the whole comes with their operators.
CUSTOM = {
    "ServiceMonitor": (
        "monitoring.coreos.com/v1",
        "selector.matchLabels endpoints.port endpoints.path endpoints.interval",
    ),
    "ServingRuntime": (
        "serving.kserve.io/v1alpha1",
        "supportedModelFormats.name supportedModelFormats.version supportedModelFormats.autoSelect "
        "protocolVersions annotations containers volumes.name volumes.emptyDir.medium "
        "volumes.emptyDir.sizeLimit",
    ),
    "InferenceService": (
        "serving.kserve.io/v1beta1",
        "predictor.minReplicas predictor.maxReplicas predictor.scaleMetric predictor.scaleTarget "
        "predictor.timeout predictor.model.modelFormat.name predictor.model.modelFormat.version "
        "predictor.model.protocolVersion predictor.model.runtime",
    ),
}


@pytest.mark.parametrize("kind", CUSTOM)
def test_custom_resource_has_the_fields_of_its_definition(kind: str) -> None:
    resource = {**KUBERNETES, **KSERVE}[kind]
    assert (resource["apiVersion"], fields(resource["spec"])) == (CUSTOM[kind][0], {*CUSTOM[kind][1].split()})


def test_kserve_scales_by_a_metric_that_it_has() -> None:
    predictor = KSERVE["InferenceService"]["spec"]["predictor"]
    assert predictor["scaleMetric"] in ("cpu", "memory", "concurrency", "rps")
    assert 1 <= predictor["minReplicas"] <= predictor["maxReplicas"]
    assert min(predictor["scaleTarget"], predictor["timeout"]) >= 1


def test_kserve_service_names_a_runtime_that_speaks_its_protocol_and_format() -> None:
    runtime, model = KSERVE["ServingRuntime"], KSERVE["InferenceService"]["spec"]["predictor"]["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert [model["protocolVersion"]] == runtime["spec"]["protocolVersions"] == ["v2"]
    offered = [(each["name"], each["version"]) for each in runtime["spec"]["supportedModelFormats"]]
    assert (model["modelFormat"]["name"], model["modelFormat"]["version"]) in offered
    # KServe finds the serving container by this name alone.
    assert [each["name"] for each in runtime["spec"]["containers"]] == ["kserve-container"]


def test_selectors_find_the_pods() -> None:
    labels = KUBERNETES["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert KUBERNETES["Service"]["spec"]["selector"] == labels
    for kind in ("Deployment", "PodDisruptionBudget", "NetworkPolicy"):
        field = "podSelector" if kind == "NetworkPolicy" else "selector"
        assert KUBERNETES[kind]["spec"][field] == {"matchLabels": labels}, kind
    watched = KUBERNETES["ServiceMonitor"]["spec"]["selector"]
    assert watched == {"matchLabels": KUBERNETES["Service"]["metadata"]["labels"]}


def test_ports_are_named_alike() -> None:
    (port,) = CONTAINER["ports"]
    (offered,) = KUBERNETES["Service"]["spec"]["ports"]
    assert port == {"name": "http", "containerPort": Settings().port}
    assert offered["targetPort"] == port["name"]
    assert KUBERNETES["ServiceMonitor"]["spec"]["endpoints"][0]["port"] == offered["name"]
    assert KUBERNETES["NetworkPolicy"]["spec"]["ingress"][0]["ports"][0]["port"] == port["name"]


def test_scaling_targets_the_deployment_and_alone_sets_the_replicas() -> None:
    target = KUBERNETES["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    deployment = KUBERNETES["Deployment"]
    meant = {name: deployment[name] for name in ("apiVersion", "kind")}
    assert target == {**meant, "name": deployment["metadata"]["name"]}
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
    assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]  # all that can be written


@pytest.mark.parametrize("container", CONTAINERS)
def test_environment_is_accepted_by_the_service(container: dict[str, Any], tmp_path: Path) -> None:
    keys = tmp_path / "api_keys"
    keys.touch()
    given = environment(container)
    if "HARDMAX_API_KEYS_FILE" in given:
        given["HARDMAX_API_KEYS_FILE"] = str(keys)
    settings = load_settings(given)
    assert settings.intra_op_threads == int(container["resources"]["requests"]["cpu"])


def test_service_links_do_not_leak_into_the_settings() -> None:
    # A Service called hardmax makes Kubernetes set HARDMAX_PORT=tcp://..., which stops the start.
    assert POD["enableServiceLinks"] is False


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on this machine")
@pytest.mark.parametrize(("folder", "objects"), [("kubernetes", KUBERNETES), ("kserve", KSERVE)])
def test_kustomize_builds_the_same_objects(folder: str, objects: dict[str, Any]) -> None:
    built = subprocess.run(
        ["kubectl", "kustomize", str(DEPLOY / folder)], check=True, capture_output=True, timeout=60
    )
    assert {each["kind"] for each in yaml.safe_load_all(built.stdout)} == set(objects)


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container["env"]}
