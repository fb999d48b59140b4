"""Run classification heads on encoded texts.

A head gives every word of a text a position, moves the words by hardmax dynamics, and reads out

    logit = bias + sum of the words' contributions

where each word contributes at the position of the leader that it ends with. Contributions are counted in
units of 1e-7, and the logit is their sum: printed numbers add up to the last digit.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from service.errors import BundleError, InferenceError
from service.runtime.batcher import group_by_length
from service.runtime.bundle import Bundle, version_of
from service.runtime.session import Runtime, Session, check_graph
from service.text.decision import UNITS_PER_LOGIT, read_decision_rule
from service.text.encoder import EncodedText, Encoder
from service.text.tokenizer import MAX_WORDS, Ints, word_sizes

log = logging.getLogger(__name__)

Array = NDArray[Any]

MAX_WORD_PAIRS = {"cpu": 1 << 22, "cuda": 1 << 26}  # that one run compares
HEAD_INPUTS = {"states": "uint8", "words": "uint8", "members": "int64", "texts": "int64"}
PREDICTION_OUTPUTS = {"bias": "double", "contribution": "double"}
EXPLANATION_OUTPUTS = {"target": "int64", "since": "int64", "plane": "double"}
OOD_OUTPUT = "unlike"  # optional out-of-distribution score: above 0 where a text is unlike the training data
HEAD_OUTPUTS = (*PREDICTION_OUTPUTS, *EXPLANATION_OUTPUTS, OOD_OUTPUT)
MAX_LOGIT = 1e5  # of a bias or a contribution: sums of 2,560 words in units stay below 2^53
WARM_UP_TEXT = "A good film, and a bad one."


@dataclass(frozen=True, slots=True)
class HeadOutputs:
    """The outputs of a head with C logits for B texts with M words, one after the other, in units."""

    texts: Sequence[EncodedText]
    labels: tuple[str, ...]  # of the logits; none where there is one
    bounds: Ints  # [B+1]: text b has the words bounds[b] to bounds[b + 1]
    text: Ints  # [M] the text of each word
    sizes: Ints  # [M] the number of tokens of each word
    bias: Ints  # [C, B]
    contribution: Ints  # [C, M]
    is_ood: NDArray[np.bool_]  # [B]
    # [M] the word that it finally attends to, numbered in its text; -1 for a tie. None without explanation
    target: Ints | None = None
    leader_since: Ints | None = None  # [M] the first layer at which the word is a leader, or -1
    positions: Sequence[Array] = ()  # of each text [K+1, N, d]

    @property
    def logit(self) -> Ints:
        """[C, B]"""
        sums = np.concatenate(([[0]] * len(self.bias), np.cumsum(self.contribution, axis=1)), axis=1)
        return np.asarray(self.bias + sums[:, self.bounds[1:]] - sums[:, self.bounds[:-1]])


@dataclass(frozen=True, slots=True)
class HeadFeeds:
    """The inputs of a head's graph for several texts."""

    arrays: dict[str, Array]
    bounds: Ints  # [B+1] where the words of each text begin
    sizes: Ints  # [M] the number of tokens of each word
    is_word: NDArray[np.bool_]  # [B, N]


class Head:
    """A classification head on an encoder. Thread-safe."""

    def __init__(
        self, name: str, digest: str, session: Session, encoder: Encoder, card: Mapping[str, Any]
    ) -> None:
        self.name = name
        self.version = version_of(name)
        self.digest = digest
        self.session = session
        self.encoder = encoder
        self.rule = read_decision_rule(card)
        self.fold_names = read_fold_names(card)
        self.has_ood_score = OOD_OUTPUT in {spec.name for spec in session.outputs}
        probe = encoder.tokenize(WARM_UP_TEXT)  # the first inference is slow: no caller should wait for it
        outputs = encoder.encode(probe.chunks(), output_attentions=True)
        feeds = assemble_feeds([EncodedText(probe, outputs)])
        names = (*PREDICTION_OUTPUTS, *EXPLANATION_OUTPUTS)
        bias, contribution, *_ = session.run(feeds.arrays, names)
        if not _is_bounded(bias) or not _is_bounded(contribution):
            raise BundleError(f"{name}: its graph returns numbers that are not finite", param="model.onnx")
        self.bias = _to_units(bias.reshape(1, -1).T)  # [C, 1] the same for every text
        if len(self.bias) != self.rule.n_logits:
            raise BundleError(f"{name}: its graph has {len(self.bias)} logits", param="labels")

    @classmethod
    def load(cls, bundle: Bundle, runtime: Runtime, encoder: Encoder) -> Self:
        """Load the head of a bundle and run it once."""
        return cls(bundle.name, bundle.digest, open_graph(bundle, runtime), encoder, bundle.card)

    def metadata(self) -> dict[str, Any]:
        """Return the fields that GET /models adds to the card."""
        numbers = (self.bias[:, 0] / UNITS_PER_LOGIT).tolist()
        names = self.rule.logit_labels
        return {"bias": dict(zip(names, numbers, strict=True)) if names else numbers[0]}


