"""Counterfactuals and sufficient words: they are correct, and found in a bounded number of runs."""

from collections.abc import Sequence
from typing import Any
from weakref import ref

import pytest

from hardmax.operations import run_sync
from service.text.counterfactual import (
    CANDIDATES_PER_ROUND,
    MAX_REMOVED_WORDS,
    MAX_SUFFICIENT_WORDS,
    find_counterfactual,
    find_sufficient,
)
from service.text.head import Head
from service.text.pipeline import Answer, ClassificationTask, ClassifyOptions, classify_all
from service.wire.texts import Results, add_searches, raise_first


def run_search(search: Any) -> tuple[Any, int]:
    """Return the result of a search, and the number of texts that were classified for it."""
    tasks, count = next(search), 0
    while True:
        count += len(tasks)
        try:
            tasks = search.send([answer for (answer,) in classify_all(tasks)])
        except StopIteration as end:
            return end.value, count


def test_flip_is_true_and_its_search_is_bounded(head: Head, sentences: list[str]) -> None:
    options, n_flips = ClassifyOptions((head,), "none"), 0
    for source in sentences[:80]:
        text = ClassificationTask(source, options)
        ((plain,),) = classify_all([text])
        flip, runs = run_search(find_counterfactual(ClassificationTask(source, options)))
        assert runs <= 1 + MAX_REMOVED_WORDS * CANDIDATES_PER_ROUND
        if flip is None:
            continue
        n_flips += 1
        spans = [span for word in flip["without"] for span in word["spans"]]
        assert len(spans) <= MAX_REMOVED_WORDS
        assert [source[start:end].lower() for start, end in spans] == [w["word"] for w in flip["without"]]
        ((ablated,),) = classify_all([ClassificationTask(source, options, without=spans)])
        assert (ablated["label"], ablated["score"]) == (flip["label"], flip["score"])
        assert ablated["label"] != plain["label"]
    assert n_flips > 20


def test_trials_of_a_search_tokenize_the_text_once(head: Head) -> None:
    """Each trial tokenized the whole text again, which takes a fifth of a second for a long one."""
    text = ClassificationTask("A superb film, " * 40 + "and bad.", ClassifyOptions((head,)), without=[(0, 8)])
    for find in (find_counterfactual, find_sufficient):
        search = find(text)
        (explained,) = next(search)
        trials = search.send([answer for (answer,) in raise_first(classify_all([explained]))])
        assert explained.tokenized is not None
        assert len(trials) > 1
        assert all(trial.tokenized is not None for trial in trials)
        afresh = [ClassificationTask(trial.text, trial.options, trial.without) for trial in trials]
        assert raise_first(classify_all(trials)) == raise_first(classify_all(afresh))


def test_flip_never_removes_words_that_are_left_out_already(head: Head, sentences: list[str]) -> None:
    options = ClassifyOptions((head,), "none")
    n_flips = 0
    for text in sentences[:60]:
        flip, _ = run_search(find_counterfactual(ClassificationTask(text, options)))
        if flip is None:
            continue
        left_out = [tuple(span) for span in flip["without"][0]["spans"]]
        flip, _ = run_search(find_counterfactual(ClassificationTask(text, options, without=left_out)))
        if flip is not None:
            n_flips += 1
            removed = {tuple(span) for word in flip["without"] for span in word["spans"]}
            assert not removed & set(left_out)
    assert n_flips > 5


@pytest.mark.parametrize("source", ["superb", "<br>"])
def test_text_of_one_word_or_none_has_no_flip(head: Head, source: str) -> None:
    task = ClassificationTask(source, ClassifyOptions((head,)))
    assert run_search(find_counterfactual(task))[0] is None


class Explanation(dict[str, Any]):
    """A full explanation, to which there are weak references."""


def test_search_does_not_keep_the_full_explanation_that_it_starts_with(head: Head) -> None:
    """The explanation of a long text takes megabytes, and the search waits for many more runs."""
    references: list[ref[Explanation]] = []

    async def classify(texts: Sequence[ClassificationTask]) -> Results:
        if references:
            assert references[0]() is None
        results = classify_all(texts)
        if texts[0].options.explain == "full":
            results = [[Explanation(answer)] for (answer,) in raise_first(results)]
            references.append(ref(results[0][0]))
        return results

    answer: Answer = {}
    task = ClassificationTask("the film was a superb film", ClassifyOptions((head,), "none"))
    run_sync(add_searches(task, [answer], {"flip": find_counterfactual}, classify))
    assert (len(references), "flip" in answer) == (1, True)


def complement(text: str, spans: list[list[int]]) -> list[tuple[int, int]]:
    """Return the spans of a text that these do not cover."""
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]


def test_sufficient_words_alone_give_the_label_and_each_of_them_is_needed(
    head: Head, sentences: list[str]
) -> None:
    options, n_shorter = ClassifyOptions((head,), "none"), 0
    for text in sentences[:40]:
        ((plain,),) = classify_all([ClassificationTask(text, options)])
        result, runs = run_search(find_sufficient(ClassificationTask(text, options)))
        assert result is not None
        assert runs <= 1 + MAX_SUFFICIENT_WORDS * (MAX_SUFFICIENT_WORDS + 1)
        spans = [span for word in result["words"] for span in word["spans"]]
        assert [text[start:end].lower() for start, end in spans] == [word["word"] for word in result["words"]]
        ((answer,),) = classify_all([ClassificationTask(text, options, complement(text, spans))])
        assert (answer["label"], answer["score"]) == (plain["label"], result["score"])
        n_shorter += len(spans) < plain["n_words"]
        for i in range(len(spans) if len(spans) > 1 else 0):
            removed = complement(text, [*spans[:i], *spans[i + 1 :]])
            ((ablated,),) = classify_all([ClassificationTask(text, options, removed)])
            assert ablated["label"] != plain["label"]
    assert n_shorter > 30


def test_text_of_no_words_has_no_sufficient_words(head: Head) -> None:
    assert run_search(find_sufficient(ClassificationTask("<br>", ClassifyOptions((head,))))) == (None, 1)
    task = ClassificationTask("\U0001f642 superb", ClassifyOptions((head,), offset_unit="utf16"))
    sufficient, _ = run_search(find_sufficient(task))
    assert sufficient["words"] in (
        [{"word": "superb", "spans": [[3, 9]]}],
        [{"word": "\U0001f642", "spans": [[0, 2]]}],
    )
