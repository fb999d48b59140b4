"""`python -m supply.sbom`: docs/sbom.json (CycloneDX 1.6) and docs/licences.md, what a running service holds.

The same tree gives the same bytes: no date, and a serial number drawn from the content.
"""

from __future__ import annotations

import json
import sys
import tomllib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from supply.assets import LICENCE, Asset, read_assets
from supply.packages import ROOT, Package, closure, read_declared
from supply.rules import runtime_roots

SBOM, LICENCES = Path("docs/sbom.json"), Path("docs/licences.md")
OURS = "hardmax"
IMAGES = ("linux", (3, 11))


def write(root: Path = ROOT) -> None:
    for path, content in _documents(root).items():
        (root / path).write_text(content)


def outdated(root: Path = ROOT) -> Iterator[str]:
    """A committed document that no longer says what is pinned.

    subtle: what is needed differs by system and Python, so only those of the images can tell.
    """
    if (sys.platform, sys.version_info[:2]) != IMAGES:
        return
    for path, content in _documents(root).items():
        if not (root / path).exists() or (root / path).read_text() != content:
            yield f"{path} does not say what is pinned: make sbom"


def _documents(root: Path) -> dict[Path, str]:
    declared = read_declared(root)
    runtime = closure(runtime_roots(declared))
    everything = closure(declared.of(*declared.extras))
    assets = read_assets(root)
    bill = bill_of_materials(runtime, read_models(root / "service" / "models"), _version(root), assets)
    return {
        SBOM: json.dumps(bill, indent=1) + "\n",
        LICENCES: licence_list(runtime, everything, assets),
    }


def _version(root: Path) -> str:
    return str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])


def read_models(folder: Path) -> list[dict[str, Any]]:
    """The cards of the bundled models."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*/card.json"))]


def bill_of_materials(
    packages: Mapping[str, Package],
    models: list[dict[str, Any]],
    version: str,
    assets: Sequence[Asset] = (),
) -> dict[str, Any]:
    """The service, its libraries, its models and the page's fonts as CycloneDX 1.6."""
    roots = sorted(packages.keys() - {need for package in packages.values() for need in package.needs})
    content = {
        "metadata": {"component": {"type": "application", "bom-ref": OURS, "name": OURS, "version": version}},
        "components": [*map(_library, packages.values()), *map(_model, models), *map(_file, assets)],
        "dependencies": [
            {
                "ref": OURS,
                "dependsOn": [
                    *map(_ref, map(packages.get, roots)),
                    *map(_model_ref, models),
                    *map(_file_ref, assets),
                ],
            },
            *(
                {"ref": _ref(package), "dependsOn": [_ref(packages[need]) for need in package.needs]}
                for package in packages.values()
            ),
        ],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(content, sort_keys=True))
    head = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
    }
    return {**head, **content}


def _library(package: Package) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": _ref(package),
        "name": package.name,
        "version": package.version,
        "purl": _ref(package),
        "licenses": [{"expression": package.licence}],
    }


def _model(card: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "machine-learning-model",
        "bom-ref": _model_ref(card),
        "name": card["name"],
        "description": card["description"],
        "hashes": [{"alg": "SHA-256", "content": card["model_sha256"]}],
        "licenses": [{"license": {"name": card["licence"]}}],
    }


def _file(asset: Asset) -> dict[str, Any]:
    return {
        "type": "file",
        "bom-ref": _file_ref(asset),
        "name": asset.path,
        "hashes": [{"alg": "SHA-256", "content": asset.sha256}],
        "licenses": [{"expression": LICENCE}],
        "copyright": asset.owner,
    }


def _ref(package: Package | None) -> str:
    return f"pkg:pypi/{package.name}@{package.version}" if package else ""


def _model_ref(card: Mapping[str, Any]) -> str:
    return f"model:{card['name']}"


def _file_ref(asset: Asset) -> str:
    return f"file:{asset.path}"


def licence_list(
    runtime: Mapping[str, Package], everything: Mapping[str, Package], assets: Sequence[Asset] = ()
) -> str:
    """Tables for people: what a running service holds, then what building and testing need besides."""
    besides = {name: package for name, package in everything.items() if name not in runtime}
    return "\n".join(
        [
            "# Licences of what we use",
            "",
            "Written by `make sbom` from the packages' own statements; `make check` refuses unread ones.",
            "",
            "## In a running service",
            "",
            *_rows(runtime),
            "",
            "## Files of the page",
            "",
            "Fonts, as subsets; all other files of the page were written for it. The models' licences are in",
            "their cards and in the [bill of materials](sbom.json).",
            "",
            "| file | of | licence |",
            "|---|---|---|",
            *(f"| {asset.path} | {asset.owner} | {LICENCE} |" for asset in assets),
            "",
            "## For training, export, tests and development only",
            "",
            *_rows(besides),
            "",
        ]
    )


def _rows(packages: Mapping[str, Package]) -> list[str]:
    rows = [f"| {package.name} | {package.version} | {package.licence} |" for package in packages.values()]
    return ["| package | version | licence |", "|---|---|---|", *rows]


if __name__ == "__main__":
    write()
