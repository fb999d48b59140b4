"""What a request may cost: pure functions of the request and the settings, in seconds of one core.

Constants are those of docs/reference/bounds.md: measured on its machine, and rounded up. What may cost too
much is refused before any work, with the bound. Texts and searches are priced by the most that they can run.
A cloud is not, since most are certified after a few layers and the worst after all that they may have: its
price, the least that it takes, chooses its first lane, and there the slice is the most that it takes.
"""

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from service.errors import TooLarge
from service.settings import Settings
from service.text.counterfactual import FLIP_TRIALS, MAX_SUFFICIENT_WORDS, SUFFICIENT_TRIALS
from service.text.pipeline import ClassificationTask, max_words
from service.text.tokenizer import TokenizedText

LARGE_BYTES = 1_000_000  # a larger body takes one of MAX_LARGE_REQUESTS slots
MAX_SMALL_EXPLAINED_CHARS = 4_000  # of full explanations and trajectories that need no slot: 2 MB at most
MAX_EXPLAINED_TEXTS = 64  # with full explanations or trajectories
# With these an answer has less than MAX_ANSWER_BYTES: a word of a full explanation with its trajectory takes
# up to 750 bytes, an answer with leaders 5,000, and each label after the first 60 for each word or 1,200.
MAX_EXPLAINED_WORDS = 40_000  # times models
MAX_EXPLAINED_LABELS = 400_000  # words times labels
MAX_ANSWERS = 8_192  # texts times models
MAX_ANSWERED_LABELS = 40_000  # texts times labels
MAX_LABELED_WORDS = 20_000_000  # words times labels
TEXT_S, TOKEN_S, CHAR_S = 0.002, 0.0015, 1e-6  # of a text through an encoder and a head
SEARCH_SHARE = 0.75  # of the time of a request and of the cores, for its searches


def is_large(tasks: Sequence[ClassificationTask]) -> bool:
    """Return whether the answer of a request may be large."""
    options = tasks[0].options
    explained = options.explain == "full" or options.trajectory
    return explained and sum([len(task.text) for task in tasks]) > MAX_SMALL_EXPLAINED_CHARS


def check_answers(tasks: Sequence[ClassificationTask], param: str = "input") -> None:
    """Refuse a request whose answers together may be too large."""
    options, count = tasks[0].options, len(tasks)
    models, labels = len(options.heads), options.n_logits
    _check(count * models, MAX_ANSWERS, "texts x models", param)
    _check(count * labels, MAX_ANSWERED_LABELS, "texts x labels", param)
    words = sum([max_words(task.text) for task in tasks])
    _check(words * labels, MAX_LABELED_WORDS, "words x labels", param)
    if options.explain == "full" or options.trajectory:
        _check(count, MAX_EXPLAINED_TEXTS, "texts with a full explanation or a trajectory", param)
        _check(words * models, MAX_EXPLAINED_WORDS, "words x models of full explanations", param)
        _check(words * labels, MAX_EXPLAINED_LABELS, "words x labels of full explanations", param)


def text_s(tokens: int, chars: int) -> float:
    """Return what a text of so many tokens takes at most, with the default encoder."""
    return TEXT_S + TOKEN_S * tokens + CHAR_S * chars


def search_tokens(text: TokenizedText, name: str) -> int:
    """Return how many tokens a search reads at most, with those of the text itself."""
    if name == "flip":
        return (1 + FLIP_TRIALS) * len(text.token_ids)
    longest = np.cumsum(np.sort(np.diff(text.bounds))[::-1][:MAX_SUFFICIENT_WORDS])  # of 1, 2, .. words
    # a trial with the first words of each number, then for each of them one without it
    trials = longest.sum() + np.arange(2, len(longest) + 1) @ longest[:-1]
    return len(text.token_ids) + int(trials)


def search_s(task: ClassificationTask, name: str) -> float:
    """Return what a search takes at most for one text and one model; without tokens if they are not known."""
    trials = FLIP_TRIALS if name == "flip" else SUFFICIENT_TRIALS
    tokens = 0 if task.tokenized is None else search_tokens(task.tokenized, name)
    return trials * TEXT_S + text_s(tokens, len(task.text))


def check_searches(
    tasks: Sequence[ClassificationTask], searches: Collection[str], settings: Settings
) -> None:
    """Refuse searches that may take longer than a request may, before any of them starts.

    Tokenizes the texts: their tokens are what a search costs, and a word has one or up to eight. A long text
    takes a fifth of a second: call it in a thread.

    Raises:
        TooLarge: The searches are too much, or a text is.
        InvalidInput: `without` leaves no word.
    """
    models = len(tasks[0].options.heads)
    limit_s = SEARCH_SHARE * settings.request_timeout_s * settings.intra_op_threads

    def check(seconds: float, param: str) -> None:
        if seconds > limit_s:
            problem = f"{' and '.join(searches)} may take {seconds:.0f} s of computing"
            raise TooLarge(f"{problem}, the limit is {limit_s:.0f} s: send less text at once", param=param)

    def price(task: ClassificationTask) -> float:
        return models * sum([search_s(task, name) for name in searches])

    total_s = sum(map(price, tasks))
    check(total_s, "input")  # whatever the tokens are
    for task in tasks:
        total_s -= price(task)
        task.tokenize()
        check(price(task), task.param)
        total_s += price(task)
        check(total_s, "input")


def _check(amount: int, limit: int, unit: str, param: str) -> None:
    if amount > limit:
        problem = f"the request has {amount} {unit}, the limit is {limit}: send it in parts"
        raise TooLarge(problem, param=param)


# Seconds of one core for clouds, at least: they choose the first lane (service/runtime/compute.py), and the
# slices of the lanes bound what a cloud takes there, whatever it does. Measured, for the first layer.
LAYER_S = 0.0015
NUMBER_S = 2e-7  # to read a number, and to write it
PAIR_S = 6e-9  # of two points
MAX_PAIRS_PER_POINT = 2_000  # of a large cloud: most pairs are never scored
NPY_NUMBER_BYTES, JSON_NUMBER_BYTES = 8, 20


def cloud_s(n: int, d: int) -> float:
    """Return what a cloud of n points in d dimensions takes at least."""
    return LAYER_S + NUMBER_S * n * d + PAIR_S * n * min(n, MAX_PAIRS_PER_POINT)


def body_s(n_bytes: int, *, is_npy: bool = False) -> float:
    """Return what the cloud of a body takes."""
    return cloud_s(n_bytes // (2 * (NPY_NUMBER_BYTES if is_npy else JSON_NUMBER_BYTES)), 2)


def sequences_s(lengths: Iterable[int], d: int) -> float:
    """Return what sequences of these lengths take at least."""
    return sum(cloud_s(length, d) - LAYER_S for length in lengths) + LAYER_S
