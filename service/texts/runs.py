"""How texts run together: what an inference is asked for, how large it is, and what is refused before it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from service.errors import TooLarge

if TYPE_CHECKING:
    from service.schemas.texts import Explain, Spans
    from service.texts.sentiment import Sentiment

CHARS_PER_TOKEN = 4  # a word has five characters and a blank, and marks are tokens too

TEXT_BYTES = {"none": 500, "leaders": 5_000, "full": 5_000}  # of an answer about one text
WORD_BYTES = 500  # of each word in a whole explanation

Answer = dict[str, Any]


class How(NamedTuple):
    """Texts run together when they want the same of the same model."""

    model: Sentiment
    explain: Explain
    trajectory: bool
    truncate: bool
    spans: Spans


def size_of(text: str) -> int:
    """About how many tokens a text has: batches are planned with it before the text is read."""
    return len(text) // CHARS_PER_TOKEN + 1


def bytes_of(how: How, texts: Sequence[str]) -> int:
    """About what the answers take: measured, between their length in JSON and their objects in memory."""
    size = TEXT_BYTES[how.explain] * len(texts)
    if how.explain == "full":
        size += WORD_BYTES * sum([min(size_of(text), how.model.max_length) for text in texts])
    return size


def run_texts(
    how: How, texts: Sequence[str], tokenised: Callable[[float], None] = lambda seconds: None
) -> list[Answer | Exception]:
    """What the batcher runs.

    A text that is too long for a caller who does not want it cut is refused before anything is inferred.
    """
    started = time.perf_counter()
    read = how.model.tokenise_many(texts)
    tokenised(time.perf_counter() - started)
    wanted = [tokens for tokens in read if how.truncate or not tokens.truncated]
    found = iter(how.model.classify(wanted, how.explain, trajectory=how.trajectory, spans=how.spans))
    problem = f"the text has more words than the model reads ({how.model.max_length}), and truncate is off"
    return [next(found) if how.truncate or not each.truncated else TooLarge(problem) for each in read]
