"""The way of texts through the models: read in pieces, seen in passages, judged whole, explained.

A `Text` is what waits in the queue. A run takes each of its texts a few passages further, all passages of all
texts in one inference of the reader; texts of which every passage was seen go through their heads and are
answered. No answer depends on the texts that it was computed with: every choice is made in whole numbers.
"""

import math
import string
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, product
from sys import getsizeof
from typing import Any

import numpy as np

from hardmax.documents import Explain, Spans
from service.errors import InvalidInput, TooLarge
from service.text.encoder import Read, Reader, Seen
from service.text.explanation import READ, Reasons, utf16
from service.text.head import Head, judge, outputs_of
from service.text.tokenizer import MOST, Ints, Reading

Answer = dict[str, Any]
Span = tuple[int, int]

STRIDE = 128  # pieces of a text that one run reads at most: the turn of others comes soon
CHARS_PER_PIECE = 4
# What an answer takes, as JSON and as objects: for each text,
TEXT_BYTES = {"none": 500, "leaders": 5_000, "full": 5_000}
LETTERS = {"none": 0, "leaders": 4, "full": 12}  # for each byte of the text,
WORD_BYTES = 1_400  # for each word in a whole explanation,
PLACE_BYTES = 150  # and for each word's place at one layer of a trajectory
_IN_A_WORD = string.ascii_letters.encode()


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What is asked about a text, and of which heads. All of them stand on one reader."""

    heads: tuple[Head, ...]
    explain: Explain = "leaders"
    trajectory: bool = False
    truncate: bool = True
    spans: Spans = "codepoints"

    @property
    def reader(self) -> Reader:
        return self.heads[0].reader

    def bytes_of(self, texts: Sequence[str]) -> int:
        """About what the texts and their answers take, beside the body."""
        letters = sum([len(text.encode()) for text in texts])
        size = TEXT_BYTES[self.explain] * len(texts) + LETTERS[self.explain] * letters
        if self.explain == "full":
            word = WORD_BYTES + (8 * PLACE_BYTES if self.trajectory else 0)
            size += word * sum(map(most_words, texts))
        return size * len(self.heads) + sum(map(getsizeof, texts))  # of an emoji, four bytes a letter


def most_words(text: str) -> int:
    """A bound on the words that are read: each stands alone, or has a blank or a mark beside it."""
    others = text.encode().translate(None, _IN_A_WORD)
    return min(MOST, len(text), 2 * len(others) - others.count(b" ") + 1)


@dataclass(eq=False, slots=True)
class Text:
    """One text on its way. `without` are spans, in code points, of words that are left out in place; the
    request calls it `place`.
    """

    source: str
    how: RunOptions
    without: Sequence[Span] = ()
    place: str = "input"
    reading: Reading | None = None
    seen: list[Seen] = field(default_factory=list)
    # passages that were not seen yet, last first
    waiting: list[tuple[Ints, Ints]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.source or self.source.isspace():
            raise InvalidInput("the text is empty", param=self.place)
        try:
            self.source.encode()
        except UnicodeEncodeError:
            problem = "the text holds half a character (a lone surrogate)"
            raise InvalidInput(problem, param=self.place) from None

    @property
    def size(self) -> int:
        """Pieces that the next run reads; about as many where the text was not read yet."""
        if self.reading is None:
            return min(MOST, len(self.source) // CHARS_PER_PIECE + 1)
        return min(STRIDE, sum([len(pieces) for pieces, _ in self.waiting]) + 1)

    def read(self) -> None:
        reading = self.how.reader.read(self.source)
        if reading.truncated and not self.how.truncate:
            problem = f"the text has more words than the model reads ({MOST}), and truncate is off"
            raise TooLarge(problem, param=self.place)
        if self.without:
            reading = reading.without(covered(reading, self.without))
            if not len(reading):
                raise InvalidInput("without leaves no word of the text", param="without")
        self.waiting = reading.split()[::-1]
        self.reading = reading

    def forget(self) -> None:
        """Let go of what was read: it is answered, and its request still waits for others."""
        self.reading, self.seen, self.waiting = None, [], []

    def next_passages(self, most: int) -> list[tuple[Ints, Ints]]:
        """What this run sees: about so many pieces, in whole passages, and one passage at least."""
        found, pieces = 0, 0
        while found < len(self.waiting) and pieces < min(most, STRIDE):
            found += 1
            pieces += len(self.waiting[-found][0])
        return self.waiting[-1 : -found - 1 : -1]


def texts_of(
    inputs: str | Sequence[str], how: RunOptions, param: str = "input", most_chars: float = math.inf
) -> list[Text]:
    """The texts on their way, each with its place. One that is too long is refused before it is read."""
    texts = []
    for i, source in enumerate([inputs] if isinstance(inputs, str) else inputs):
        place = param if isinstance(inputs, str) else f"{param}[{i}]"
        if len(source) > most_chars:
            problem = f"the text has {len(source)} characters, more than {most_chars} (MAX_TEXT_CHARS)"
            raise TooLarge(problem, param=place)
        texts.append(Text(source, how, place=place))
    return texts


def codepoints(source: str, spans: Sequence[Span], unit: Spans) -> list[Span]:
    """Spans of a text, counted in code points."""
    if unit == "codepoints":
        return list(spans)
    units = utf16(source)
    # subtle: a span that begins in the middle of a character has that character
    return [
        (int(units.searchsorted(begin, "right")) - 1, int(units.searchsorted(end))) for begin, end in spans
    ]


def in_unit(source: str, spans: Sequence[Sequence[int]], unit: Spans) -> list[list[int]]:
    """Spans of a text that count code points, in this unit."""
    if unit == "codepoints":
        return [list(span) for span in spans]
    return [utf16(source)[list(span)].tolist() for span in spans]


def covered(reading: Reading, spans: Iterable[Span]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which words have a letter in one of the spans."""
    gone = np.zeros(len(reading), np.bool_)
    for begin, end in spans:
        gone |= (reading.starts < end) & (reading.ends > begin)
    return gone


