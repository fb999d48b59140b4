"""Classify texts: tokenize, encode in chunks, run the heads, explain.

A `ClassificationTask` waits in the batcher. A run takes each of its tasks a few chunks further, all chunks of
all tasks in one inference of the encoder; tasks whose chunks are all encoded go through their heads and are
answered. No answer depends on the texts that it was computed with: every choice is made in integers.
"""

import math
import string
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, chain
from typing import Any

import numpy as np

from hardmax.models.texts import Explain, OffsetUnit
from service.errors import InvalidInput, TooLarge
from service.runtime.batcher import MAX_STEP_SIZE
from service.text.decision import abstain_as_empty, chunks_disagree, predict
from service.text.encoder import EncodedText, Encoder, EncoderOutput
from service.text.explanation import MAX_READ_WORDS, Explainer, add_trajectory
from service.text.head import Head, HeadOutputs, run_heads
from service.text.spans import Span, covered_words
from service.text.tokenizer import MAX_WORDS, Chunk, TokenizedText

Answer = dict[str, Any]

CHARS_PER_TOKEN = 4
CHARS_PER_RUN = 200_000  # that one run tokenizes; the texts after them wait for the next run
# A score is the contribution of a word to one label of one head.
MAX_SCORES = 500_000  # of a text, and of the texts that are answered in one run
_ASCII_LETTERS = string.ascii_letters.encode()


@dataclass(frozen=True)
class ClassifyOptions:
    """The options of a request, and the heads that answer it. All heads are on one encoder."""

    heads: tuple[Head, ...]
    explain: Explain = "leaders"
    trajectory: bool = False
    truncate: bool = True
    offset_unit: OffsetUnit = "codepoints"
    accept_blank: bool = False  # answer blank texts, from the bias

    @property
    def encoder(self) -> Encoder:
        """The encoder of all heads."""
        return self.heads[0].encoder

    @cached_property
    def n_logits(self) -> int:
        """The number of logits of all heads."""
        return sum([head.rule.n_logits for head in self.heads])


def max_words(text: str) -> int:
    """Bound the number of words: each is a mark, or letters next to a mark or a blank."""
    separators = text.encode().translate(None, _ASCII_LETTERS)
    return min(MAX_WORDS, len(text), 2 * len(separators) - separators.count(b" ") + 1)


