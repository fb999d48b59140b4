"""What would change a verdict: what is found is true, and the model is run a bounded number of times."""

from collections.abc import Sequence
from typing import Any
from weakref import ref

import pytest

from hardmax.operations import run_sync
from service.answers.texts import Results, add_searches, raise_first
from service.text.counterfactual import (
    CANDIDATES_PER_ROUND,
    MAX_REMOVED_WORDS,
    MAX_SUFFICIENT_WORDS,
    find_counterfactual,
    find_sufficient,
)
from service.text.head import Head
from service.text.pipeline import Answer, ClassificationTask, ClassifyOptions, classify_all


def found_by(search: Any) -> tuple[Any, int]:
    """Return what a search finds, and how many texts were run for it."""
    tasks, count = next(search), 0
    while True:
        count += len(tasks)
        try:
            tasks = search.send([answer for (answer,) in classify_all(tasks)])
        except StopIteration as end:
            return end.value, count


def test_flip_is_true_and_its_search_is_bounded(head: Head, sentences: list[str]) -> None:
    options, found = ClassifyOptions((head,), "none"), 0
    for source in sentences[:80]:
        text = ClassificationTask(source, options)
        ((plain,),) = classify_all([text])
        told, runs = found_by(find_counterfactual(ClassificationTask(source, options)))
        assert runs <= 1 + MAX_REMOVED_WORDS * CANDIDATES_PER_ROUND
        if told is None:
            continue
        found += 1
        spans = [span for word in told["without"] for span in word["spans"]]
        assert len(spans) <= MAX_REMOVED_WORDS
        assert [source[begin:end].lower() for begin, end in spans] == [w["word"] for w in told["without"]]
        ((again,),) = classify_all([ClassificationTask(source, options, without=spans)])
        assert (again["label"], again["score"]) == (told["label"], told["score"])
        assert again["label"] != plain["label"]
    assert found > 20


def test_flip_begins_with_what_is_left_out_already(head: Head) -> None:
    options = ClassifyOptions((head,), "none")
    text = ClassificationTask("the superb film", options, without=[(4, 10)])
    told, _ = found_by(find_counterfactual(text))
    assert told is None or [4, 10] not in [word["spans"][0] for word in told["without"]]


@pytest.mark.parametrize("source", ["superb", "<br>"])
def test_text_of_one_word_or_none_has_no_flip(head: Head, source: str) -> None:
    task = ClassificationTask(source, ClassifyOptions((head,)))
    assert found_by(find_counterfactual(task))[0] is None


class Held(dict[str, Any]):
    """A whole explanation."""


def test_search_does_not_keep_the_whole_explanation_that_it_begins_with(head: Head) -> None:
    """Of a long text it is megabytes, and the search has many more runs to wait for."""
    kept: list[ref[Held]] = []

    async def read(texts: Sequence[ClassificationTask]) -> Results:
        if kept:
            assert kept[0]() is None
        found = classify_all(texts)
        if texts[0].options.explain == "full":
            found = [[Held(answer)] for (answer,) in raise_first(found)]
            kept.append(ref(found[0][0]))
        return found

    answer: Answer = {}
    task = ClassificationTask("the film was a superb film", ClassifyOptions((head,), "none"))
    run_sync(add_searches(task, [answer], {"flip": find_counterfactual}, read))
    assert (len(kept), "flip" in answer) == (1, True)


def complement(text: str, spans: list[list[int]]) -> list[tuple[int, int]]:
    """Return the spans between those that stay."""
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]


def test_sufficient_words_alone_give_the_label_and_none_of_them_can_go(
    head: Head, sentences: list[str]
) -> None:
    options, fewer = ClassifyOptions((head,), "none"), 0
    for text in sentences[:40]:
        ((plain,),) = classify_all([ClassificationTask(text, options)])
        found, runs = found_by(find_sufficient(ClassificationTask(text, options)))
        assert found is not None
        assert runs <= 1 + MAX_SUFFICIENT_WORDS * (MAX_SUFFICIENT_WORDS + 1)
        spans = [span for word in found["words"] for span in word["spans"]]
        assert [text[begin:end].lower() for begin, end in spans] == [word["word"] for word in found["words"]]
        ((alone,),) = classify_all([ClassificationTask(text, options, complement(text, spans))])
        assert (alone["label"], alone["score"]) == (plain["label"], found["score"])
        fewer += len(spans) < plain["n_words"]
        for i in range(len(spans) if len(spans) > 1 else 0):
            rest = complement(text, [*spans[:i], *spans[i + 1 :]])
            ((less,),) = classify_all([ClassificationTask(text, options, rest)])
            assert less["label"] != plain["label"]
    assert fewer > 30


def test_text_of_no_words_has_no_sufficient_ones(head: Head) -> None:
    assert found_by(find_sufficient(ClassificationTask("<br>", ClassifyOptions((head,))))) == (None, 1)
    task = ClassificationTask("\U0001f642 superb", ClassifyOptions((head,), offset_unit="utf16"))
    found, _ = found_by(find_sufficient(task))
    assert found["words"] in (
        [{"word": "superb", "spans": [[3, 9]]}],
        [{"word": "\U0001f642", "spans": [[0, 2]]}],
    )
