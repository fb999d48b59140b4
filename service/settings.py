"""All settings of the service, in one frozen object.

Each field is a flag of `hardmax serve` (`--max-points`) and an environment variable (`HARDMAX_MAX_POINTS`);
the flag wins. The help text of a flag, `.env.example` and the table in the documentation come from here.
"""

import math
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from service.errors import ConfigurationError

PREFIX = "HARDMAX_"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
match_root_path = re.compile(r"(/[\w.~-]+)*", re.ASCII).fullmatch
match_service_link = re.compile(rf"{PREFIX}(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT_\d+_.+)").fullmatch
PAGE_FILES = "/web/{path:path}"  # needs no key: the files are public
PRETRAINED_FOLDER = Path(__file__).parent / "pretrained"


def setting(default: Any, description: str, **bounds: Any) -> Any:
    """Return a field of the settings with its default, description and bounds."""
    return Field(default, description=description, **bounds)


class Settings(BaseModel):
    """The defaults serve the pretrained models on one machine without any configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    host: str = setting("127.0.0.1", "address to listen on", min_length=1)
    port: int = setting(8000, "port to listen on; 0 takes a free one", ge=0, le=65535)
    root_path: str = setting("", "path below which a gateway publishes the service, as in /sentiment")
    workers: int = setting(1, "server processes that share the port", ge=1, le=256)

    models_dir: Path | None = setting(
        None, "folder of custom model bundles, served next to the pretrained ones and watched"
    )
    pretrained_models: bool = setting(True, "serve the pretrained models")
    default_model: str = setting(
        "",
        "model of requests that name none; default: the pretrained one, or where it is not served "
        "the only one that classifies texts",
    )
    abstain_as_neutral: bool = setting(
        False,
        "answer `neutral` where the model abstains, in protocols that know only labels: /v2, inference "
        "endpoints, text-embeddings-inference",
    )
    provider: Literal["auto", "cpu", "cuda"] = setting(
        "auto", "where models run; cuda: the start fails without a usable GPU; auto: falls back to the CPU"
    )
    intra_op_threads: int = Field(
        default_factory=lambda: available_cpus(),
        ge=1,
        description="threads of one inference; default: the CPUs this process may use",
    )

    max_concurrent_requests: int = setting(256, "requests at once; further ones get 429", ge=1)
    max_large_requests: int = setting(
        4,
        "large requests of texts at once, and of clouds in each lane: a body over 1 MB, a full explanation "
        "or trajectory of over 4,000 characters, a cloud that takes over 0.01 s; further ones wait",
        ge=1,
    )
    max_batch_tokens: int = setting(16384, "tokens that run together at most", ge=1)
    max_client_batch_size: int = setting(1024, "texts or sequences in one request", ge=1)
    max_text_chars: int = setting(200_000, "characters of one text", ge=1)
    payload_limit_mb: float = setting(
        64.0, "megabytes (10^6 bytes) of one request body, after decompression; JSON has 4 at most", gt=0
    )
    max_points: int = setting(1_000_000, "points of one cloud", ge=1)
    max_dimension: int = setting(256, "dimension of a cloud", ge=1)
    max_layers: int = setting(100_000, "layers of one cloud", ge=1)
    compute_memory_mb: float = Field(
        default_factory=lambda: available_memory() // 4 / 1e6,
        gt=0,
        description="megabytes of memory that computing one cloud, control or batch of sequences may take; "
        "default: a quarter of what this process may use",
    )
    request_timeout_s: float = setting(60.0, "seconds a request may take before 504", gt=0)
    shutdown_grace_s: float = setting(30.0, "seconds that running requests may take after SIGTERM", ge=0)

    api_keys: str = setting(
        "", "API keys, separated by commas, each `key` or `name:key`; empty: no key is needed", repr=False
    )
    api_keys_file: Path | None = setting(
        None, "file with one API key per line (`key` or `name:key`), read again on SIGHUP"
    )
    allowed_hosts: str = setting(
        "",
        'host names that requests may be addressed to, separated by commas; "*" allows any; default: those '
        "of this machine if HOST is loopback, otherwise any",
    )
    cors_allow_origin: str = setting(
        "", 'origins that browsers may call from, separated by commas; "*" allows any'
    )

    otlp_endpoint: str = setting("", "OpenTelemetry collector (OTLP over HTTP); empty: no traces")
    log_format: Literal["text", "json"] = setting("text", "log lines for people or for machines")
    log_level: Literal["debug", "info", "warning", "error"] = setting("info", "lowest level that is logged")

    @field_validator("root_path")
    @classmethod
    def _must_be_a_path(cls, path: str) -> str:
        path = path.rstrip("/")
        if not match_root_path(path):
            raise ValueError("should look like /sentiment")
        return path

    @field_validator("models_dir", "api_keys_file")
    @classmethod
    def _must_be_readable(cls, path: Path | None) -> Path | None:
        if path is not None:
            try:
                os.listdir(path) if path.is_dir() else path.stat()
            except FileNotFoundError:
                raise ValueError(f"{path} does not exist") from None
            except OSError as error:
                raise ValueError(f"{path} cannot be read: {error.strerror}") from None
        return path

    @field_validator("models_dir")
    @classmethod
    def _must_hold_bundles(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_dir():
            raise ValueError(f"{path} is not a folder")
        if path is not None and (path / "card.json").exists():
            raise ValueError(f"{path} is itself a bundle: give the folder that holds it, {path.parent}")
        return path

    @field_validator("api_keys")
    @classmethod
    def _must_hold_a_key(cls, keys: str) -> str:
        if keys and not _split_list(keys):
            raise ValueError("holds no key: leave it empty if none is needed")
        return keys

    @property
    def model_folders(self) -> list[Path]:
        """The folders of bundles; of two bundles with the same name the later folder's is served."""
        custom = [self.models_dir] if self.models_dir else []
        return [PRETRAINED_FOLDER, *custom] if self.pretrained_models else custom

    @property
    def host_names(self) -> list[str]:
        """The names that requests may be addressed to, unless any name is allowed."""
        return [*LOOPBACK, *_split_list(self.allowed_hosts.lower())]

    @property
    def any_host(self) -> bool:
        return "*" in _split_list(self.allowed_hosts) or (
            not self.allowed_hosts and self.host not in LOOPBACK and not self.host.startswith("127.")
        )

    @property
    def cors_origins(self) -> list[str]:
        return _split_list(self.cors_allow_origin)

    @cached_property
    def payload_limit_bytes(self) -> int:
        return int(self.payload_limit_mb * 1e6)

    @property
    def compute_memory_bytes(self) -> int:
        return int(self.compute_memory_mb * 1e6)