@dataclass(eq=False, slots=True)
class ClassificationTask:
    """One text to classify, and its progress.

    `without` are spans, in code points, of words to remove in place. `param` is the name of the text in the
    request. The tokens of a searched text are kept, for its trials.
    """

    text: str
    options: ClassifyOptions
    without: Sequence[Span] = ()
    param: str = "input"
    is_searched: bool = False
    tokenized: TokenizedText | None = None
    outputs: list[EncoderOutput] = field(default_factory=list)
    waiting: list[Chunk] = field(default_factory=list)  # chunks that are not encoded yet, last first
    done: int = 0  # tokens that are encoded

    def __post_init__(self) -> None:
        if not self.text.strip() and not self.options.accept_blank:
            raise InvalidInput("the text is empty", param=self.param)
        try:
            self.text.encode()
        except UnicodeEncodeError:
            problem = "the text contains half a character: a lone surrogate"
            raise InvalidInput(problem, param=self.param) from None

    @property
    def size(self) -> int:
        """The tokens that are left; an estimate where the text is not tokenized yet."""
        if self.tokenized is None:
            return min(MAX_WORDS, self._count_chars() // CHARS_PER_TOKEN + 1)
        return sum([len(token_ids) for token_ids, _ in self.waiting]) + 1

    def _count_chars(self) -> int:
        """Return the number of characters; with `without` those of the words that are left."""
        if not self.without:
            return len(self.text)
        ends = chain([0], (end for _, end in self.without))
        begins = chain((begin for begin, _ in self.without), [len(self.text)])
        kept = [self.text[end:begin] for end, begin in zip(ends, begins, strict=True)]
        return sum(map(len, " ".join(kept).split()))

    def tokenize(self, tokenized: TokenizedText | None = None) -> None:
        """Tokenize the text, unless its tokens are given, and remove the words of `without`.

        Raises:
            TooLarge: The text is too long and truncation is off.
            InvalidInput: No word is left.
        """
        if tokenized is None:
            fold_names = self.options.heads[0].fold_names
            tokenized = self.options.encoder.tokenize(self.text, fold_names=fold_names)
        scores = len(tokenized) * self.options.n_logits
        if scores > MAX_SCORES:
            problem = f"the text has {len(tokenized)} words and the models {self.options.n_logits} labels"
            raise TooLarge(f"{problem}: at most {MAX_SCORES} of both multiplied", param=self.param)
        if tokenized.truncated and not self.options.truncate:
            problem = f"the text has more words than the model reads ({MAX_WORDS}), and truncate is off"
            raise TooLarge(problem, param=self.param)
        if self.without:
            tokenized = tokenized.ablate(covered_words(tokenized, self.without))
            if not len(tokenized):
                raise InvalidInput("without leaves no word of the text", param="without")
        self.waiting = tokenized.chunks()[::-1]
        self.tokenized = tokenized

    def release(self) -> None:
        """Release the states of an answered text, whose request may still wait for others."""
        self.outputs, self.waiting = [], []
        if not self.is_searched:
            self.tokenized = None

    def next_chunks(self, max_tokens: int) -> list[Chunk]:
        """Return the chunks of this run: about `max_tokens` tokens, and at least one chunk."""
        count, tokens = 0, 0
        while count < len(self.waiting) and tokens < min(max_tokens, MAX_STEP_SIZE):
            count += 1
            tokens += len(self.waiting[-count][0])
        return self.waiting[-1 : -count - 1 : -1]


def make_tasks(
    inputs: str | Sequence[str],
    options: ClassifyOptions,
    param: str = "input",
    *,
    max_texts: float = math.inf,
    max_chars: float = math.inf,
) -> list[ClassificationTask]:
    """Make a task of each text, named by its index in the request.

    Raises:
        InvalidInput: There is no text, or one is empty.
        TooLarge: There are too many texts, or one is too long.
    """
    if not inputs and not isinstance(inputs, str):
        raise InvalidInput(f"{param} is empty", param=param)
    if not isinstance(inputs, str) and len(inputs) > max_texts:
        raise TooLarge(f"more than {max_texts} texts (MAX_CLIENT_BATCH_SIZE)", param=param)
    tasks = []
    for i, text in enumerate([inputs] if isinstance(inputs, str) else inputs):
        name = param if isinstance(inputs, str) else f"{param}[{i}]"
        if len(text) > max_chars:
            problem = f"the text has {len(text)} characters, more than {max_chars} (MAX_TEXT_CHARS)"
            raise TooLarge(problem, param=name)
        tasks.append(ClassificationTask(text, options, param=name))
    return tasks


def run_batch(
    encoder: Encoder,
    tasks: Sequence[ClassificationTask],
    report_tokenization: Callable[[float], None] = lambda seconds: None,
) -> list[list[Answer] | Exception | None]:
    """Advance tasks by one step; called by the batcher.

    Returns:
        For each task the answers of its heads, the reason why it is refused, or None if it is not finished.
    """
    sizes = {task: task.size for task in tasks}  # with which the batch was planned
    refused = _tokenize_new(tasks, report_tokenization)
    tokenized = [task for task in tasks if task.tokenized is not None]
    _encode_next(encoder, tokenized, sizes)
    answers = _answer(_limit_scores([task for task in tokenized if not task.waiting]))
    for task in answers:
        task.release()
    return [refused.get(task) or answers.get(task) for task in tasks]


def classify_all(tasks: Sequence[ClassificationTask]) -> list[list[Answer] | Exception]:
    """Run tasks to the end without a batcher."""
    results: dict[ClassificationTask, list[Answer] | Exception] = {}
    while unfinished := [task for task in tasks if task not in results]:
        step = zip(unfinished, run_batch(unfinished[0].options.encoder, unfinished), strict=True)
        results |= {task: result for task, result in step if result is not None}
    return [results[task] for task in tasks]


def _tokenize_new(
    tasks: Sequence[ClassificationTask], report: Callable[[float], None]
) -> dict[ClassificationTask, Exception]:
    """Tokenize the new tasks; return those that are refused, with the reason.

    Tasks after the first CHARS_PER_RUN characters stay as they are.
    """
    start_s = time.perf_counter()
    refused: dict[ClassificationTask, Exception] = {}
    new = [task for task in tasks if task.tokenized is None]
    chars = 0
    for task in new:
        if chars >= CHARS_PER_RUN:
            break
        chars += len(task.text)
        try:
            task.tokenize()
        except (InvalidInput, TooLarge) as error:
            refused[task] = error.with_traceback(None)  # the traceback would keep the whole batch
    if new:
        report(time.perf_counter() - start_s)
    return refused


def _encode_next(
    encoder: Encoder, tasks: Sequence[ClassificationTask], sizes: Mapping[ClassificationTask, int]
) -> None:
    """Encode the next chunks of every task in one inference."""
    chunks = [task.next_chunks(sizes[task]) for task in tasks]
    flat = list(chain.from_iterable(chunks))
    if not flat:
        return
    explains = any(task.options.explain != "none" for task in tasks)
    outputs = iter(encoder.encode(flat, output_attentions=explains))
    for task, encoded in zip(tasks, chunks, strict=True):
        del task.waiting[len(task.waiting) - len(encoded) :]
        task.done += sum([len(token_ids) for token_ids, _ in encoded])
        new = [next(outputs) for _ in encoded]
        task.outputs += [output.copy_for(task.options.explain) for output in new] if task.waiting else new


def _limit_scores(tasks: Sequence[ClassificationTask]) -> list[ClassificationTask]:
    """Return the first tasks, at least one, up to MAX_SCORES in total; the next run answers the others."""
    totals = accumulate(len(task.tokenized or ()) * task.options.n_logits for task in tasks)
    return [
        task
        for i, (task, total) in enumerate(zip(tasks, totals, strict=True))
        if not i or total <= MAX_SCORES
    ]


def _answer(tasks: Sequence[ClassificationTask]) -> dict[ClassificationTask, list[Answer]]:
    """Answer tasks that are encoded; those with the same options together."""
    groups: dict[ClassifyOptions, list[ClassificationTask]] = {}
    for task in tasks:
        groups.setdefault(task.options, []).append(task)
    answers: dict[ClassificationTask, list[Answer]] = {}
    for options, group in groups.items():
        texts = [EncodedText(task.tokenized, task.outputs) for task in group if task.tokenized is not None]
        answers |= zip(group, _answer_group(texts, options), strict=True)
    return answers


def _answer_group(texts: Sequence[EncodedText], options: ClassifyOptions) -> list[list[Answer]]:
    """Answer texts that have the same options with all heads."""
    answers: dict[tuple[Head, int], Answer] = {}
    explain = options.explain != "none" or options.trajectory
    for head, indices, outputs in run_heads(options.heads, texts, explain=explain):
        tokenized = [text.tokenized for text in outputs.texts]
        counts = options.encoder.count_known(tokenized, outputs.text, outputs.sizes)
        is_ood = outputs.is_ood.tolist()
        predictions = predict(head.rule, tokenized, counts, outputs.logit, outputs.bias, is_ood)
        _add_mixed(outputs, predictions)
        if options.explain != "none":
            explainer = Explainer(outputs, options.offset_unit, options.encoder.replacements)
            explainer.add_leaders(predictions, MAX_READ_WORDS if options.explain == "leaders" else None)
            if options.explain == "full":
                explainer.add_words(predictions)
        if options.trajectory:
            add_trajectory(outputs, predictions)
        answers |= {(head, i): answer for i, answer in zip(indices, predictions, strict=True)}
    return [
        [answers.get((head, i)) or _answer_wordless(head, text.tokenized, options) for head in options.heads]
        for i, text in enumerate(texts)
    ]


def _add_mixed(outputs: HeadOutputs, answers: Sequence[Answer]) -> None:
    """Add `mixed`, whether chunks disagree, to the answer of each text that has several."""
    for b, (text, answer) in enumerate(zip(outputs.texts, answers, strict=True)):
        chunks = text.tokenized.chunk_ids[text.tokenized.bounds[:-1]]  # of each word
        if chunks[0] != chunks[-1]:
            names = outputs.labels
            units = outputs.contribution[names.index(answer["label"]) if names else 0]
            sums = np.bincount(chunks, units[outputs.bounds[b] : outputs.bounds[b + 1]])  # exact below 2^53
            answer["mixed"] = chunks_disagree(sums.astype(np.int64))


def _answer_wordless(head: Head, tokenized: TokenizedText, options: ClassifyOptions) -> Answer:
    """Answer a text without words, such as markup alone, from the bias."""
    (answer,) = predict(head.rule, [tokenized], [(0, 0)], head.bias, head.bias, [False])
    if not tokenized.text.strip():
        answer = abstain_as_empty(answer)
    lists = {"none": [], "leaders": ["leaders", "clusters"], "full": ["leaders", "clusters", "words"]}
    names = lists[options.explain] + (["trajectory"] if options.trajectory else [])
    return answer | {name: [] for name in names}
