"""What is declared (pyproject.toml), pinned (constraints.txt), hashed (requirements.lock) and installed.

Reads only; what it may mean is said in rules.py.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from supply.licences import licence_of

ROOT = Path(__file__).parents[1]
PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Package:
    """One installed distribution, and the canonical names of those it needs here."""

    name: str
    version: str
    licence: str
    needs: tuple[str, ...]


@dataclass(frozen=True)
class Declared:
    """The requirements of pyproject.toml: the base and each extra."""

    base: tuple[Requirement, ...]
    extras: Mapping[str, tuple[Requirement, ...]]

    def of(self, *extras: str) -> tuple[Requirement, ...]:
        """The base and these extras together."""
        return self.base + tuple(need for extra in extras for need in self.extras[extra])


def read_declared(root: Path = ROOT) -> Declared:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = {
        name: tuple(map(Requirement, needs)) for name, needs in project["optional-dependencies"].items()
    }
    return Declared(tuple(map(Requirement, project["dependencies"])), extras)


def read_pins(text: str) -> dict[str, str]:
    """Canonical name -> version of every line that pins one exactly; `unpinned_lines` finds the others."""
    found = filter(None, map(PIN.match, text.splitlines()))
    return {canonicalize_name(pin["name"]): pin["version"] for pin in found}


def unpinned_lines(text: str) -> list[str]:
    """Lines of a constraints file that hold a requirement but no exact version."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#") and not PIN.match(line)]


def read_hashes(text: str) -> dict[str, tuple[str, ...]]:
    """Canonical name -> sha256 digests of every entry in a lock file of pip's form."""
    hashes: dict[str, tuple[str, ...]] = {}
    name = ""
    for line in text.splitlines():
        if pin := PIN.match(line):
            name = canonicalize_name(pin["name"])
            hashes[name] = ()
        elif name:
            hashes[name] += tuple(HASH.findall(line))
    return hashes


def find_installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def closure(
    roots: Iterable[Requirement], find: Callable[[str], Distribution | None] = find_installed
) -> dict[str, Package]:
    """Every installed package that these requirements need, themselves included, by canonical name."""
    packages: dict[str, Package] = {}
    waiting = [need for need in roots if _applies(need, ())]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        found = find(name)
        if found is None or (name, frozenset(wanted.extras)) in seen:
            continue
        seen.add((name, frozenset(wanted.extras)))
        needs = [need for need in map(Requirement, found.requires or ()) if _applies(need, wanted.extras)]
        before = packages[name].needs if name in packages else ()
        names = {near for near in (canonicalize_name(need.name) for need in needs) if find(near)}
        packages[name] = Package(name, found.version, licence_of(found), tuple(sorted({*before, *names})))
        waiting += needs
    return dict(sorted(packages.items()))


def _applies(need: Requirement, extras: Iterable[str]) -> bool:
    """Whether a requirement holds on this machine, for these extras of the package that states it."""
    return need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ("", *extras))
