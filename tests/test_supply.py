"""The rules of what we take: each finds what it is for, and says so in a sentence that names it."""

from __future__ import annotations

import importlib.metadata
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from supply import rules
from supply.assets import Asset, read_assets, unnamed
from supply.licences import licence_of, refused
from supply.packages import Declared, Package, closure, read_hashes, read_pins, unpinned_lines
from supply.sbom import bill_of_materials, licence_list

NOTHING = Declared((), {})
DIGEST = "ab" * 32


def distribution(folder: Path, name: str, *lines: str) -> Distribution:
    """An installed package that states these lines."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("\n".join([f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0", *lines]))
    return importlib.metadata.Distribution.at(info)


def package(name: str, licence: str = "MIT", *needs: str) -> Package:
    return Package(name, "1.0", licence, needs)


@pytest.mark.parametrize(
    ("lines", "expression"),
    [
        (["License-Expression: MIT AND PSF-2.0", "License: something else"], "MIT AND PSF-2.0"),
        (["License: Apache-2.0"], "Apache-2.0"),
        (["Classifier: License :: OSI Approved :: BSD License"], "BSD-3-Clause"),
        (["License: BSD 2-Clause License"], "BSD-2-Clause"),
        (["License: Ask our lawyers"], "unknown"),
        ([], "unknown"),
    ],
)
def test_licence_is_read_from_expression_prose_or_classifier(
    tmp_path: Path, lines: list[str], expression: str
) -> None:
    assert licence_of(distribution(tmp_path, "thing", *lines)) == expression


@pytest.mark.parametrize(
    ("expression", "bad"),
    [
        ("MIT AND (Apache-2.0 WITH LLVM-exception)", set()),
        ("MIT OR GPL-3.0-only", {"GPL-3.0-only"}),
        ("unknown", {"unknown"}),
    ],
)
def test_refused_names_every_licence_we_do_not_take(expression: str, bad: set[str]) -> None:
    assert refused(expression) == bad
    sentences = list(rules.refused_licences([package("thing", expression)]))
    assert sentences == ([f"thing 1.0 comes under {', '.join(bad)} ({expression})"] if bad else [])


def test_closure_follows_extras_and_markers_of_this_machine(tmp_path: Path) -> None:
    installed = {
        "server": distribution(
            tmp_path, "server", "Requires-Dist: Fast_Loop; extra == 'fast'", "Requires-Dist: base>=1"
        ),
        "fast-loop": distribution(tmp_path, "fast-loop", "Requires-Dist: winonly; sys_platform == 'win32'"),
        "base": distribution(tmp_path, "base", "Requires-Dist: server[fast]", "Requires-Dist: absent"),
        "winonly": distribution(tmp_path, "winonly"),
    }
    find = installed.get
    assert list(closure([Requirement("server")], find)) == ["base", "fast-loop", "server"]
    packages = closure([Requirement("server[fast]")], find)
    assert packages["server"].needs == ("base", "fast-loop")
    assert packages["base"].needs == ("server",)


def test_unpinned_names_loose_lines_and_needed_packages() -> None:
    declared = Declared((), {"cpu": (Requirement("onnxruntime>=1"),)})
    assert unpinned_lines("# why\nnumpy==2.0\nscipy>=1.1\n") == ["scipy>=1.1"]
    assert list(rules.unpinned("NumPy==2.0\nscipy>=1.1", declared, [package("numpy"), package("scipy")])) == [
        "constraints.txt: 'scipy>=1.1' is not an exact version",
        "onnxruntime (extra cpu) has no pin in constraints.txt",
        "scipy is needed and has no pin in constraints.txt",
    ]


def test_other_versions_ignores_only_the_build_of_a_version() -> None:
    installed = [Package("torch", "2.13.0+cpu", "MIT", ()), Package("numpy", "2.1", "MIT", ())]
    found = list(rules.other_versions("torch==2.13.0\nnumpy==2.0", installed))
    assert found == ["numpy 2.1 is installed, constraints.txt says 2.0"]


def test_unhashed_finds_missing_stale_and_unhashed_entries() -> None:
    digest = f"    --hash=sha256:{DIGEST}"
    lock = "\n".join(["a==1.0 \\", digest, "b==2.0 ; os_name == 'nt' \\", digest, "c==1.0"])
    assert read_pins(lock) == {"a": "1.0", "b": "2.0", "c": "1.0"}
    assert read_hashes(lock) == {"a": (DIGEST,), "b": (DIGEST,), "c": ()}
    needed = {name: package(name) for name in ("a", "b", "d")}
    assert list(rules.unhashed(lock, "b==2.1", needed)) == [
        "b is 2.0 in requirements.lock, 2.1 in constraints.txt: make lock",
        "d is not in requirements.lock: make lock",
        "c has no sha256 in requirements.lock: make lock",
    ]


def test_undeclared_imports_are_found_wherever_they_stand(tmp_path: Path) -> None:
    room = tmp_path / "service"
    room.mkdir()
    (room / "lazy.py").write_text("import json\nfrom . import near\ndef f():\n    import pytest.mark\n")
    declared = Declared((), {extra: () for extras in rules.ROOMS.values() for extra in extras})
    [sentence] = rules.undeclared_imports(tmp_path, declared)
    assert sentence.startswith("service/lazy.py imports pytest, which no extra of service declares")
    allowed = Declared((Requirement("pytest"),), declared.extras)
    assert list(rules.undeclared_imports(tmp_path, allowed)) == []


def test_loose_sources_finds_addresses() -> None:
    declared = Declared((Requirement("thing @ https://example.org/thing.whl"),), {})
    assert list(rules.loose_sources("a @ https://example.org/a.whl", declared)) == [
        "thing is fetched from an address: https://example.org/thing.whl",
        "constraints.txt names an address: a @ https://example.org/a.whl",
    ]
    assert list(rules.loose_sources("# see https://example.org\na==1", NOTHING)) == []


def test_bill_of_materials_lists_libraries_models_and_their_graph() -> None:
    packages = {"a": package("a", "MIT", "b"), "b": package("b", "0BSD")}
    card = {"name": "sentiment", "description": "d", "licence": "CC-BY-4.0", "model_sha256": DIGEST}
    bill = bill_of_materials(packages, [card], "1.2.3")
    assert [component["bom-ref"] for component in bill["components"]] == [
        "pkg:pypi/a@1.0",
        "pkg:pypi/b@1.0",
        "model:sentiment",
    ]
    assert bill["components"][2]["hashes"] == [{"alg": "SHA-256", "content": DIGEST}]
    assert bill["dependencies"] == [
        {"ref": "hardmax", "dependsOn": ["pkg:pypi/a@1.0", "model:sentiment"]},
        {"ref": "pkg:pypi/a@1.0", "dependsOn": ["pkg:pypi/b@1.0"]},
        {"ref": "pkg:pypi/b@1.0", "dependsOn": []},
    ]
    assert bill == bill_of_materials(packages, [card], "1.2.3")
    assert bill["serialNumber"] != bill_of_materials(packages, [card], "1.2.4")["serialNumber"]


def test_licence_list_separates_the_service_from_the_workshop() -> None:
    a, b = package("a"), package("b", "0BSD")
    running, besides = licence_list({"a": a}, {"a": a, "b": b}).split("## For training")
    assert "| a | 1.0 | MIT |" in running
    assert "| b | 1.0 | 0BSD |" in besides
    assert "| a |" not in besides


def test_fonts_are_named_with_owner_and_digest_and_a_stranger_is_found(tmp_path: Path) -> None:
    fonts = tmp_path / "service" / "web" / "fonts"
    fonts.mkdir(parents=True)
    (fonts / "OFL.txt").write_text("a.woff2, b.woff2: Copyright 2020 The A Authors\n\nThis: is no font.\n")
    for name in ("a.woff2", "b.woff2", "c.woff2"):
        (fonts / name).write_bytes(b"")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    owner = "Copyright 2020 The A Authors"
    a, b = (Asset(f"service/web/fonts/{name}.woff2", owner, empty) for name in "ab")
    assert read_assets(tmp_path) == [a, b]
    assert list(unnamed(tmp_path)) == ["service/web/fonts/c.woff2 is named in no notice: whose is it?"]
    assert f"| {a.path} | {owner} | OFL-1.1 |" in licence_list({}, {}, [a, b])
    [file, _] = bill_of_materials({}, [], "1", [a, b])["components"]
    assert (file["type"], file["copyright"], file["hashes"][0]["content"]) == ("file", owner, empty)
