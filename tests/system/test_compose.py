"""compose.yaml, its files and .env.example: consistent with the settings and each other, and hardened."""

import importlib.util
import re
from collections.abc import Callable

import pytest
import yaml
from paths import ROOT

from service.settings import PREFIX, Settings, load_settings

spec = importlib.util.spec_from_file_location("settings_docs", ROOT / "docs/settings.py")
assert spec is not None
assert spec.loader is not None
settings_docs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(settings_docs)
env_example, page = settings_docs.env_example, settings_docs.page

COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
ENV_EXAMPLE = (ROOT / ".env.example").read_text()
EDGE_CONFIGURATION = (ROOT / "docker/edge/nginx.conf").read_text()
SETTINGS = {PREFIX + name.upper() for name in Settings.model_fields}
# Set by the image, not by compose.
SET_BY_IMAGE = {"HARDMAX_HOST", "HARDMAX_PORT", "HARDMAX_PROVIDER"}
SERVICES = ("hardmax", "hardmax-gpu")


def example_variables() -> dict[str, str]:
    """Return the variables in .env.example with their values."""
    return dict(re.findall(r"^#?([A-Z_]+)=(.*)$", ENV_EXAMPLE, re.MULTILINE))


def seconds(duration: str) -> float:
    return float(duration.removesuffix("s"))


@pytest.mark.parametrize(
    ("path", "write"), [(".env.example", env_example), ("docs/reference/settings.md", page)]
)
def test_generated_documents_of_settings_are_up_to_date(path: str, write: Callable[[], str]) -> None:
    assert (ROOT / path).read_text() == write(), "run: python docs/settings.py"


def test_env_example_with_every_variable_set_is_accepted() -> None:
    values = {name: value for name, value in example_variables().items() if name in SETTINGS}
    assert load_settings(values).log_format == "json"


def test_env_example_documents_every_variable_compose_reads() -> None:
    used = set(re.findall(r"\$\{([A-Z_]+)", (ROOT / "compose.yaml").read_text()))
    assert used - SETTINGS == set(example_variables()) - SETTINGS
    for name, default in re.findall(r"\$\{([A-Z_]+):-([^}]*)\}", (ROOT / "compose.yaml").read_text()):
        assert name in ("MODELS", "KEYS") or example_variables()[name] == default, name


@pytest.mark.parametrize("name", SERVICES)
def test_compose_hands_every_setting_to_the_service(name: str) -> None:
    assert set(COMPOSE["services"][name]["environment"]) == SETTINGS - SET_BY_IMAGE


@pytest.mark.parametrize("name", SERVICES)
def test_compose_keeps_the_names_that_other_containers_use(name: str) -> None:
    """If its own name were refused, a healthy service would count as down."""
    allowed = COMPOSE["services"][name]["environment"]["HARDMAX_ALLOWED_HOSTS"]
    assert allowed == "hardmax,hardmax-gpu${HARDMAX_ALLOWED_HOSTS:+,${HARDMAX_ALLOWED_HOSTS:-}}"
    jobs = yaml.safe_load((ROOT / "docker/prometheus/prometheus.yaml").read_text())["scrape_configs"]
    targets = {target for job in jobs for config in job["static_configs"] for target in config["targets"]}
    assert {target.partition(":")[0] for target in targets} <= {*SERVICES, "localhost"}


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_compose_service_is_hardened(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"
    assert service["mem_limit"]
    assert service["pids_limit"]
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_compose_publishes_on_loopback_by_default(name: str) -> None:
    for port in COMPOSE["services"][name].get("ports", []):
        assert re.sub(r"\$\{[A-Z_]+:-(.*)\}", r"\1", port).startswith("127.0.0.1:")


def test_compose_bounds_every_tmpfs_of_exposed_services() -> None:
    for name in (*SERVICES, "edge"):
        assert all("size=" in mount for mount in COMPOSE["services"][name]["tmpfs"]), name
    assert directive("proxy_request_buffering") == "on"
    assert directive("proxy_max_temp_file_size") == "0"
    buffered_mb = int(directive("limit_conn large").split()[-1]) * int(directive("client_max_body_size")[:-1])
    (size,) = COMPOSE["services"]["edge"]["tmpfs"]
    assert buffered_mb < int(re.findall(r"size=(\d+)m", size)[0])


def test_compose_puts_the_service_on_the_internal_network_only() -> None:
    assert COMPOSE["networks"]["inside"] == {"internal": True}
    assert COMPOSE["services"]["hardmax"]["networks"] == ["inside"]
    assert "ports" not in COMPOSE["services"]["hardmax"]
    assert COMPOSE["services"]["edge"]["networks"] == ["inside", "default"]


def test_compose_waits_longer_than_the_service_drains() -> None:
    grace = example_variables()["STOP_GRACE"]
    assert seconds(grace) > Settings().shutdown_grace_s
    assert COMPOSE["services"]["hardmax"]["stop_grace_period"] == f"${{STOP_GRACE:-{grace}}}"
    assert seconds(COMPOSE["services"]["edge"]["stop_grace_period"]) > seconds(grace)


def test_compose_mounts_files_that_exist() -> None:
    for name, service in COMPOSE["services"].items():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (ROOT / source).exists(), (name, source)


@pytest.mark.parametrize("name", SERVICES)
def test_compose_lets_the_service_only_read_models_and_keys(name: str) -> None:
    mounts = [volume.rpartition("}:")[2] for volume in COMPOSE["services"][name]["volumes"]]
    assert mounts == ["/models:ro", "/keys:ro"]


def test_bounds_of_the_edge_exceed_those_of_the_service() -> None:
    body = int(directive("client_max_body_size").removesuffix("m")) * 2**20
    assert body > Settings().payload_limit_bytes
    assert seconds(directive("proxy_read_timeout")) > Settings().request_timeout_s


def test_dockerfile_runs_the_server_as_an_unprivileged_user() -> None:
    stages = dockerfile()
    assert "\nUSER 10001:10001\n" in stages["runtime"]
    # Exec form: no shell intercepts the signals to the server.
    assert '\nENTRYPOINT ["hardmax"]\n' in stages["runtime"]
    assert '\nCMD ["serve"]\n' in stages["server"]


def dockerfile() -> dict[str, str]:
    """Return the lines of each stage by its name."""
    stages = (ROOT / "Dockerfile").read_text().split("\nFROM ")[1:]
    return {stage.partition("\n")[0].split(" AS ")[1]: stage for stage in stages}


def directive(name: str) -> str:
    """Return the value of the only line of the edge's configuration that starts with `name`."""
    (value,) = re.findall(rf"^\s*{name} ([^;]+);", EDGE_CONFIGURATION, re.MULTILINE)
    return str(value)
