"""What a request may cost: its CPU time stays below its price times SLACK."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
from bundles import load_head
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hardmax.operations import run_sync
from service.errors import TooLarge
from service.runtime.compute import LANES
from service.settings import Settings
from service.text.counterfactual import FLIP_TRIALS, SUFFICIENT_TRIALS
from service.text.head import Head
from service.text.pipeline import ClassificationTask, ClassifyOptions, classify_all, make_tasks
from service.wire.prices import body_s, check_searches, search_s, search_tokens, sequences_s, text_s
from service.wire.requests import ClassifyRequest
from service.wire.texts import add_searches, select_searches

SLACK = 5.0  # of another processor, and of one that other programs share
SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck))
FRAGMENTS = ("superb film ", "?!", "a1", "<br />", "not good ", "\N{PARTY POPPER} ", "x" * 80 + " ", "\n")
TEXTS = st.builds(
    lambda parts, n: "".join(parts) * n + "film",
    st.lists(st.sampled_from(FRAGMENTS), max_size=6),
    st.integers(1, 60),
)
WORDS = st.text("abcxyz", min_size=1, max_size=8)  # of up to eight tokens each
RARE_TEXTS = st.lists(WORDS, min_size=1, max_size=40).map(" ".join)


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Head:
    return load_head(tmp_path_factory.mktemp("models"))


def shortest_s(work: Callable[[], object], rounds: int = 5) -> float:
    """Return the CPU time of the best round: what work really takes, it takes in every round."""
    times_s = []
    for _ in range(rounds):
        start_s = time.process_time()
        work()
        times_s.append(time.process_time() - start_s)
    return min(times_s)


class CountedRuns:
    """Runs tasks, and counts them and the tokens that they read."""

    def __init__(self) -> None:
        self.tasks = self.tokens = 0

    async def __call__(self, tasks: Sequence[ClassificationTask]) -> list[Any]:
        results = classify_all(tasks)
        self.tasks += len(tasks)
        self.tokens += sum(task.done for task in tasks)
        return results


@SETTINGS
@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
def test_text_takes_less_than_its_price(head: Head, texts: list[str]) -> None:
    options = ClassifyOptions((head,), "full", trajectory=True)
    tasks = make_tasks(texts, options)
    assert not any(isinstance(result, Exception) for result in classify_all(tasks))
    price = sum(text_s(task.done, len(task.text)) for task in tasks)
    assert shortest_s(lambda: classify_all(make_tasks(texts, options))) <= SLACK * price


@SETTINGS
@given(text=st.one_of(TEXTS, RARE_TEXTS), name=st.sampled_from(["flip", "sufficient"]))
def test_search_runs_no_more_than_its_price(head: Head, text: str, name: str) -> None:
    """The counts are bounded whatever the machine does, and the time by their prices."""
    (task,) = make_tasks(text, ClassifyOptions((head,), "none"))
    task.tokenize()
    assert task.tokenized is not None
    price, tokens = search_s(task, name), search_tokens(task.tokenized, name)
    (answers,) = classify_all([task])
    assert not isinstance(answers, Exception)
    searches = select_searches(ClassifyRequest.model_validate({"input": text, name: True}))

    def search(run: CountedRuns) -> None:
        run_sync(add_searches(ClassificationTask(text, task.options), [dict(answers[0])], searches, run))

    run = CountedRuns()
    search(run)
    assert shortest_s(lambda: search(CountedRuns()), 2) <= SLACK * price
    assert run.tasks <= 1 + (FLIP_TRIALS if name == "flip" else SUFFICIENT_TRIALS)
    assert run.tokens <= tokens


def test_search_of_rare_words_is_priced_by_their_tokens(head: Head) -> None:
    """It was priced with 1.5 tokens a word, and ended at the deadline instead of being refused."""
    limits = Settings(request_timeout_s=100, intra_op_threads=1)
    for words, name, count, param in (
        ("film " * 600, "flip", 1, None),
        ("abcxyzab " * 600, "flip", 1, "input"),
        ("film " * 600, "sufficient", 4, None),
        ("abcxyzab " * 600, "sufficient", 4, "input"),
    ):
        tasks = [ClassificationTask(words, ClassifyOptions((head,))) for _ in range(count)]
        with nullcontext() if param is None else pytest.raises(TooLarge, match="may take") as refused:
            check_searches(tasks, [name], limits)
        assert param is None or refused.value.param == param


def test_trial_of_few_words_is_estimated_by_these(head: Head) -> None:
    """It was estimated as the whole text: the trials of one request refused each other with 429."""
    text = "superb film, " * 400
    whole = ClassificationTask(text, ClassifyOptions((head,)))
    few = ClassificationTask(text, ClassifyOptions((head,)), without=[(100, len(text))])
    assert whole.size > 1_000
    assert few.size < 40
    few.tokenize()
    assert few.size < 40


@given(n_bytes=st.integers(0, 64_000_000), lengths=st.lists(st.integers(1, 10**6), max_size=50))
def test_prices_of_clouds_grow_with_them_and_always_find_a_lane(n_bytes: int, lengths: list[int]) -> None:
    assert body_s(n_bytes) <= body_s(n_bytes, is_npy=True) < LANES[-1].slice_s
    assert body_s(n_bytes) <= body_s(n_bytes + 1_000)
    assert sequences_s(lengths, 2) <= sequences_s([*lengths, 1], 2)
    assert body_s(1_000) < LANES[0].slice_s, "small clouds start in the first lane"
    assert body_s(4_000_000) > LANES[1].slice_s, "the longest JSON bodies do not"
    assert math.isinf(LANES[-1].slice_s)