def load_settings(environ: Mapping[str, str] | None = None, **flags: Any) -> Settings:
    """Load settings from flags and environment; flags win. An unusable one raises ConfigurationError."""
    environ = os.environ if environ is None else environ
    names = {PREFIX + name.upper() for name in Settings.model_fields}
    variables = {
        name: value
        for name, value in environ.items()
        if name.startswith(PREFIX) and not _is_service_link(name, value)
    }
    unknown = sorted(variables.keys() - names)
    if unknown:
        raise ConfigurationError(f"{unknown[0]} is not a setting of hardmax", param=unknown[0])
    values = {name[len(PREFIX) :].lower(): value for name, value in variables.items() if value}
    try:
        return Settings.model_validate({**values, **flags})
    except ValidationError as error:
        problem = error.errors()[0]
        field = str(problem["loc"][0]) if problem["loc"] else "settings"
        name = f"--{field.replace('_', '-')}" if field in flags else PREFIX + field.upper()
        reason = problem["msg"].removeprefix("Value error, ")  # pydantic's prefix of a validator's message
        raise ConfigurationError(f"{name}: {reason}", param=name) from None


def _is_service_link(name: str, value: str) -> bool:
    """Return whether Kubernetes sets this variable, for a Service whose name begins with hardmax."""
    return bool(match_service_link(name)) or (name.endswith("_PORT") and value.startswith("tcp://"))


def _split_list(names: str) -> list[str]:
    return [name for part in names.split(",") if (name := part.strip())]


def available_cpus() -> int:
    """Return the CPUs this process may use: its affinity, limited by a cgroup quota (v2 or v1) if any."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_quota(Path("/sys/fs/cgroup"))
    return max(1, min(allowed, math.ceil(quota))) if quota else allowed


def available_memory() -> int:
    """Return the bytes this process may use: the machine's, limited by a cgroup (v2 or v1) if any."""
    bounds = [16 * 2**30]
    if hasattr(os, "sysconf"):
        bounds.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # no such file, or "max"
            bounds.append(int((Path("/sys/fs/cgroup") / name).read_text()))
    return min(bounds)


def _cgroup_quota(root: Path) -> float | None:
    """Return the number of CPUs that a cgroup mounted at `root` grants; None if it grants all."""
    try:
        if (root / "cpu.max").exists():
            limit, period = (root / "cpu.max").read_text().split()
        else:
            limit = (root / "cpu/cpu.cfs_quota_us").read_text().strip()
            period = (root / "cpu/cpu.cfs_period_us").read_text().strip()
        return None if limit in ("max", "-1") else int(limit) / int(period)
    except (OSError, ValueError):
        return None
