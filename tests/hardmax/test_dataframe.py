"""Answers as a table: every answer stands next to its own text, whatever the index."""

import json
from typing import Any

import httpx
import pandas
import pytest

from hardmax import Answers, Client, InvalidInput

TEXTS = ["one", "three", "a", "of"]
LENGTHS = [0.3, 0.5, 0.1, 0.2]
ENTRY = {"label": "brief", "logit": 0.0, "bias": 0.0, "n_words": 1, "truncated": False}
INDICES = {
    "repeated": ["x", "x", "y", "x"],
    "text": ["d", "c", "b", "a"],
    "dates": pandas.to_datetime(["2026-11-28", "2026-11-27", "2026-11-28", "2025-01-01"]),
    "levels": pandas.MultiIndex.from_tuples([("a", 1), ("a", 2), ("a", 1), ("b", 1)]),
    "missing": [1.0, float("nan"), float("nan"), 2.0],
}


def score_lengths(request: httpx.Request) -> httpx.Response:
    """Answer every text with a tenth of its length as the score."""
    scores = [len(text) / 10 for text in json.loads(request.content)["input"]]
    data = [{**ENTRY, "index": i, "score": p, "probs": {"brief": p}} for i, p in enumerate(scores)]
    return httpx.Response(200, json={"id": "r", "model": "m", "data": data})


def classify(texts: Any) -> Answers:
    with Client("http://test", transport=httpx.MockTransport(score_lengths)) as client:
        return client.classify(texts, batch_size=3)


def test_frame_of_a_series_keeps_its_index() -> None:
    texts = pandas.Series(TEXTS, index=[10, 3, 7, 1])
    for frame, index in (
        (classify(texts).to_frame(text=True), [10, 3, 7, 1]),
        (classify(TEXTS).to_frame(), [0, 1, 2, 3]),
    ):
        assert frame.index.tolist() == index
        assert (frame["text"].tolist(), frame["score"].tolist()) == (TEXTS, LENGTHS)


@pytest.mark.parametrize("name", INDICES)
def test_answers_are_added_next_to_their_texts(name: str) -> None:
    frame = pandas.DataFrame({"label": [1, 2, 3, 4], "text": TEXTS, "score": "?"}, index=INDICES[name])
    answers = classify(frame["text"])
    for table in (
        answers.add_to(frame), classify(TEXTS).add_to(frame), answers.add_to(answers.add_to(frame))
    ):  # fmt: skip
        assert table.index.equals(frame.index)
        assert table[["label", "text", "score"]].equals(frame)
        assert table["hardmax_score"].tolist() == LENGTHS
        assert table.columns.tolist()[3:] == [
            "hardmax_label", "hardmax_score", "hardmax_abstain_reason", "hardmax_truncated",
            "hardmax_leaders", "hardmax_error", "hardmax_p(brief)",
        ]  # fmt: skip
    assert "hardmax_label" not in frame
    assert answers.add_to(frame["text"], "h_")["h_score"].tolist() == LENGTHS


def test_answers_are_added_to_a_table_that_was_sorted_or_filtered() -> None:
    frame = pandas.DataFrame({"text": TEXTS}, index=[10, 3, 7, 1])
    answers = classify(frame["text"])
    assert answers.add_to(frame.sort_index())["hardmax_score"].tolist() == [0.2, 0.5, 0.1, 0.3]
    assert answers.add_to(frame.loc[[7, 3]])["hardmax_score"].tolist() == [0.1, 0.5]
    with_gap = classify(frame["text"].drop(3)).add_to(frame)
    assert with_gap["hardmax_score"].tolist()[2:] == [0.1, 0.2]
    assert with_gap["hardmax_label"].isna().tolist() == [False, True, False, False]
    two_levels = frame.set_axis(pandas.MultiIndex.from_tuples([("in", "text")]), axis=1)
    assert answers.add_to(two_levels)[("hardmax_score", "")].tolist() == LENGTHS


def test_answers_are_not_added_to_other_rows() -> None:
    frame = pandas.DataFrame({"text": TEXTS})
    filtered = frame[2:].reset_index(drop=True)  # its index is a part of the other one, its texts are not
    others = {
        "has other texts": filtered,
        "indices differ": frame.set_axis([7, 8, 9, 10]),
        "repeated values": frame.set_axis([0, 0, 1, 2]),
    }
    for message, other in others.items():
        with pytest.raises(InvalidInput, match=message):
            classify(frame["text"]).add_to(other)
    with pytest.raises(InvalidInput, match="4 answers for 2 rows: classify a column of this table"):
        classify(TEXTS).add_to(filtered)