def open_graph(bundle: Bundle, runtime: Runtime) -> Session:
    """Open the graph of a head.

    Raises:
        BundleError: It is not that of a head.
    """
    graph = bundle.graph_for(runtime.graphs)
    weights = None if graph is bundle.model else bundle.model
    # as it is: its runs take the same time after the optimization, which takes half of the time to open it
    session = runtime.open(graph, weights, bundle.name, optimized=False)
    if graph is bundle.float_model and len(session.inputs) > len(HEAD_INPUTS):
        log.warning("%s has a graph for GPUs of before 0.5: export it again", bundle.name)
        session = runtime.open(bundle.model, name=bundle.name, optimized=False)
    check_graph(bundle.name, session, HEAD_INPUTS, PREDICTION_OUTPUTS | EXPLANATION_OUTPUTS)
    return session


def run_longest(session: Session) -> None:
    """Run the graph of a head on one word, on the longest text, and on many texts, all of random states."""
    width = session.inputs[0].shape[-1]
    if width is None:
        raise BundleError("its graph does not say how wide hidden states are", param="model.onnx")
    for n_texts, n_words in ((1, 1), (1, MAX_WORDS), (64, 256)):
        words = np.arange(n_texts * n_words)
        states = np.random.default_rng(0).integers(0, 256, (len(words), width), np.uint8)
        feeds = {"states": states, "words": states[::-1], "members": words[:, None]}
        names = (*PREDICTION_OUTPUTS, *EXPLANATION_OUTPUTS)
        session.run({**feeds, "texts": words.reshape(n_texts, n_words)}, names)


def read_fold_names(card: Mapping[str, Any]) -> bool:
    """Return whether names and groups of people are one token each for a head.

    Raises:
        BundleError: The card has something else than true or false.
    """
    fold_names = card.get("fold_names", True)
    if type(fold_names) is not bool:
        raise BundleError("card.json: fold_names is true or false", param="fold_names")
    return fold_names


def run_heads(
    heads: Sequence[Head], texts: Sequence[EncodedText], *, explain: bool
) -> Iterator[tuple[Head, list[int], HeadOutputs]]:
    """Run heads on texts, those of similar length together.

    Yields the head, the indices of the texts, and the outputs. A text without words is left out.
    """
    lengths = [len(text.tokenized) for text in texts]
    present = [i for i, length in enumerate(lengths) if length]
    max_pairs = MAX_WORD_PAIRS[heads[0].session.provider]
    for group in group_by_length([lengths[i] for i in present], max_pairs, power=2):
        indices = [present[i] for i in group]
        group_texts = [texts[i] for i in indices]
        feeds = assemble_feeds(group_texts)
        for head in heads:
            yield head, indices, _run(head, group_texts, feeds, explain=explain)


def _run(head: Head, texts: Sequence[EncodedText], feeds: HeadFeeds, *, explain: bool) -> HeadOutputs:
    """Run a head on texts, in one inference."""
    names = [*PREDICTION_OUTPUTS, *(EXPLANATION_OUTPUTS if explain else ())]
    names += [OOD_OUTPUT] if head.has_ood_score else []
    values = dict(zip(names, head.session.run(feeds.arrays, names), strict=True))
    bias, contribution = values["bias"], values["contribution"]
    ood_score = values.get(OOD_OUTPUT, np.zeros(len(texts)))
    if not (_is_bounded(bias) and _is_bounded(contribution) and np.isfinite(ood_score).all()):
        raise InferenceError(f"{head.name}: its graph returned numbers that are not finite")
    C, N = contribution.shape[-2:]
    B, lengths = len(texts), np.diff(feeds.bounds)
    outputs = HeadOutputs(
        texts=texts,
        labels=head.rule.logit_labels,
        bounds=feeds.bounds,
        text=np.repeat(np.arange(B), lengths),
        sizes=feeds.sizes,
        bias=_to_units(bias.reshape(B, C).T),
        contribution=_to_units(contribution.reshape(B, C, N).swapaxes(0, 1)[:, feeds.is_word]),
        is_ood=ood_score.reshape(B) > 0,
    )
    if not explain:
        return outputs
    positions = values["plane"].reshape(len(values["plane"]), B, N, -1)
    return replace(
        outputs,
        target=values["target"].reshape(B, N)[feeds.is_word],
        leader_since=values["since"].reshape(B, N)[feeds.is_word],
        positions=[positions[:, b, :n] for b, n in enumerate(lengths.tolist())],
    )


def assemble_feeds(texts: Sequence[EncodedText]) -> HeadFeeds:
    """Assemble the inputs of a head's graph."""
    outputs = [output for text in texts for output in text.outputs]
    sizes = word_sizes([text.tokenized for text in texts])
    lengths = np.array([len(text.tokenized) for text in texts])
    T, M = int(sizes.sum()), len(sizes)
    column = np.arange(sizes.max())
    members = np.where(column < sizes[:, None], (np.cumsum(sizes) - sizes)[:, None] + column, T)
    is_word = np.arange(lengths.max()) < lengths[:, None]
    words = np.full(is_word.shape, M)
    words[is_word] = np.arange(M)
    arrays = {
        "states": np.concatenate([output.hidden_states for output in outputs]),
        "words": np.concatenate([output.input_embeddings for output in outputs]),
        "members": members,
        "texts": words,
    }
    return HeadFeeds(arrays, np.concatenate(([0], np.cumsum(lengths))), sizes, is_word)


def _is_bounded(values: Array) -> bool:
    """Return whether the numbers are finite, and small enough for exact sums in units."""
    return bool((np.abs(values) < MAX_LOGIT).all())


def _to_units(values: Array) -> Ints:
    return np.asarray(np.rint(values * UNITS_PER_LOGIT).astype(np.int64))
