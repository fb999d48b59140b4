"""What would change a verdict: the smallest set of words found whose leaving out changes the label.

Finding the smallest of all is a hitting-set problem. This grows a set: in each round the words that weigh
most for the label are left out, each in turn, beside those that were chosen; every candidate is checked by
running the model. So what is found is true, and a smaller set may exist.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

from service.text.pipeline import Answer, Span, Text, in_unit

MOST_WORDS = 5  # in a set
CANDIDATES = 12  # in a round
READ = 3  # how many of the words that a leader has read are tried beside it

MOST_TEXTS = 16  # how many texts of a request may be searched

Search = Generator[Sequence[Text], Sequence[Answer], Answer | None]


def find_flip(text: Text) -> Search:
    """Yields texts that shall be answered, some at a time; returns `flip`, or None where no set was found."""
    plain = replace(text.how, heads=text.how.heads[:1], explain="none", trajectory=False, spans="codepoints")
    full = replace(plain, explain="full")
    (first,) = yield [Text(text.source, full, text.without)]
    label, most = first["label"], min(MOST_WORDS, first["tokens"] - 1)  # a word at least stays
    chosen: list[dict[str, Any]] = []
    candidates = _candidates(first)
    del first  # of a long text it takes megabytes
    while candidates and len(chosen) < most:
        sets = [[*chosen, word] for word in candidates]
        answers = yield [Text(text.source, plain, [*text.without, *map(_span, words)]) for words in sets]
        flipped = [i for i, answer in enumerate(answers) if answer["label"] != label]
        best = min(flipped or range(len(sets)), key=lambda i: float(answers[i]["probs"][label]))
        chosen = sets[best]
        if flipped:
            words = [
                {"word": word["text"], "spans": in_unit(text.source, word["spans"], text.how.spans)}
                for word in sorted(chosen, key=_span)
            ]
            return {"without": words, "label": answers[best]["label"], "score": answers[best]["score"]}
        candidates = [word for word in candidates if word not in chosen]
    return None


def _candidates(answer: Answer) -> list[dict[str, Any]]:
    """The words that speak for the label: its leaders, what they have read, and others by their weight."""
    words = {_span(word): word for word in answer["words"]}
    leaders = [leader for leader in answer["leaders"] if _pull(answer, leader) > 0]
    leaders.sort(key=lambda leader: -_pull(answer, leader))
    found = [span for leader in leaders for span in (_span(leader), *map(_span, leader["read"][:READ]))]
    found += sorted(words, key=lambda span: -_pull(answer, words[span]))
    return [words[span] for span in dict.fromkeys(found)][:CANDIDATES]


def _pull(answer: Answer, part: dict[str, Any]) -> float:
    """How much a part speaks for the label, and not for the next."""
    contribution = part["contribution"]
    if isinstance(contribution, dict):
        first, second = sorted(answer["probs"], key=answer["probs"].__getitem__, reverse=True)[:2]
        return float(contribution[first] - contribution[second])
    return float(contribution if answer["label"] == list(answer["probs"])[1] else -contribution)


def _span(part: dict[str, Any]) -> Span:
    begin, end = part["spans"][0]
    return begin, end
