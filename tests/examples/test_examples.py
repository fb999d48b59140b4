"""The examples run as a reader would run them, and show what the paper shows."""

import ast
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib
import numpy as np
import pytest
from paths import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def example(name: str) -> dict[str, Any]:
    matplotlib.use("Agg")
    return runpy.run_path(str(ROOT / f"examples/{name}.py"))


@pytest.fixture
def paper() -> SimpleNamespace:
    return SimpleNamespace(**example("paper"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_stand_on_the_public_face(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module).split(".")[0])
    assert imported <= {"hardmax", "numpy", "matplotlib", *sys.stdlib_module_names}


def test_paper_figure_1_follows_the_largest_score(paper: SimpleNamespace, tmp_path: Path) -> None:
    chosen = paper.figure_1(tmp_path / "figure1.svg")
    assert chosen == [int((paper.CHOICE @ A @ paper.CHOICE[0]).argmax()) for A in paper.FORMS.values()]
    assert len(set(chosen)) == 2
    assert (tmp_path / "figure1.svg").stat().st_size > 10_000


def test_paper_figure_2_has_the_leaders_of_the_paper(paper: SimpleNamespace, tmp_path: Path) -> None:
    triangle, emerging = paper.figure_2(tmp_path / "figure2.svg")
    assert triangle == {"0": 0, "1": 0, "2": 0}
    assert emerging == {"0": 0, "1": 1, "2": 0}
    assert (tmp_path / "figure2.svg").stat().st_size > 10_000


def test_paper_review_ends_with_its_leaders(paper: SimpleNamespace, tmp_path: Path) -> None:
    """All words of a cluster end nearer to its leader than they began, and the picture names the leaders."""
    answer = paper.review(tmp_path / "review.svg")
    first, last = (np.array([getattr(word, name) for word in answer.words]) for name in ("start", "end"))
    leads = {word.cluster: i for i, word in enumerate(answer.words) if word.leader}
    led = [leads[word.cluster] for word in answer.words]
    assert np.linalg.norm(last - last[led]) < np.linalg.norm(first - first[led])
    picture = (tmp_path / "review.svg").read_text()
    assert all(f"<!--   {answer.words[i].text} -->" in picture for i in leads.values())


def test_irony_is_counted_as_the_model_answers() -> None:
    irony = SimpleNamespace(**example("irony"))
    found = irony.judged()
    kinds = [(row["kind"], row["label"]) for row, _ in found]
    assert [kinds.count(("ironic", label)) for label in ("negative", "positive")] == [16, 4]
    assert [kinds.count(("plain", label)) for label in ("negative", "positive")] == [10, 10]
    lines = list(irony.report(found))
    right = []
    for kind, line in zip(("plain", "ironic"), lines, strict=False):
        ends = [a.abstain_reason or a.label == row["label"] for row, a in found if row["kind"] == kind]
        right.append(ends.count(True))
        unknown = 20 - ends.count(True) - ends.count(False)
        assert line == f"{kind:7}{right[-1]:3} of 20 right, {ends.count(False)} wrong, {unknown} undecided"
    assert lines[2] == f"irony costs {5 * (right[0] - right[1])} points"
    told = [answer for row, answer in found if any(row["tweet"] in line for line in lines)]
    assert all(answer.abstain_reason is None for answer in told)
