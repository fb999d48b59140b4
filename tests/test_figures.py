"""The documents quote what results/*.json hold, and a quote that lost its sentence is told of."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.figures import DOCUMENTS, Missing, filled
from benchmarks.record import read_results
from benchmarks.values import Results, digits, people, seconds

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_document_quotes_the_results_as_they_are(name: str) -> None:
    results = Results(read_results(ROOT / "results"))
    quotes = list(DOCUMENTS[name](results))
    document = (ROOT / name).read_text()
    assert quotes
    assert filled(document, iter(quotes)) == document, "run: python -m benchmarks.figures"


def test_figures_go_where_they_stand_across_lines_and_columns() -> None:
    document = "It takes 3 ms, and\nholds 7 MB.\n| a | 1 | 2 |\n"
    quotes = [("takes {}, and holds {} MB.", ("4.5 ms", "80")), ("| a | {} | {} |", ("10", "20"))]
    assert filled(document, iter(quotes)) == "It takes 4.5 ms, and\nholds 80 MB.\n| a | 10 | 20 |\n"


@pytest.mark.parametrize("document", ["", "takes 3 ms. takes 4 ms."])
def test_quote_without_its_one_sentence_is_told_of(document: str) -> None:
    with pytest.raises(Missing, match=r"not once: takes \{\} ms"):
        filled(document, iter([("takes {} ms.", ("5",))]))


def test_results_are_found_by_case_and_their_lack_is_told() -> None:
    row = {"case": {"n": 1, "d": 2}, "note": ""}
    rows = [{**row, "subject": "ours", "median": 2.0}, {**row, "subject": "peer", "median": 5.0}]
    rows += [{**row, "subject": "absent", "median": None}]
    results = Results({"clouds": {"tables": [{"name": "layer", "rows": rows}]}})
    assert results.of("clouds", "layer", d=2) == 2.0
    assert results.best_peer("clouds", "layer", n=1) == 5.0
    for subject, case in (("absent", {"n": 1}), ("ours", {"n": 7})):
        with pytest.raises(LookupError, match=rf"no figure of {subject} in layer"):
            results.of("clouds", "layer", subject, **case)
    with pytest.raises(LookupError, match=r"run python -m benchmarks\.http"):
        results.of("http", "layer")


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (digits(2964.2), "3,000"),
        (digits(0.0337), "0.034"),
        (digits(9.81), "9.8"),
        (digits(9.97), "10"),
        (digits(244.6, 3), "245"),
        (seconds(0.000337), "0.34 ms"),
        (seconds(0.54), "0.54 s"),
        (seconds(0.0996), "0.10 s"),
        (people(96_123), "96,000"),
        (people(153_700_000), "150 million"),
        (people(2_459_000_000), "2.5 billion"),
    ],
)
def test_figures_are_said_as_documents_say_them(said: str, text: str) -> None:
    assert said == text
