"""The examples run as a reader would run them, and show what the paper shows."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import matplotlib
import pytest
from paths import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture
def paper() -> ModuleType:
    matplotlib.use("Agg")
    spec = importlib.util.spec_from_file_location("paper", ROOT / "examples/paper.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples_stand_on_the_public_face(example: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(example.read_text())):
        if isinstance(node, ast.Import):
            imported |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module).split(".")[0])
    assert imported <= {"hardmax", "numpy", "matplotlib", *sys.stdlib_module_names}


def test_paper_figure_1_follows_the_largest_score(paper: ModuleType, tmp_path: Path) -> None:
    chosen = paper.figure_1(tmp_path / "figure1.svg")
    assert chosen == [int((paper.CHOICE @ A @ paper.CHOICE[0]).argmax()) for A in paper.FORMS.values()]
    assert len(set(chosen)) == 2
    assert (tmp_path / "figure1.svg").stat().st_size > 10_000


def test_paper_figure_2_has_the_leaders_of_the_paper(paper: ModuleType, tmp_path: Path) -> None:
    triangle, emerging = paper.figure_2(tmp_path / "figure2.svg")
    assert triangle == {"0": 0, "1": 0, "2": 0}
    assert emerging == {"0": 0, "1": 1, "2": 0}
    assert (tmp_path / "figure2.svg").stat().st_size > 10_000
