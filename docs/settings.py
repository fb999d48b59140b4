"""Write `.env.example` and `docs/reference/settings.md` from the settings: `python docs/settings.py`."""

from pathlib import Path
from textwrap import fill

from service.settings import PREFIX, Settings

ROOT = Path(__file__).parent.parent
WIDTH = 120
IN_THE_IMAGE = ("host", "port", "provider")
FROM_COMPOSE = {"models_dir": "MODELS", "api_keys_file": "KEYS"}
IMAGE_DEFAULTS = {"log_format": "json"}
# compose always sets this one, to the names that containers use
COMPOSE_MEANINGS = {
    "allowed_hosts": "Host names that callers use besides those of this machine, separated by commas; "
    '"*" allows any'
}

HEAD = """\
# Copy to .env and change what you need; every variable may be left out. `docker compose` reads .env.
# HARDMAX_... are the settings of the service, the same as the flags of `hardmax serve`; the others belong to
# compose.yaml. Written by docs/settings.py.
"""
COMPOSE = """\
# ---- compose

# Where the edge is published, in front of the service. 0.0.0.0:8000 opens it to the network: set KEYS and
# HARDMAX_ALLOWED_HOSTS first.
#PUBLISH=127.0.0.1:8000
# Where the edge is published with TLS, in the profile tls.
#PUBLISH_TLS=127.0.0.1:8443
# The folder with certificate.pem and key.pem (make certificate).
#CERTIFICATES=./docker/edge/certificates
# Memory the service may have, and CPUs (0: all).
#MEMORY=4g
#CPUS=0
# A folder of model bundles to serve next to those in the image.
#MODELS=./models
# A folder with a file api_keys, one key a line. After a change: docker compose kill -s HUP hardmax
#KEYS=./keys
# How long a stopping service may take before it is killed: longer than HARDMAX_SHUTDOWN_GRACE_S.
#STOP_GRACE=40s
# The images to run, for a registry's copy.
#IMAGE=hardmax:latest
#IMAGE_GPU=hardmax:gpu
# Where the profile gpu publishes the service.
#PUBLISH_GPU=127.0.0.1:8001
"""
PAGE = """\
# Settings

Each setting is a flag of `hardmax serve` and an environment variable; the flag wins. An unknown variable or a
bad value stops the start with one line that names it. [Deploy and operate](../operate/operations.md#settings)
says when to change one.

| flag | variable | default | meaning |
|---|---|---|---|
"""


def default_of(name: str) -> str:
    """Return the default as a variable shows it; empty where there is none or it depends on the machine."""
    field = Settings.model_fields[name]
    if isinstance(field.default, bool):
        return str(field.default).lower()
    return "" if field.default is None or field.default_factory else str(field.default)


def sentence(name: str) -> str:
    description = str(Settings.model_fields[name].description)
    return description[0].upper() + description[1:]


def env_example() -> str:
    """Return the text of .env.example."""
    blocks = [HEAD, "# ---- the service\n"]
    for name in Settings.model_fields:
        if name not in IN_THE_IMAGE and name not in FROM_COMPOSE:
            meaning = COMPOSE_MEANINGS.get(name) or sentence(name)
            comment = fill(f"{meaning}.", WIDTH - 2, initial_indent="# ", subsequent_indent="# ")
            value = IMAGE_DEFAULTS.get(name, default_of(name))
            blocks.append(f"{comment}\n#{PREFIX}{name.upper()}={value}")
    fixed = ", ".join(f"{PREFIX}{name.upper()}" for name in IN_THE_IMAGE)
    given = ", ".join(f"{PREFIX}{name.upper()} from {variable}" for name, variable in FROM_COMPOSE.items())
    blocks.append(f"\n# Set by the images: {fixed}.\n# Set by compose.yaml: {given}.\n")
    return "\n".join([*blocks, COMPOSE])


def page() -> str:
    """Return the page with the table of all settings."""
    rows = [
        f"| `--{name.replace('_', '-')}` | `{PREFIX}{name.upper()}` "
        f"| {f'`{default_of(name)}`' if default_of(name) else ''} | {sentence(name)} |".replace("|  |", "| |")
        for name in Settings.model_fields
    ]
    return PAGE + "\n".join(rows) + "\n"


if __name__ == "__main__":
    (ROOT / ".env.example").write_text(env_example())
    (ROOT / "docs/reference/settings.md").write_text(page())
