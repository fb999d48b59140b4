"""The report's numbers, checked by hand."""

import random

import pytest

from service.report import figures
from service.report.figures import Judged, described, folds, linear, measure, repeated, wilson
from service.report.page import page

LABELS = ("bad", "good")


def judged(truth, p, text="a text", undecided=None):
    """`p`: the probability of good."""
    said = "good" if p > 0.5 else "bad"
    return Judged(
        text, frozenset([truth]), frozenset([said]), {"bad": 1 - p, "good": p}, undecided, ("text",)
    )


ROWS = [
    judged("good", 0.9),
    judged("good", 0.7),
    judged("good", 0.05, "<b>surely bad</b>"),
    judged("bad", 0.1),
    judged("bad", 0.6, undecided="even"),
]


def test_measure_counts_what_is_right():
    found = measure(ROWS, LABELS)
    assert found["accuracy"] == pytest.approx(3 / 5)
    assert found["balanced_accuracy"] == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert found["most_frequent_label"] == pytest.approx(3 / 5)
    assert found["confusion"] == [[1, 1], [1, 2]]
    bad, good = found["labels"]
    assert (bad["rows"], bad["said"], bad["precision"], bad["recall"]) == (2, 2, 1 / 2, 1 / 2)
    assert (good["rows"], good["said"], good["precision"], good["recall"]) == (3, 3, 2 / 3, 2 / 3)
    assert found["undecided"] == {"even": 1}
    assert found["decided_accuracy"] == pytest.approx(3 / 4)
    assert [row["text"] for row in found["worst"]] == ["<b>surely bad</b>", "a text"]
    assert [row["text"] for row in found["mislabelled"]] == ["<b>surely bad</b>"]
    errors = 2 * abs((0.9 + 0.9) / 2 - 1), 1 * abs(0.95 - 0), 1 * abs(0.7 - 1), 1 * abs(0.6 - 0)
    assert found["calibration"]["error"] == pytest.approx(
        (3 * abs((0.9 + 0.9 + 0.95) / 3 - 2 / 3) + errors[2] + errors[3]) / 5
    )


def test_model_that_is_never_sure_finds_no_row_mislabelled():
    """Of three labels it says one at 40 %, wrongly; rows that are so it says at 35 %."""
    probs = {"a": 0.4, "b": 0.3, "c": 0.3}
    wrong = Judged("t", frozenset("b"), frozenset("a"), probs)
    right = Judged("t", frozenset("a"), frozenset("a"), {"a": 0.35, "b": 0.33, "c": 0.32})
    assert measure([wrong, right], "abc")["mislabelled"] == []


def test_several_labels_are_right_only_together():
    probs = {"a": 0.9, "b": 0.8, "c": 0.1}
    rows = [
        Judged("t", frozenset("ab"), frozenset("ab"), probs),
        Judged("t", frozenset("a"), frozenset("ab"), probs),
        Judged("t", frozenset(), frozenset("ab"), probs),
    ]
    found = measure(rows, "abc", several=True)
    assert found["accuracy"] == pytest.approx(1 / 3)
    assert [each["precision"] for each in found["labels"]] == [2 / 3, 1 / 3, None]
    assert "confusion" not in found


def test_wilson_gives_the_interval_of_the_book():
    """Newcombe 1998, table I: 81 of 263."""
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)


def test_folds_spread_every_label():
    truth = [frozenset([label]) for label in "ab" * 10 + "c" * 5]
    parts = folds(truth)
    assert sorted(i for part in parts for i in part) == list(range(25))
    assert all(sum(truth[i] == {"c"} for i in part) == 1 for part in parts)


def test_rows_that_repeat_a_text_are_in_one_fold_and_give_no_label_away():
    """Sixty texts with labels at random, each twice: 92 % were right."""
    pytest.importorskip("sklearn")
    draw = random.Random(0)
    texts = [" ".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(60)]
    truth = [frozenset([draw.choice(LABELS)]) for _ in texts]
    twice = [*texts, *(f" {text.upper()}!" for text in texts)]
    assert repeated(twice) == 60
    parts = folds(truth * 2, twice)
    assert [sorted(i % 60 for i in part)[::2] for part in parts] == [[i for i in p if i < 60] for p in parts]
    assert [len(part) for part in parts] == pytest.approx([24] * 5, abs=4)
    found = linear(twice, truth * 2, LABELS)
    assert found is not None
    assert found < 0.75


def test_linear_learns_a_word_that_decides_and_only_for_the_parts_that_are_measured_alone(monkeypatch):
    pytest.importorskip("sklearn")
    learnt, whole = [], figures.tf_idf
    monkeypatch.setattr(figures, "tf_idf", lambda several: learnt.append(several) or whole(several))
    texts = [f"{['awful', 'superb'][i % 2]} film number {i}" for i in range(40)]
    truth = [frozenset([LABELS[i % 2]]) for i in range(40)]
    assert linear(texts, truth, LABELS) == 1
    learnt.clear()
    truth[39] = frozenset(["bad"])  # a superb film
    assert linear(texts, truth, LABELS, [[1, 2, 3, 39]]) == 3 / 4
    assert len(learnt) == 1


def test_page_escapes_what_rows_hold_and_lines_tell_the_same():
    report = {
        "title": "mine@1", "source": "five rows", "models": {"mine@1": measure(ROWS, LABELS)}, "linear": 0.5,
        "warnings": ["<few> rows"],
    }  # fmt: skip
    html = page(report)
    assert "&lt;b&gt;surely bad&lt;/b&gt;" in html
    assert "<b>surely" not in html
    assert "src=" not in html
    lines = "\n".join(described(report))
    assert "60.0% of 5 rows right" in lines
    assert "warning: <few> rows" in lines


def test_report_of_a_model_that_decides_nothing_has_a_line():
    rows = [judged("good", 0.5, undecided="nothing known"), judged("bad", 0.5, undecided="even")]
    report = {"models": {"m": measure(rows, LABELS)}, "source": "2 rows"}
    assert "  undecided: 100.0% (1 nothing known, 1 even)" in described(report)
