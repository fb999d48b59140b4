"""A report as lines and as a page."""

import re

from evaluation.html import render_report
from evaluation.metrics import Prediction, compare, evaluate
from evaluation.report import describe_report

LABELS = ("bad", "good")
ROWS = (("good", 0.9, None), ("good", 0.05, None), ("bad", 0.1, None), ("bad", 0.6, "low_confidence"))


def report_of(rows, text="<b>surely bad</b>", **fields):
    predictions = [
        Prediction(
            text, frozenset([truth]), frozenset(["good" if p > 0.5 else "bad"]),
            {"bad": 1 - p, "good": p}, reason, ("surely",),
        )
        for truth, p, reason in rows
    ]  # fmt: skip
    report = {"title": "mine@1", "source": "four rows", "models": {"mine@1": evaluate(predictions, LABELS)}}
    return report | {"baseline": None, "warnings": []} | fields


def test_lines_have_the_figures_the_count_of_abstentions_and_the_baseline():
    baseline = {"name": "TF-IDF", "accuracy": 0.25, "source": "trained on a.csv"}
    lines = "\n".join(describe_report(report_of(ROWS, baseline=baseline, warnings=["few rows"])))
    assert "mine@1: 50.0% of 4 rows correct" in lines
    assert (
        "abstained on 1 of 4 rows: low_confidence 1 (0.0% of them correct); of the others 66.7% are correct"
        in lines
    )
    assert "25.0% by TF-IDF (trained on a.csv)" in lines
    assert "row : good, predicted bad 95% [surely]: <b>surely bad</b>" in lines
    assert "warning: few rows" in lines
    assert "TF-IDF" not in "\n".join(describe_report(report_of(ROWS)))  # without training data


def test_model_that_abstains_on_everything_has_a_line():
    lines = list(
        describe_report(report_of([("good", 0.5, "no_known_words"), ("bad", 0.5, "low_confidence")]))
    )
    assert (
        "  abstained on 2 of 2 rows: no_known_words 1 (0.0% of them correct), "
        "low_confidence 1 (100.0% of them correct)" in lines
    )


def test_page_escapes_texts_and_needs_nothing_else():
    html = render_report(report_of(ROWS, warnings=["<few> rows"]))
    assert "&lt;b&gt;surely bad&lt;/b&gt;" in html
    assert "<b>surely" not in html
    assert "&lt;few&gt; rows" in html
    outside = r"src=|href=.[^#]|url\([^#]|<script|@import"
    assert not re.search(outside, html)


def test_page_has_its_title_once_the_matrix_as_a_picture_and_the_baseline_next_to_the_figure():
    html = render_report(report_of(ROWS, baseline={"name": "TF-IDF", "accuracy": 0.25, "source": "x"}))
    body = html.partition("<main>")[2]
    assert body.count("mine@1") == 1
    assert "confusion matrix</text>" in body
    assert re.findall(r"<b>([\d.]+%)</b>", body)[:2] == ["50.0%", "25.0%"]
    assert "@media print" in html


def test_picture_of_the_matrix_marks_a_label_that_it_cuts():
    labels = ["cancellation of an order", "other"]
    probs = {labels[0]: 0.9, labels[1]: 0.1}
    prediction = Prediction("text", frozenset(labels[:1]), frozenset(labels[:1]), probs, None, ())
    report = report_of(ROWS) | {"models": {"mine@1": evaluate([prediction], labels)}}
    texts = re.findall(r"<text [^>]*>([^<]*)</text>", render_report(report))
    assert {"cancellation …", "cancellat…", "other", "confidence", "predicted"} <= set(texts)


def test_report_names_rows_and_compares_with_another_model():
    predictions = [
        Prediction(
            "so bad", frozenset(["bad"]), frozenset(["good"]), {"bad": 0.2, "good": 0.8}, row=7, id="A-7"
        )
    ]
    comparison = compare(predictions, [frozenset(["bad"])], "distilbert")
    report = report_of(ROWS) | {"models": {"m": evaluate(predictions, LABELS)}, "comparison": comparison}
    lines = list(describe_report(report))
    assert "  row 7 A-7: bad, predicted good 80%: so bad" in lines
    assert "  row 7 A-7: bad, predicted good 80%, the other bad: so bad" in lines
    summary = next(line for line in lines if line.startswith("distilbert: 100.0% of 1 rows correct"))
    assert summary.endswith("only the other on 1 (McNemar's test: p = 1); 1 rows differ:")
    assert "the other bad" in render_report(report)
