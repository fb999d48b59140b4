"""Dependencies: pinned everywhere, and locked with digests where they are installed for a service."""

import re
import tomllib
from collections.abc import Iterable

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from paths import ROOT

PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)", re.MULTILINE)


def read_pins(text: str) -> dict[str, str]:
    """Return canonical name -> version of every line of a requirements file that pins one."""
    return {canonicalize_name(name): version for name, version in PIN.findall(text)}


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CLIENT = tomllib.loads((ROOT / "hardmax/pyproject.toml").read_text())["project"]
PINS = read_pins((ROOT / "constraints.txt").read_text()) | read_pins(
    (ROOT / "docker/constraints-gpu.txt").read_text()
)
LOCKS = {
    "requirements.lock": ("cpu", "tracing"),
    "docker/gpu.lock": ("gpu", "tracing"),
    "docker/ray.lock": ("cpu", "tracing", "ray"),
    "docker/export.lock": ("cpu", "plot", "export"),
}
DOCKERFILE = (ROOT / "Dockerfile").read_text()
DIGEST = re.compile(r"@sha256:[0-9a-f]{64}")


def names(requirements: Iterable[str]) -> set[str]:
    return {canonicalize_name(Requirement(requirement).name) for requirement in requirements}


def test_every_requirement_has_an_exact_version() -> None:
    lines = [line.strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    unpinned = [line for line in lines if line and not line.startswith("#") and not read_pins(line)]
    assert unpinned == []
    requirements = [
        PROJECT["dependencies"],
        CLIENT["dependencies"],
        *PROJECT["optional-dependencies"].values(),
    ]
    assert set().union(*map(names, requirements)) - PINS.keys() == set()


def test_client_and_service_are_released_together() -> None:
    assert CLIENT["version"] == PROJECT["version"]
    assert {"httpx", "numpy", "pydantic"} == names(CLIENT["dependencies"]) < names(PROJECT["dependencies"])
    assert set(CLIENT["dependencies"]) < set(PROJECT["dependencies"])


def test_no_requirement_has_a_url() -> None:
    for requirements in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()):
        assert [requirement for requirement in requirements if Requirement(requirement).url] == []
    for path in ("constraints.txt", *LOCKS):
        assert "://" not in (ROOT / path).read_text()


@pytest.mark.parametrize("path", LOCKS)
def test_lock_has_the_requirements_of_its_image_with_digests(path: str) -> None:
    text = (ROOT / path).read_text()
    locked = read_pins(text)
    extras = (PROJECT["optional-dependencies"][extra] for extra in LOCKS[path])
    requirements = [PROJECT["dependencies"], *extras]
    assert set().union(*map(names, requirements)) - locked.keys() == set(), "run: make lock"
    assert len(re.findall(r"^\S+==.+\\\n +--hash=sha256:[0-9a-f]{64}\b", text, re.MULTILINE)) == len(locked)
    tested = {name: PINS[name] for name in locked if name in PINS}
    # The CUDA libraries are chosen by torch in the image for training, and by us in the one for serving.
    differing = {
        name
        for name, version in tested.items()
        if locked[name] != version and not (path == "docker/export.lock" and name.startswith("nvidia-"))
    }
    assert differing == set(), "run: make lock"


def test_image_and_manifests_have_the_version_of_the_package() -> None:
    version = PROJECT["version"]
    assert f"ARG VERSION={version}\n" in DOCKERFILE
    kustomization = yaml.safe_load((ROOT / "deploy/kubernetes/kustomization.yaml").read_text())
    assert [image["newTag"] for image in kustomization["images"]] == [version]
    runtime = yaml.safe_load((ROOT / "deploy/kserve/runtime.yaml").read_text())
    assert [container["image"] for container in runtime["spec"]["containers"]] == [f"hardmax:{version}"]
    operations = (ROOT / "docs/operate/operations.md").read_text()
    assert set(re.findall(r"REGISTRY/hardmax:(\d[\d.]*\d)", operations)) == {version}
    releases = re.findall(r"^## \[(\d[^]]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert releases[0] == version


def test_images_install_only_from_locks_with_digests() -> None:
    installs = [line for line in DOCKERFILE.splitlines() if re.search(r"pip install|\$INSTALL", line)]
    assert len(installs) == 6
    for line in installs:
        assert "--require-hashes -r" in line or "--no-index" in line, line
    assert set(re.findall(r"COPY (\S+\.lock)", DOCKERFILE)) == {*LOCKS, "docker/build.lock"}
    build = read_pins((ROOT / "docker/build.lock").read_text())
    assert f"hatchling=={build['hatchling']}" in (ROOT / "pyproject.toml").read_text()
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    assert {"!requirements.lock", "!docker/*.lock"} <= set(allowed)


def test_base_images_and_actions_are_pinned_by_digest() -> None:
    [base] = re.findall(r"^ARG PYTHON=(.+)$", DOCKERFILE, re.MULTILINE)
    assert DIGEST.search(base)
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    images = [service["image"] for service in services.values() if "build" not in service]
    assert len(images) == 4
    assert [image for image in images if not DIGEST.search(image)] == []
    actions = re.findall(r"uses: (\S+)", (ROOT / ".github/workflows/ci.yaml").read_text())
    assert len(actions) >= 3
    assert [action for action in actions if not re.search(r"@[0-9a-f]{40}$", action)] == []


def test_licences_of_the_service_are_listed() -> None:
    rows = re.findall(
        r"^\| (\S+) +\| (\S+) +\| (.+?) +\|$", (ROOT / "docs/operate/licences.md").read_text(), re.M
    )
    listed = {canonicalize_name(name): version for name, version, _ in rows if name != "Name"}
    assert listed.items() <= read_pins((ROOT / "requirements.lock").read_text()).items()
    assert names(PROJECT["dependencies"]) - listed.keys() == set()
    assert not [row for row in rows if "UNKNOWN" in row[2]]


def test_fonts_of_the_page_are_listed_with_their_copyright() -> None:
    fonts = ROOT / "service/web/fonts"
    notice = (fonts / "OFL.txt").read_text()
    for font in fonts.glob("*.woff2"):
        assert re.search(rf"^.*\b{re.escape(font.name)}\b.*: Copyright ", notice, re.MULTILINE), font.name
