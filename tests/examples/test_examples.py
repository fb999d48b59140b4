"""The examples run as in the documentation, and show the results of the paper."""

import io
import math
import runpy
import shutil
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from notebooks import run_notebook
from paths import ROOT


def example(name: str) -> dict[str, Any]:
    matplotlib.use("Agg")
    return runpy.run_path(str(ROOT / f"examples/{name}.py"))


@pytest.fixture
def paper() -> SimpleNamespace:
    return SimpleNamespace(**example("paper"))


def test_paper_figure_1_follows_the_largest_score(paper: SimpleNamespace, tmp_path: Path) -> None:
    leaders = paper.figure_1(tmp_path / "figure1.svg")
    assert leaders == [int((paper.CHOICE @ A @ paper.CHOICE[0]).argmax()) for A in paper.FORMS.values()]
    assert len(set(leaders)) == 2
    assert (tmp_path / "figure1.svg").stat().st_size > 10_000


def test_paper_figure_2_has_the_leaders_of_the_paper(paper: SimpleNamespace, tmp_path: Path) -> None:
    triangle, emerging = paper.figure_2(tmp_path / "figure2.svg")
    assert triangle == {"0": 0, "1": 0, "2": 0}
    assert emerging == {"0": 0, "1": 1, "2": 0}
    assert (tmp_path / "figure2.svg").stat().st_size > 10_000


def test_paper_review_ends_with_its_leaders(paper: SimpleNamespace, tmp_path: Path) -> None:
    """Words end nearer to the leader of their cluster than they start, and the picture names the leaders."""
    answer = paper.review(tmp_path / "review.svg")
    start, end = (
        np.array([getattr(word, name) for word in answer.words]) for name in ("position", "final_position")
    )
    leader_of = {word.cluster: i for i, word in enumerate(answer.words) if word.leader}
    leaders = [leader_of[word.cluster] for word in answer.words]
    assert np.linalg.norm(end - end[leaders]) < np.linalg.norm(start - start[leaders])
    picture = (tmp_path / "review.svg").read_text()
    assert all(f"<!--   {answer.words[i].word} -->" in picture for i in leader_of.values())


def test_irony_is_counted_as_the_model_answers() -> None:
    irony = SimpleNamespace(**example("irony"))
    results = irony.classify_tweets()
    kinds = [(row["kind"], row["label"]) for row, _ in results]
    assert [kinds.count(("ironic", label)) for label in ("negative", "positive")] == [16, 4]
    assert [kinds.count(("plain", label)) for label in ("negative", "positive")] == [10, 10]
    lines = list(irony.report(results))
    for kind, line in zip(("plain", "ironic"), lines, strict=False):
        outcomes = [a.abstain_reason or a.label == row["label"] for row, a in results if row["kind"] == kind]
        correct, wrong = outcomes.count(True), outcomes.count(False)
        assert line == f"{kind:7}{correct:3} of 20 right, {wrong} wrong, {20 - correct - wrong} abstain"


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    """Return an archive in IMDb's layout, whose labels depend on one word."""
    rng = np.random.default_rng(0)
    path = tmp_path / "reviews.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for i in range(400):
            label, word = (("pos", "superb"), ("neg", "dreadful"))[i % 2]
            words = [word, *rng.choice(["film", "plot", "scene", "actor", "music", "story"], 6)]
            text = f"<br />{' '.join(rng.permutation(words))}!".encode()
            member = tarfile.TarInfo(f"aclImdb/train/{label}/{i}_7.txt")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    return path


def test_paper_sentiment_trains_and_the_decisive_words_lead(
    reviews: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentiment = SimpleNamespace(**example("paper_sentiment"))
    options = ["--data", str(reviews), "--dimensions", "2", "--epochs", "20", "--learning-rate", "0.05"]
    outcome = sentiment.main(options)[2]
    assert outcome.history[-1] == 100
    counts = dict(outcome.leader_words)  # in 120 reviews, half of them with each word; others may lead too
    assert counts["superb"] + counts["dreadful"] >= 100
    printed = capsys.readouterr().out
    assert "280 reviews to train, 120 to test, 8 words" in printed
    assert "| 2 | 79.14 (epoch 100) | 79.14 | 100.00 | 100.00" in printed


def test_paper_sentiment_leaders_are_those_of_the_definition() -> None:
    """On figure 2's cloud of the emerging leader, a word for each point, and repeated words as one token."""
    sentiment = SimpleNamespace(**example("paper_sentiment"))
    points = torch.tensor(example("paper")["EMERGING"], dtype=torch.float32)
    model = sentiment.HardmaxClassifier(len(points) + 1, 2, layers=3)
    with torch.no_grad():
        model.embedding.weight[1:] = points
        model.log_alpha.fill_(math.log(0.5))
    words = torch.tensor([[*range(1, 9), 0, 0], [*range(1, 9), 1, 3]])
    leaders, with_repeats = model.leaders(words)
    assert leaders == {1: 0, 2: 1, 3: 0}
    assert with_repeats.keys() >= {1, 3}


def test_theorem_notebook_shows_its_results() -> None:
    _, since, error, vertices, status, closed_form_error, *outputs = run_notebook("theorem.ipynb")
    ties, warm, controlled, leaders, refusal, emerging = outputs
    assert since == {0: 0, 1: 1, 2: 0}
    assert error < 1e-9
    assert vertices == ([0, 1, 2], [0, 1, 2])
    assert status == ("certified", 1)
    assert closed_form_error < 1e-12
    assert [kind for kind, _, _ in ties] == ["leader"] * 4 + ["tie"] * 2
    assert 0 < warm[2] <= warm[1]
    assert controlled[0]
    assert {2, 6} <= set(leaders)
    assert refusal == (False, [0.0, 0.0])
    assert emerging[1] == 1


@pytest.mark.system
@pytest.mark.timeout(600)  # it trains a model
def test_custom_model_notebook_trains_reports_and_uses_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(ROOT / "examples/reviews.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    rows, metrics, baseline, errors, answer, explanation, frame = run_notebook("custom_model.ipynb")
    assert rows[0] == 60
    assert metrics["rows"] == 57
    assert metrics["accuracy"] >= 0.8 > metrics["majority_class"]
    assert metrics["accuracy"] == 1 - len(errors) / 57
    assert {"name", "accuracy"} <= baseline.keys()
    assert (answer.model, set(answer.probs)) == ("boots", {"negative", "positive"})
    assert "<svg" in answer._repr_html_()
    verdict, words, _ = explanation
    assert verdict.split()[0] in ("negative", "positive")
    assert set(words) <= set("arrived late and the lid leaks , but it is quiet .".split())
    assert frame["label"].isin(["negative", "positive"]).all()
    assert len(frame) == 8
    assert "<svg" in (tmp_path / "report.html").read_text()