def run(
    reader: Reader, texts: Sequence[Text], was_read: Callable[[float], None] = lambda seconds: None
) -> list[list[Answer] | Exception | None]:
    """What the batcher runs. A text that it finishes has an answer by each of its heads, or the reason why it
    is refused; any other has None.
    """
    sizes = {text: text.size for text in texts}  # what the batch was planned with
    refused = read_new(texts, was_read)
    going = [text for text in texts if text not in refused]
    see(reader, going, sizes)
    answers = answer([text for text in going if not text.waiting])
    for text in answers:
        text.forget()
    return [refused.get(text) or answers.get(text) for text in texts]


def run_all(texts: Sequence[Text]) -> list[list[Answer] | Exception]:
    """The same without a queue, to the end."""
    found: dict[Text, list[Answer] | Exception] = {}
    while left := [text for text in texts if text not in found]:
        ended = zip(left, run(left[0].how.reader, left), strict=True)
        found |= {text: end for text, end in ended if end is not None}
    return [found[text] for text in texts]


def read_new(texts: Sequence[Text], was_read: Callable[[float], None]) -> dict[Text, Exception]:
    """Find the pieces of those that come for the first time; who is refused, and why."""
    began = time.perf_counter()
    refused: dict[Text, Exception] = {}
    new = [text for text in texts if text.reading is None]
    for text in new:
        try:
            text.read()
        except (InvalidInput, TooLarge) as reason:
            refused[text] = reason.with_traceback(None)  # which holds this function, and so the whole batch
    if new:
        was_read(time.perf_counter() - began)
    return refused


def see(reader: Reader, texts: Sequence[Text], sizes: Mapping[Text, int]) -> None:
    """The next passages of every text, in one inference."""
    passages = [text.next_passages(sizes[text]) for text in texts]
    flat = [passage for each in passages for passage in each]
    if not flat:
        return
    reasons = any(text.how.explain != "none" for text in texts)
    seen = iter(reader.see(flat, reasons=reasons))
    for text, mine in zip(texts, passages, strict=True):
        del text.waiting[len(text.waiting) - len(mine) :]
        kept = [next(seen).kept(text.how.explain) for _ in mine]
        text.seen += [each.alone() for each in kept] if text.waiting else kept


def answer(texts: Sequence[Text]) -> dict[Text, list[Answer]]:
    """Answers to texts that were seen to their end; those that ask for the same are answered together."""
    found: dict[Text, list[Answer]] = {}

    def order(text: Text) -> tuple[list[int], str, bool, str]:
        how = text.how
        return list(map(id, how.heads)), how.explain, how.trajectory, how.spans

    for _, group in groupby(sorted(texts, key=order), order):
        alike = list(group)
        found |= zip(alike, _explained(alike), strict=True)
    return found


def _explained(texts: Sequence[Text]) -> list[list[Answer]]:
    """All heads' answers to texts that ask for the same."""
    how = texts[0].how
    read = [Read(text.reading, text.seen) for text in texts if text.reading is not None]
    found: dict[tuple[Head, int], Answer] = {}
    for heads, places, outputs in outputs_of(how.heads, read, reasons=how.explain != "none"):
        whose = list(product(heads, places))
        answers = judge(
            [head for head, _ in whose],
            [text.reading for text in outputs.texts],
            outputs.logit,
            outputs.bias,
            outputs.unlike.tolist(),
        )
        if how.explain != "none":
            reasons = Reasons(outputs, how.spans)
            reasons.tell_leaders(answers, READ if how.explain == "leaders" else None)
            if how.explain == "full":
                reasons.tell_words(answers)
            if how.trajectory:
                reasons.tell_trajectory(answers)
        found |= zip(whose, answers, strict=True)
    return [
        [found.get((head, i)) or _wordless(head, text.reading, how) for head in how.heads]
        for i, text in enumerate(read)
    ]


def _wordless(head: Head, reading: Reading, how: RunOptions) -> Answer:
    """A text of markup alone: nothing but the bias."""
    (answer,) = judge([head], [reading], head.bias, head.bias, [False])
    told = {"none": [], "leaders": ["leaders", "clusters"], "full": ["leaders", "clusters", "words"]}
    empty = told[how.explain] + (["trajectory"] if how.trajectory else [])
    return answer | {name: [] for name in empty}
