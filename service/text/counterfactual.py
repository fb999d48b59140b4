"""Search a counterfactual: a smallest set of words found whose removal changes the label.

Finding the smallest of all is a hitting-set problem. This grows a set: in each round the words that weigh
most for the label are removed, each in turn, together with those that were chosen; every candidate is checked
by running the model. So what is found is true, and a smaller set may exist.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

from service.text.pipeline import Answer, ClassificationTask, Span, from_codepoints

MAX_REMOVED_WORDS = 5
CANDIDATES_PER_ROUND = 12
READ_WORDS_PER_LEADER = 3  # tried next to the leader
MAX_SEARCHED_TEXTS = 16  # of a request

Search = Generator[Sequence[ClassificationTask], Sequence[Answer], Answer | None]


def find_counterfactual(task: ClassificationTask) -> Search:
    """Yield tasks to be answered, some at a time; return `flip`, or None where no set is found."""
    plain = replace(
        task.options,
        heads=task.options.heads[:1],
        explain="none",
        trajectory=False,
        offset_unit="codepoints",
    )
    full = replace(plain, explain="full")
    (first,) = yield [ClassificationTask(task.text, full, task.without)]
    label, limit = first["label"], min(MAX_REMOVED_WORDS, first["tokens"] - 1)  # a word at least stays
    chosen: list[dict[str, Any]] = []
    candidates = _candidates(first)
    del first  # of a long text it takes megabytes
    while candidates and len(chosen) < limit:
        sets = [[*chosen, word] for word in candidates]
        answers = yield [
            ClassificationTask(task.text, plain, [*task.without, *map(_span, words)]) for words in sets
        ]
        flipped = [i for i, answer in enumerate(answers) if answer["label"] != label]
        best = min(flipped or range(len(sets)), key=lambda i: float(answers[i]["probs"][label]))
        chosen = sets[best]
        if flipped:
            words = [
                {
                    "word": word["text"],
                    "spans": from_codepoints(task.text, word["spans"], task.options.offset_unit),
                }
                for word in sorted(chosen, key=_span)
            ]
            return {"without": words, "label": answers[best]["label"], "score": answers[best]["score"]}
        candidates = [word for word in candidates if word not in chosen]
    return None


def _candidates(answer: Answer) -> list[dict[str, Any]]:
    """Return the words that support the label: leaders, what they have read, and others by their weight."""
    words = {_span(word): word for word in answer["words"]}
    leaders = [leader for leader in answer["leaders"] if _support(answer, leader) > 0]
    leaders.sort(key=lambda leader: -_support(answer, leader))
    spans = [
        span
        for leader in leaders
        for span in (_span(leader), *map(_span, leader["read"][:READ_WORDS_PER_LEADER]))
    ]
    spans += sorted(words, key=lambda span: -_support(answer, words[span]))
    return [words[span] for span in dict.fromkeys(spans)][:CANDIDATES_PER_ROUND]


def _support(answer: Answer, part: dict[str, Any]) -> float:
    """Return how much a part supports the label over the next one."""
    contribution = part["contribution"]
    if isinstance(contribution, dict):
        first, second = sorted(answer["probs"], key=answer["probs"].__getitem__, reverse=True)[:2]
        return float(contribution[first] - contribution[second])
    return float(contribution if answer["label"] == list(answer["probs"])[1] else -contribution)


def _span(part: dict[str, Any]) -> Span:
    begin, end = part["spans"][0]
    return begin, end
