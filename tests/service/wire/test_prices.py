"""What a request may cost: its CPU time stays below its price times SLACK."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from bundles import load_head
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hardmax.operations import run_sync
from service.runtime.compute import LANES
from service.text.counterfactual import FLIP_TRIALS, SUFFICIENT_TRIALS, SUFFICIENT_WORDS
from service.text.head import Head
from service.text.pipeline import ClassificationTask, ClassifyOptions, classify_all, make_tasks
from service.wire.prices import body_s, search_s, sequences_s, text_s
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
@given(text=TEXTS, name=st.sampled_from(["flip", "sufficient"]))
def test_search_runs_no_more_than_its_price(head: Head, text: str, name: str) -> None:
    """The counts are bounded whatever the machine does, and the time by their prices."""
    (task,) = make_tasks(text, ClassifyOptions((head,), "none"))
    price = search_s(task, name)
    (answers,) = classify_all([task])
    assert not isinstance(answers, Exception)
    searches = select_searches(ClassifyRequest.model_validate({"input": text, name: True}))

    def search(run: CountedRuns) -> None:
        run_sync(add_searches(ClassificationTask(text, task.options), [dict(answers[0])], searches, run))

    run, tokens = CountedRuns(), task.done
    search(run)
    assert shortest_s(lambda: search(CountedRuns())) <= SLACK * price
    flips = name == "flip"
    assert run.tasks <= 1 + (FLIP_TRIALS if flips else SUFFICIENT_TRIALS)
    longest = max(1.0, tokens / max(1, answers[0]["n_words"]))  # tokens of a word, on average
    assert run.tokens <= (1 + FLIP_TRIALS) * tokens if flips else tokens + 8 * longest * SUFFICIENT_WORDS


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
