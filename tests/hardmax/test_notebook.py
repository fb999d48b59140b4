"""Answers in a notebook: their HTML is well-formed and harmless, and the example runs."""

import re
import sys
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from notebooks import run_notebook

from hardmax import Answer, Answers, Local, notebook

TEXT = "A <b>superb</b> film & 😀 a dull end"


def cluster(word: str, contribution: Any, number: int = 0) -> dict[str, Any]:
    return {
        "id": number, "kind": "leader", "leaders": [word], "words": [word], "share": 0.5, "size": 1,
        "contribution": contribution,
    }  # fmt: skip


def word(text: str, contribution: Any, position: tuple[float, float] = (1, 0)) -> dict[str, Any]:
    start = TEXT.index(text)
    return {
        "word": text, "spans": [(start, start + len(text))], "cluster": 0, "leader": True,
        "contribution": contribution, "position": [0, 0], "final_position": list(position),
        "context": (start, start + 1),
    }  # fmt: skip


def answer(**changes: Any) -> Answer:
    fields: dict[str, Any] = {
        "index": 0, "label": "positive", "score": 0.75, "probs": {"negative": 0.25, "positive": 0.75},
        "logit": 1.1, "bias": 0.1, "n_words": 9, "truncated": False,
        "clusters": [cluster("superb", 2.0), cluster("dull", -1.0, 1)],
        "words": [word("superb", 2.0), word("dull", -1.0, (-1, 1))],
    }  # fmt: skip
    return Answer.of(fields | changes, TEXT, 0, "m")


def parse(result: Any) -> ElementTree.Element:
    return ElementTree.fromstring(result._repr_html_())


def text_of(result: Any) -> str:
    return "".join(parse(result).itertext())


def rows_of(result: Any) -> list[list[str]]:
    return [[*row.itertext()] for row in parse(result).iter("tr")]


def test_answer_shows_its_text_as_it_is_and_tints_words_by_what_they_contribute() -> None:
    html = parse(answer())
    paragraph = html.find("p")
    assert "".join(paragraph.itertext()) == TEXT
    tinted = {span.text: span.attrib for span in paragraph.findall("span")}
    assert tinted["superb"]["title"] == "+2"
    assert "rgba(47,134,207,0.550)" in tinted["superb"]["style"]
    assert "rgba(217,105,32,0.275)" in tinted["dull"]["style"]
    assert html.find(".//b[.='positive 75.0%']") is not None
    assert html.find(".//script") is None


def test_answer_tints_the_same_letters_in_either_unit_of_its_spans(pretrained: Local) -> None:
    text = "😀 a superb film 😀😀 from start to end"
    utf16 = pretrained.classify(text, offset_unit="utf16")
    assert utf16.leaders[0].spans == [(5, 11)]
    assert utf16._repr_html_() == pretrained.classify(text)._repr_html_()
    assert pretrained.classify([text], offset_unit="utf16")[0]._repr_html_() == utf16._repr_html_()
    assert ">superb</span>" in utf16._repr_html_()


def test_answer_tints_nothing_where_spans_are_not_of_its_text() -> None:
    spans = [(-3, 2), (9, 4), (0, 999)]
    words = [word("superb", 2.0) | {"spans": [span]} for span in spans]
    paragraph = parse(answer(words=words)).find("p")
    assert (paragraph.text, paragraph.findall("span")) == (TEXT, [])


def test_answer_folds_small_clusters_into_one_term_of_the_sum() -> None:
    clusters = [cluster(f"word{i}", 2.0**-i, i) for i in range(20)]
    rows = rows_of(answer(clusters=clusters))
    assert len(rows) == notebook.MAX_BARS + 2
    assert rows[notebook.MAX_BARS - 1] == ["13 more clusters", f"{sum(2.0**-i for i in range(7, 20)):+.3f}"]


def per_label(*numbers: float) -> dict[str, float]:
    return dict(zip(("bad", "fair", "good"), numbers, strict=True))


NEGATIVE = answer(
    label="negative", logit=-0.9, bias=-1e-9, clusters=[cluster("superb", 2.0), cluster("dull", -2.9)]
)
FAIR = answer(
    label="fair", probs=per_label(0.2, 0.5, 0.3), logit=per_label(0, 1.5, 1), bias=per_label(0, 0.5, 0),
    clusters=[cluster("superb", per_label(0, 1.0, 1))], words=[word("superb", per_label(0, 1.0, 1))],
)  # fmt: skip


@pytest.mark.parametrize(
    ("result", "terms"),
    [
        (answer(), "superb +2.000, dull -1.000, bias +0.100, sum +1.100"),
        (NEGATIVE, "dull -2.900, superb +2.000, bias +0.000, sum -0.900"),
        (FAIR, "superb +1.000, bias +0.500, sum +1.500"),  # of several labels, the terms of the predicted one
    ],
    ids=["positive", "negative", "several labels"],
)
def test_answer_shows_a_sum_that_adds_up(result: Answer, terms: str) -> None:
    assert ", ".join(" ".join(row) for row in rows_of(result)) == terms


def test_answer_shows_why_it_abstains_and_cuts_a_long_text() -> None:
    assert "positive 75.0% (abstains: no_known_words)" in text_of(answer(abstain_reason="no_known_words"))
    long = Answer.of(answer(words=[]).document, "x" * 10_000, 0, "m")
    assert len(text_of(long)) < notebook.MAX_TEXT_CHARS_SHOWN + 200


def answers_of(*texts: str) -> Answers:
    answers = Answers()
    answers.add({"id": "1", "model": "m", "data": [answer().document for _ in texts]}, texts)
    return answers


def test_answers_show_a_table_and_a_single_answer_itself() -> None:
    answers = answers_of(*(f"text {i}" for i in range(30)))
    assert len(rows_of(answers)) == notebook.MAX_ROWS_SHOWN + 1
    assert "text 19" in text_of(answers)
    assert "and 10 more" in text_of(answers)
    assert answers_of(TEXT)._repr_html_() == answer()._repr_html_()


def test_frame_of_answers_needs_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        answers_of("one").to_frame()


@pytest.mark.parametrize(("n", "d"), [(1, 1), (9, 1), (40, 2), (30, 5), (3000, 2)])
def test_cloud_shows_its_leaders_and_limits(pretrained: Local, n: int, d: int) -> None:
    run = pretrained.dynamics(np.random.default_rng(n).normal(size=(n, d)))
    html = parse(run)
    names = [text.text for text in html.iter("text")]
    assert names == [str(leader.index) for leader in run.leaders]
    assert len(list(html.iter("path"))) == len(run.clusters)
    assert len([dot for dot in html.iter("circle") if dot.attrib["r"] == "2.5"]) == min(
        n, notebook.MAX_POINTS_DRAWN
    )
    text = text_of(run)
    assert f"certified at layer {run.certified_layer}" in text
    assert ("the first two of 5 coordinates" in text) == (d == 5)
    assert ("2000 of 3000 points" in text) == (n == 3000)
    for mark in html.iter("circle"):
        assert 0 <= float(mark.attrib["cx"]) <= notebook.PLANE_PX
        assert 0 <= float(mark.attrib["cy"]) <= notebook.PLANE_PX


def test_example_notebook_shows_answers_and_clouds() -> None:
    answer, answers, frame, cloud, control, rerun = run_notebook("answers.ipynb")
    assert "sum" in text_of(answer)
    assert len(re.findall("positive|negative|neutral", text_of(answers))) == 3
    assert len(frame) == 3
    assert control[0] is not None
    for run in (cloud, rerun):
        assert parse(run).find("svg") is not None
