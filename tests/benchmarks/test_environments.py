"""Peers have what they need, and one that cannot be installed is told of in the report, with the reason."""

import ast
import sys
from pathlib import Path

import pytest
from pins import read_pins

from benchmarks.environments import ROOT, CannotInstall, _run, environment
from benchmarks.http import MODEL_LIBRARIES, is_present
from benchmarks.record import Record
from benchmarks.servers import OURS


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("ERROR: one\nERROR: No such version\n[notice] a new pip", "No such version"),
        ("Killed\n", "Killed"),
        ("", "it ended with 3"),
    ],
)
def test_installer_that_fails_is_told_in_a_line(said: str, reason: str) -> None:
    program = f"import sys; sys.stderr.write({said!r}); sys.exit(3)"
    with pytest.raises(CannotInstall) as refused:
        _run(sys.executable, "-c", program)
    assert str(refused.value) == reason


def test_our_own_environment_is_always_present() -> None:
    record = Record("http", "HTTP", MODEL_LIBRARIES)
    assert environment(None) == sys.executable
    assert is_present(OURS, record)
    assert record.notes == []


def needs(path: Path, seen: set[Path]) -> set[str]:
    """What a file of ours imports that is not ours, and what the files it imports do."""
    seen.add(path)
    found: set[str] = set()
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            ours = ROOT / f"{name.replace('.', '/')}.py"
            if ours.exists() and ours not in seen:
                found |= needs(ours, seen)
            elif not (ROOT / name.partition(".")[0]).is_dir():
                found.add(name.partition(".")[0])
    return found - sys.stdlib_module_names


@pytest.mark.parametrize("peer", ["litserve", "bentoml", "mlserver"])
def test_http_peers_have_our_versions_of_what_the_model_needs(peer: str) -> None:
    wanted = needs(ROOT / "benchmarks/peers/sentiment.py", set())
    assert {"numpy", "onnxruntime"} <= wanted
    ours = read_pins((ROOT / "constraints.txt").read_text())
    theirs = read_pins((ROOT / f"benchmarks/requirements-{peer}.txt").read_text())
    assert {name: theirs.get(name) for name in wanted} == {name: ours[name] for name in wanted}
