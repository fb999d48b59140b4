"""Search for small sets of words that decide the label of a text, by running the model without words.

`find_counterfactual` searches for words whose removal changes the label, `find_sufficient` for words that
alone give the same label. Finding a smallest set is a hitting-set problem in both cases: the searches are
greedy, so a smaller set may exist. The model has confirmed every set that is returned.

A search is a generator: it yields tasks to be answered together, and returns its result.
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from typing import Any

from service.text.pipeline import Answer, ClassificationTask
from service.text.spans import Span, from_codepoints, merge_spans

MAX_REMOVED_WORDS = 5  # of a counterfactual
CANDIDATES_PER_ROUND = 12
MAX_READ_CANDIDATES_PER_LEADER = 3  # tried next to the leader
MAX_SUFFICIENT_WORDS = 16
MAX_SEARCHED_TEXTS = 16  # of a request
# The trials that searches run at most after the text itself.
FLIP_TRIALS = sum(range(CANDIDATES_PER_ROUND, CANDIDATES_PER_ROUND - MAX_REMOVED_WORDS, -1))
SUFFICIENT_TRIALS = sum(range(2, MAX_SUFFICIENT_WORDS + 1)) + MAX_SUFFICIENT_WORDS

Word = dict[str, Any]
Search = Generator[Sequence[ClassificationTask], Sequence[Answer], Answer | None]


def find_counterfactual(task: ClassificationTask) -> Search:
    """Search for words whose removal changes the label, with the label and score without them.

    Grows a set: in each round the candidates are removed, each together with those that were chosen before.
    """
    explained = _make_explained(task)
    (answer,) = yield [explained]
    label, limit = answer["label"], min(MAX_REMOVED_WORDS, answer["n_words"] - 1)  # at least one word stays
    candidates = _rank_words(answer)[:CANDIDATES_PER_ROUND]
    del answer  # takes megabytes for a long text
    chosen: list[Word] = []
    while candidates and len(chosen) < limit:
        sets = [[*chosen, word] for word in candidates]
        answers = yield [_make_trial(explained, words) for words in sets]
        changed = [i for i, answer in enumerate(answers) if answer["label"] != label]
        best = min(changed or range(len(sets)), key=lambda i: float(answers[i]["probs"][label]))
        chosen = sets[best]
        if changed:
            label, score = answers[best]["label"], answers[best]["score"]
            return {"without": _words_of_answer(task, chosen), "label": label, "score": score}
        candidates = [word for word in candidates if word not in chosen]
    return None


def find_sufficient(task: ClassificationTask) -> Search:
    """Search for words that alone give the same label, with its score; all others are removed in place.

    Takes the shortest prefix of the candidates that has the label, and removes one word after the other from
    it as long as it keeps the label.
    """
    explained = _make_explained(task)
    (answer,) = yield [explained]
    label, words, candidates = answer["label"], _words_by_span(answer), _rank_words(answer)
    del answer
    sizes = range(1, min(len(candidates), MAX_SUFFICIENT_WORDS) + 1)
    sets = [candidates[:size] for size in sizes]
    chosen, score = None, 0.0
    while sets:
        answers = yield [_make_trial(explained, _all_but(words, subset)) for subset in sets]
        unchanged = [i for i, answer in enumerate(answers) if answer["label"] == label]
        if not unchanged:
            break
        best = min(unchanged, key=lambda i: (len(sets[i]), -float(answers[i]["probs"][label])))
        chosen, score = sets[best], answers[best]["score"]
        sets = [[word for word in chosen if word is not removed] for removed in chosen if len(chosen) > 1]
    return None if chosen is None else {"words": _words_of_answer(task, chosen), "score": score}


def _make_explained(task: ClassificationTask) -> ClassificationTask:
    """Return the task of the same text with a full explanation, by its first model."""
    options = replace(
        task.options,
        heads=task.options.heads[:1],
        explain="full",
        trajectory=False,
        offset_unit="codepoints",
    )
    return ClassificationTask(task.text, options, task.without, is_searched=True)


def _make_trial(explained: ClassificationTask, words: Iterable[Word]) -> ClassificationTask:
    """Return the task that predicts the label of the text without these words, from the same tokens."""
    options = replace(explained.options, explain="none")
    without = merge_spans([*explained.without, *map(_span, words)])
    trial = ClassificationTask(explained.text, options, without)
    trial.tokenize(explained.tokenized)
    return trial


def _rank_words(answer: Answer) -> list[Word]:
    """Return the words by their support of the label: leaders and the words they read, then the others."""
    words = _words_by_span(answer)
    leaders = [leader for leader in answer["leaders"] if _support(answer, leader) > 0]
    leaders.sort(key=lambda leader: -_support(answer, leader))
    spans = [
        span
        for leader in leaders
        for span in (_span(leader), *map(_span, leader["read"][:MAX_READ_CANDIDATES_PER_LEADER]))
    ]
    spans += sorted(words, key=lambda span: -_support(answer, words[span]))
    return [words[span] for span in dict.fromkeys(spans)]


def _words_by_span(answer: Answer) -> dict[Span, Word]:
    return {_span(word): word for word in answer["words"]}


def _all_but(words: dict[Span, Word], chosen: Sequence[Word]) -> list[Word]:
    """Return all words but the chosen ones."""
    spans = set(map(_span, chosen))
    return [word for span, word in words.items() if span not in spans]


def _support(answer: Answer, part: dict[str, Any]) -> float:
    """Return how much a word or leader supports the label over the next one.

    Neutral is supported most by the smallest contribution in either direction.
    """
    contribution = part["contribution"]
    if isinstance(contribution, dict):
        first, second = sorted(answer["probs"], key=answer["probs"].__getitem__, reverse=True)[:2]
        return float(contribution[first] - contribution[second])
    labels = list(answer["probs"])
    if answer["label"] not in (labels[0], labels[-1]):
        return -abs(float(contribution))  # neutral: support is a small contribution to either side
    return float(contribution if answer["label"] == labels[-1] else -contribution)


def _words_of_answer(task: ClassificationTask, words: Sequence[Word]) -> list[dict[str, Any]]:
    """Return words in the order of reading, with spans in the unit of the request."""
    unit = task.options.offset_unit
    return [
        {"word": word["word"], "spans": from_codepoints(task.text, word["spans"], unit)}
        for word in sorted(words, key=_span)
    ]


def _span(part: dict[str, Any]) -> Span:
    begin, end = part["spans"][0]
    return begin, end
