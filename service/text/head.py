"""Run classification heads on encoded texts.

A head gives every word of a text a position, moves the words by hardmax dynamics, and reads out

    logit = bias + sum of the words' contributions

where each word contributes at the position of the leader that it ends with. Contributions are counted in
units of 1e-7, and the logit is their sum: printed numbers add up to the last digit.

Heads of one family, by the digest of their graph, differ only in their weights, which their graph takes as
inputs: they share one session, and one run computes several. Each pair of a head and a text has its own row
in the outputs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from service.errors import BundleError, InferenceError
from service.runtime.batcher import group_by_length
from service.runtime.bundle import Bundle
from service.runtime.graph import split_weights
from service.runtime.session import Runtime, Session, check_graph
from service.text.decision import UNITS_PER_LOGIT, read_decision_rule
from service.text.encoder import EncodedText, Encoder
from service.text.tokenizer import Ints, word_sizes

Array = NDArray[Any]

ORT_TYPES = {"float32": "float", "float64": "double", "uint8": "uint8"}
MAX_WORD_PAIRS = {"cpu": 1 << 22, "cuda": 1 << 26}  # that one run compares
HEAD_INPUTS = {"states": "uint8", "words": "uint8", "members": "int64", "texts": "int64"}
PREDICTION_OUTPUTS = {"bias": "double", "contribution": "double"}
EXPLANATION_OUTPUTS = {"target": "int64", "since": "int64", "plane": "double"}
OOD_OUTPUT = "unlike"  # optional out-of-distribution score: above 0 where a text is unlike the training data
MAX_LOGIT = 1e5  # of a bias or a contribution: sums of 2,560 words in units stay below 2^53
WARM_UP_TEXT = "A good film, and a bad one."


@dataclass(frozen=True, slots=True)
class HeadOutputs:
    """The outputs of heads for B texts with M words, one after the other.

    Contributions are in units. C is the largest number of logits of a head; a text whose head has fewer has
    the last ones.
    """

    texts: Sequence[EncodedText]
    labels: Sequence[tuple[str, ...]]  # of each text, those of its logits; none where it has one
    bounds: Ints  # [B+1]: text b has the words bounds[b] to bounds[b + 1]
    text: Ints  # [M] the text of each word
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
    is_word: NDArray[np.bool_]  # [B, N]


class Head:
    """A classification head on an encoder. Thread-safe."""

    def __init__(
        self,
        name: str,
        session: Session,
        weights: Mapping[str, Array],
        encoder: Encoder,
        card: Mapping[str, Any],
    ) -> None:
        self.name = name
        self.session = session
        self.weights = dict(weights)  # [1, ..]
        self.encoder = encoder
        self.rule = read_decision_rule(card)
        self.fold_names = read_fold_names(card)
        self.has_ood_score = OOD_OUTPUT in {spec.name for spec in session.outputs}
        for weight, array in self.weights.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise BundleError(f"{name}: {weight} holds a number that is not finite", param="model.onnx")
        probe = encoder.tokenize(WARM_UP_TEXT)  # the first inference is slow: no caller should wait for it
        outputs = encoder.encode(probe.chunks(), output_attentions=True)
        feeds = assemble_feeds([EncodedText(probe, outputs)])
        names = ("bias", "contribution", "plane")
        bias, contribution, positions = session.run({**feeds.arrays, **self.weights}, names)
        if not _is_bounded(bias) or not _is_bounded(contribution):
            raise BundleError(f"{name}: its graph returns numbers that are not finite", param="model.onnx")
        self.dimensions = positions.shape[-1]
        self.bias = _to_units(bias.reshape(1, -1).T)  # [C, 1] the same for every text
        if len(self.bias) != self.rule.n_logits:
            raise BundleError(f"{name}: its graph has {len(self.bias)} logits", param="labels")

    @classmethod
    def load(cls, bundle: Bundle, runtime: Runtime, encoder: Encoder) -> Self:
        """Load the head of a bundle and run it once. Heads with the same graph share a session."""
        graph = bundle.graph_for(runtime.provider)
        digest, weights = split_weights(bundle.model)
        inputs, defaults = dict(HEAD_INPUTS), list(weights)
        if graph is not bundle.model:
            digest, _ = split_weights(graph)
            inputs |= {weight: ORT_TYPES.get(array.dtype.name, "") for weight, array in weights.items()}
            defaults = []
        session = encoder.head_sessions.get(digest)
        if session is None:
            session = runtime.open(graph)
            check_graph(bundle.name, session, inputs, PREDICTION_OUTPUTS | EXPLANATION_OUTPUTS, defaults)
            encoder.head_sessions[digest] = session
        return cls(bundle.name, session, weights, encoder, bundle.card)

    def metadata(self) -> dict[str, Any]:
        """Return the fields that GET /models adds to the card."""
        numbers = (self.bias[:, 0] / UNITS_PER_LOGIT).tolist()
        names = self.rule.logit_labels
        return {"bias": dict(zip(names, numbers, strict=True)) if names else numbers[0]}


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
) -> Iterator[tuple[Sequence[Head], list[int], HeadOutputs]]:
    """Run heads on texts: those of similar length and heads of one family together.

    Yields the heads, the indices of the texts, and the outputs. A text without words is left out.
    """
    lengths = [len(text.tokenized) for text in texts]
    present = [i for i, length in enumerate(lengths) if length]
    max_pairs = MAX_WORD_PAIRS[heads[0].session.provider]
    families: dict[Session, list[Head]] = {}
    for head in heads:
        families.setdefault(head.session, []).append(head)
    for group in group_by_length([lengths[i] for i in present], max_pairs, power=2):
        indices = [present[i] for i in group]
        group_texts = [texts[i] for i in indices]
        feeds = assemble_feeds(group_texts)
        heads_per_run = max(1, max_pairs // (len(indices) * lengths[indices[-1]] ** 2))
        for family in families.values():
            for begin in range(0, len(family), heads_per_run):
                batch = family[begin : begin + heads_per_run]
                yield batch, indices, _run(batch, group_texts, feeds, explain=explain)


def _run(
    heads: Sequence[Head], texts: Sequence[EncodedText], feeds: HeadFeeds, *, explain: bool
) -> HeadOutputs:
    """Run heads of one family on texts, in one inference."""
    has_ood_score = heads[0].has_ood_score
    names = (
        *PREDICTION_OUTPUTS,
        *(EXPLANATION_OUTPUTS if explain else ()),
        *((OOD_OUTPUT,) if has_ood_score else ()),
    )
    arrays = heads[0].session.run({**feeds.arrays, **stack_weights(heads)}, names)
    values = dict(zip(names, arrays, strict=True))
    for head, *rows in zip(heads, values["bias"], values["contribution"], strict=True):
        if not all(map(_is_bounded, rows)):
            raise InferenceError(f"{head.name}: its graph returned numbers that are not finite")
    C, N = values["contribution"].shape[-2:]
    B, lengths = len(heads) * len(texts), np.tile(np.diff(feeds.bounds), len(heads))
    is_word = np.tile(feeds.is_word, (len(heads), 1))
    outputs = HeadOutputs(
        texts=[*texts] * len(heads),
        labels=[head.rule.logit_labels for head in heads for _ in texts],
        bounds=np.concatenate(([0], np.cumsum(lengths))),
        text=np.repeat(np.arange(B), lengths),
        bias=_to_units(values["bias"].reshape(B, C).T),
        contribution=_to_units(values["contribution"].reshape(B, C, N).swapaxes(0, 1)[:, is_word]),
        is_ood=values[OOD_OUTPUT].reshape(B) > 0 if has_ood_score else np.zeros(B, np.bool_),
    )
    if not explain:
        return outputs
    positions = values["plane"].reshape(len(values["plane"]), B, N, -1)
    dimensions = [head.dimensions for head in heads for _ in texts]
    return replace(
        outputs,
        target=values["target"].reshape(B, N)[is_word],
        leader_since=values["since"].reshape(B, N)[is_word],
        positions=[
            positions[:, b, :n, -d:]
            for b, (n, d) in enumerate(zip(lengths.tolist(), dimensions, strict=True))
        ],
    )


def stack_weights(heads: Sequence[Head]) -> dict[str, Array]:
    """Stack the weights of heads for one run: those of a smaller head have zeros in front."""
    if len(heads) == 1:
        return heads[0].weights
    stacked: dict[str, Array] = {}
    for name in heads[0].weights:
        arrays = [head.weights[name][0] for head in heads]
        shape = np.max([array.shape for array in arrays], axis=0)
        stacked[name] = np.zeros((len(arrays), *shape), arrays[0].dtype)
        for row, array in zip(stacked[name], arrays, strict=True):
            corner = tuple(slice(full - size, full) for full, size in zip(shape, array.shape, strict=True))
            row[corner] = array
    return stacked


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
    return HeadFeeds(arrays, np.concatenate(([0], np.cumsum(lengths))), is_word)


def _is_bounded(values: Array) -> bool:
    """Return whether the numbers are finite, and small enough for exact sums in units."""
    return bool((np.abs(values) < MAX_LOGIT).all())


def _to_units(values: Array) -> Ints:
    return np.asarray(np.rint(values * UNITS_PER_LOGIT).astype(np.int64))
