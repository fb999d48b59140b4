"""The rules of what we take, each a function from what is there to sentences that say what is wrong."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from supply.licences import refused
from supply.packages import Declared, Package, read_hashes, read_pins, unpinned_lines

# Which extras the code of each room may import from, beside the base.
ROOMS = {
    "service": ("cpu", "plot", "control", "tracing", "ray"),
    "model_export": ("cpu", "plot", "control", "export"),
    "supply": ("test",),
    "benchmarks": ("cpu", "plot", "control", "export", "test"),
    "tests": ("cpu", "plot", "control", "tracing", "ray", "export", "test", "dev"),
}


# Modules of the benchmarks' peers, which are installed elsewhere, so that nobody here knows whose they are.
NOT_HERE = {"faiss": ["faiss-cpu"], "fasttext": ["fasttext-wheel", "fasttext"]}


def undeclared_imports(root: Path, declared: Declared) -> Iterator[str]:
    """Third-party modules that a room imports although no extra of that room declares them."""
    owners = {**NOT_HERE, **packages_distributions()}
    for room, extras in ROOMS.items():
        # pytest puts the folder of a test on the path: tests import their neighbours by bare name
        ours = {*ROOMS, *({path.stem for path in (root / room).rglob("*.py")} if room == "tests" else ())}
        allowed = {canonicalize_name(need.name) for need in declared.of(*extras)} | _peers(root / room)
        for path in sorted((root / room).rglob("*.py")):
            for module in sorted(imported_modules(path.read_text()) - ours - sys.stdlib_module_names):
                names = {canonicalize_name(name) for name in owners.get(module, [module])}
                if not names & allowed:
                    where = path.relative_to(root)
                    yield f"{where} imports {module}, which no extra of {room} declares ({', '.join(extras)})"


def imported_modules(source: str) -> set[str]:
    """The top-level modules a file imports, wherever in it; relative imports are its own."""
    modules = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            modules.add(node.module.partition(".")[0])
    return modules


def _peers(room: Path) -> set[str]:
    """What the benchmark's peers need: requirements files of their own, installed apart."""
    return {name for path in room.glob("requirements-*.txt") for name in read_pins(path.read_text())}


def unpinned(constraints: str, declared: Declared, packages: Iterable[Package]) -> Iterator[str]:
    """What is declared or needed and has no exact version in constraints.txt."""
    pins = read_pins(constraints)
    for line in unpinned_lines(constraints):
        yield f"constraints.txt: {line!r} is not an exact version"
    for extra, needs in declared.extras.items():
        for need in needs:
            if canonicalize_name(need.name) not in pins:
                yield f"{need.name} (extra {extra}) has no pin in constraints.txt"
    for package in packages:
        if package.name not in pins:
            yield f"{package.name} is needed and has no pin in constraints.txt"


def other_versions(constraints: str, packages: Iterable[Package]) -> Iterator[str]:
    """What is installed in another version than the pinned one."""
    pins = read_pins(constraints)
    for package in packages:
        pinned = pins.get(package.name, package.version)
        if package.version.partition("+")[0] != pinned.partition("+")[0]:
            yield f"{package.name} {package.version} is installed, constraints.txt says {pinned}"


def unhashed(lock: str, constraints: str, runtime: Mapping[str, Package]) -> Iterator[str]:
    """What the service needs and requirements.lock lacks, has in another version, or has without a digest."""
    pins, locked, hashes = read_pins(constraints), read_pins(lock), read_hashes(lock)
    for name in runtime:
        if name not in locked:
            yield f"{name} is not in requirements.lock: make lock"
        elif locked[name] != pins.get(name, locked[name]):
            yield f"{name} is {locked[name]} in requirements.lock, {pins[name]} in constraints.txt: make lock"
    for name, digests in hashes.items():
        if not digests:
            yield f"{name} has no sha256 in requirements.lock: make lock"


def refused_licences(packages: Iterable[Package]) -> Iterator[str]:
    """What comes under a licence that we do not take, or that nobody has read."""
    for package in packages:
        if bad := refused(package.licence):
            yield f"{package.name} {package.version} comes under {', '.join(sorted(bad))} ({package.licence})"


def loose_sources(constraints: str, declared: Declared) -> Iterator[str]:
    """Requirements that are fetched from an address instead of an index: no digest would hold them."""
    for need in (*declared.base, *(need for needs in declared.extras.values() for need in needs)):
        if need.url:
            yield f"{need.name} is fetched from an address: {need.url}"
    for line in constraints.splitlines():
        if "://" in line and not line.lstrip().startswith("#"):
            yield f"constraints.txt names an address: {line.strip()}"


def runtime_roots(declared: Declared) -> tuple[Requirement, ...]:
    """What an installed service may need, all its lanes included."""
    return declared.of("cpu", "control", "plot", "tracing")
