"""Settings: flags override the environment, which overrides defaults; an error is one clear line."""

import os
from pathlib import Path

import pytest
from server import run_python

from service.errors import ConfigurationError
from service.settings import PRETRAINED_FOLDER, Settings, _cgroup_quota, available_cpus, load_settings


def test_settings_add_custom_models_to_the_pretrained_ones(tmp_path: Path) -> None:
    settings = load_settings({})
    assert settings.model_folders == [PRETRAINED_FOLDER]
    assert (settings.host, settings.port) == ("127.0.0.1", 8000)
    assert Settings(models_dir=tmp_path).model_folders == [PRETRAINED_FOLDER, tmp_path]
    assert Settings(models_dir=tmp_path, pretrained_models=False).model_folders == [tmp_path]


def test_settings_models_dir_is_not_the_bundle_itself(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "card.json").write_text("{}")
    with pytest.raises(ConfigurationError, match=f"give the folder that holds it, {tmp_path}"):
        load_settings({"HARDMAX_MODELS_DIR": str(tmp_path / "mine")})


def test_settings_flag_wins_over_environment_and_an_empty_variable_counts_as_unset() -> None:
    environ = {"HARDMAX_PORT": "9001", "HARDMAX_MAX_POINTS": "7", "HARDMAX_HOST": "", "PATH": "/bin"}
    settings = load_settings(environ, port=9002)
    assert (settings.port, settings.max_points, settings.host) == (9002, 7, "127.0.0.1")


@pytest.mark.parametrize(
    ("environ", "flags", "line"),
    [
        ({"HARDMAX_PROT": "1"}, {}, "HARDMAX_PROT is not a setting of hardmax"),
        ({"HARDMAX_API_KEYS": " , "}, {}, "HARDMAX_API_KEYS: holds no key: leave it empty if none is needed"),
        ({"HARDMAX_PORT": "70000"}, {}, "HARDMAX_PORT: Input should be less than or equal to 65535"),
        ({"HARDMAX_REQUEST_TIMEOUT_S": "inf"}, {},
         "HARDMAX_REQUEST_TIMEOUT_S: Input should be a finite number"),
        ({"HARDMAX_MODELS_DIR": "/nowhere"}, {}, "HARDMAX_MODELS_DIR: /nowhere does not exist"),
        ({"HARDMAX_ROOT_PATH": "sentiment"}, {}, "HARDMAX_ROOT_PATH: should look like /sentiment"),
        ({"HARDMAX_ROOT_PATH": '/a"b'}, {}, "HARDMAX_ROOT_PATH: should look like /sentiment"),
        ({}, {"max_points": 0}, "--max-points: Input should be greater than or equal to 1"),
    ],
)  # fmt: skip
def test_settings_bad_variable_or_flag_is_one_line_that_names_it(
    environ: dict[str, str], flags: dict[str, int], line: str
) -> None:
    with pytest.raises(ConfigurationError) as exc_info:
        load_settings(environ, **flags)
    assert exc_info.value.message == line
    assert exc_info.value.param == line.split()[0].rstrip(":")


def test_settings_ignore_what_kubernetes_sets_for_services() -> None:
    """A Service called hardmax-predictor stopped the start, and one called hardmax set the port."""
    links = {
        "HARDMAX_PREDICTOR_SERVICE_HOST": "10.0.0.7",
        "HARDMAX_PREDICTOR_SERVICE_PORT": "80",
        "HARDMAX_PREDICTOR_SERVICE_PORT_HTTP": "80",
        "HARDMAX_PREDICTOR_PORT": "tcp://10.0.0.7:80",
        "HARDMAX_PREDICTOR_PORT_80_TCP": "tcp://10.0.0.7:80",
        "HARDMAX_PREDICTOR_PORT_80_TCP_ADDR": "10.0.0.7",
        "HARDMAX_SERVICE_HOST": "10.0.0.8",
        "HARDMAX_PORT": "tcp://10.0.0.8:80",
        "HARDMAX_PORT_80_TCP_PROTO": "tcp",
    }
    assert load_settings(links) == load_settings({})
    with pytest.raises(ConfigurationError, match="HARDMAX_PREDICTOR_HOST is not a setting"):
        load_settings({"HARDMAX_PREDICTOR_HOST": "10.0.0.7"})


def test_settings_folder_that_may_not_be_read_is_one_line_too(tmp_path: Path) -> None:
    unreadable = tmp_path / "closed"
    unreadable.mkdir(mode=0)
    code = (  # as nobody where this process runs as root, who may read everything
        "import os, sys; from service.settings import ConfigurationError, load_settings\n"
        "os.geteuid() or os.seteuid(65534)\n"
        "try: load_settings({}, models_dir=sys.argv[1])\n"
        "except ConfigurationError as failure: print(failure.message)"
    )
    process = run_python(code, str(unreadable))
    assert process.stdout == f"--models-dir: {unreadable} cannot be read: Permission denied\n", process.stderr


def test_settings_never_print_the_keys() -> None:
    assert "s3cret" not in repr(load_settings({"HARDMAX_API_KEYS": "s3cret"}))


def test_available_cpus_is_at_least_one_and_at_most_the_affinity() -> None:
    assert 1 <= available_cpus() <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu.max": "nonsense"}, None),
        ({}, None),
    ],
)
def test_cgroup_quota_reads_both_versions(tmp_path: Path, files: dict[str, str], cpus: float | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert _cgroup_quota(tmp_path) == cpus


def test_host_that_is_empty_is_refused() -> None:
    """A server with an empty host listens on every address."""
    with pytest.raises(ConfigurationError, match="--host"):
        load_settings({}, host="")


def test_star_among_the_allowed_hosts_allows_any() -> None:
    assert load_settings({}, allowed_hosts="hardmax,*").any_host is True
    assert load_settings({}, allowed_hosts="hardmax,star").any_host is False


@pytest.mark.parametrize(("host", "any_host"), [("127.0.0.2", False), ("::1", False), ("0.0.0.0", True)])
def test_every_loopback_address_answers_only_to_names_of_this_machine(host: str, any_host: bool) -> None:
    assert load_settings({}, host=host).any_host is any_host
