"""Run the encoder: chunks of tokens to hidden states, and the receptive field of every token.

Hard attention heads determine which tokens a hidden state was computed from (theory.md, section 7):

    R^0(i) = {i},  R^l(i) = R^(l-1)(i) and R^(l-1)(j) of every j that a head of layer l attends to from i

A chunk has 64 tokens at most: such a set is a number of 64 bits, and a union is an `or`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Self

import numpy as np
import orjson
from numpy.typing import NDArray

from hardmax.models.texts import Explain
from service.errors import BundleError
from service.runtime.batcher import group_by_length
from service.runtime.bundle import Bundle
from service.runtime.session import Runtime, Session, check_graph
from service.text.tokenizer import (
    CHUNK_TOKENS,
    MAX_WORDS,
    Chunk,
    Ints,
    TokenizedText,
    Vocabulary,
    WordPieceTokenizer,
)

TokenSets = NDArray[np.uint64]

ENCODER_INPUTS = {"token_ids": "int64", "position_ids": "int64", "rows": "int64", "token_rows": "int64"}
ENCODER_OUTPUTS = {"states": "uint8", "words": "uint8", "attends_to": "uint8"}
VOCABULARY_KEYS = {"tokens": "pieces", "names": "names", "ambiguous_names": "sometimes", "groups": "groups"}
# Tokens in one inference. On a CPU, for each thread: more do not stay in a core's cache, so that 4,096 take
# 1.3 times as long and 8,192 twice. On a GPU: a whole batch of the default MAX_BATCH_TOKENS.
TOKENS_PER_RUN = {"cpu": 1_280, "cuda": 16_384}
MAX_FRAGMENT_CHARS = 2  # a token this short says little about the word that it is a part of
MIN_TOKENS = 101  # every vocabulary begins with the special tokens and the unknown token


@dataclass(frozen=True, slots=True)
class EncoderOutput:
    """The encoder's output for a chunk of n tokens."""

    hidden_states: NDArray[np.uint8]  # [n, W]
    input_embeddings: NDArray[np.uint8]  # [n, W]
    attention_counts: NDArray[np.uint8] | None = None  # [L, n, n] how many heads of token i attend to token j
    receptive_fields: TokenSets | None = None  # [L+1, n] R^l

    def copy_for(self, explain: Explain) -> "EncoderOutput":
        """Copy the arrays that an answer needs: those of the run hold every text of the run."""
        counts = self.attention_counts if explain == "full" else None
        fields = self.receptive_fields if explain != "none" else None
        return EncoderOutput(
            self.hidden_states.copy(),
            self.input_embeddings.copy(),
            None if counts is None else counts.copy(),
            None if fields is None else fields.copy(),
        )


@dataclass(frozen=True, slots=True, eq=False)
class EncodedText:
    """A tokenized text, and the encoder's output for each of its chunks."""

    tokenized: TokenizedText
    outputs: Sequence[EncoderOutput]


class Encoder:
    """An encoder with its tokenizer. Thread-safe."""

    def __init__(self, session: Session, vocabulary: Vocabulary, threads: int = 1) -> None:
        self._session = session
        tokens = TOKENS_PER_RUN[session.provider]
        self._tokens_per_run = tokens * threads if session.provider == "cpu" else tokens
        self._tokenizers = {fold: WordPieceTokenizer(vocabulary, fold_names=fold) for fold in (True, False)}
        self.replacements = vocabulary.special.replacements  # how special tokens are shown
        self._unknown_id = vocabulary.special.unknown
        bare = [token.removeprefix("##") for token in vocabulary.tokens]
        self._has_letters = np.array([any(map(str.isalpha, token)) for token in bare])
        self._is_short = np.array([len(token) <= MAX_FRAGMENT_CHARS for token in bare])
        self._is_folded = np.isin(np.arange(len(bare)), vocabulary.special.folded)

    @classmethod
    def load(cls, bundle: Bundle, runtime: Runtime) -> Self:
        """Load the encoder of a bundle and run it once."""
        graph = bundle.graph_for(runtime.graphs)
        weights = None if graph is bundle.model else bundle.model
        session = runtime.open(graph, weights, bundle.name, whole_numbers=True)
        check_graph(bundle.name, session, ENCODER_INPUTS, ENCODER_OUTPUTS)
        encoder = cls(session, read_vocabulary(bundle), runtime.intra_op_threads)
        zero = np.zeros(1, np.int64)
        encoder.encode([(zero, zero)], output_attentions=True)
        return encoder

    def run_longest(self) -> None:
        """Encode as many tokens as the longest text has, or one run if that has more."""
        tokens = np.arange(max(MAX_WORDS, self._tokens_per_run)) % len(self._is_short)
        chunks = [(chunk, np.arange(CHUNK_TOKENS)) for chunk in tokens.reshape(-1, CHUNK_TOKENS)]
        self.encode(chunks, output_attentions=True)

    def tokenize(self, text: str, *, fold_names: bool = True) -> TokenizedText:
        """Tokenize a text with the vocabulary of this encoder."""
        return self._tokenizers[fold_names].tokenize(text)

    def encode(self, chunks: Sequence[Chunk], *, output_attentions: bool) -> list[EncoderOutput]:
        """Encode chunks, those of similar length together.

        Args:
            chunks: Token ids and position ids of each chunk.
            output_attentions: Whether to return attention counts and receptive fields.
        """
        outputs: dict[int, EncoderOutput] = {}
        for batch in group_by_length([len(token_ids) for token_ids, _ in chunks], self._tokens_per_run):
            encoded = self._encode([chunks[i] for i in batch], output_attentions=output_attentions)
            outputs |= zip(batch, encoded, strict=True)
        return [outputs[i] for i in range(len(chunks))]

    def _encode(self, chunks: Sequence[Chunk], *, output_attentions: bool) -> list[EncoderOutput]:
        """Encode chunks in one inference."""
        names = tuple(ENCODER_OUTPUTS)[: 3 if output_attentions else 2]
        states, embeddings, *attentions = self._session.run(assemble_chunks(chunks), names)
        sizes = [len(token_ids) for token_ids, _ in chunks]
        bounds = pairwise([0, *accumulate(sizes)])
        pairs = [(states[begin:end], embeddings[begin:end]) for begin, end in bounds]
        if not output_attentions:
            return [EncoderOutput(*pair) for pair in pairs]
        (counts,) = attentions
        fields = compute_receptive_fields(counts)
        return [
            EncoderOutput(*pair, counts[:, b, :n, :n], fields[:, b, :n])
            for b, (pair, n) in enumerate(zip(pairs, sizes, strict=True))
        ]

    def known_words(self, texts: Sequence[TokenizedText], sizes: Ints) -> Ints:
        """Return for each word of the texts: 1 if it is known, 0 if not, -1 for punctuation.

        A word with an unknown token, or mostly of fragments, is not known. Several marks that make an
        emoticon are a known word.

        Args:
            texts: The texts, at least one with a word.
            sizes: The number of tokens of each word.
        """
        tokens = np.concatenate([text.token_ids for text in texts])
        begins, is_unknown = np.cumsum(sizes) - sizes, tokens == self._unknown_id
        is_word = np.logical_or.reduceat(self._has_letters[tokens] | is_unknown, begins)
        is_emoticon = np.minimum.reduceat(tokens, begins) < np.maximum.reduceat(tokens, begins)
        n_fragments = np.add.reduceat(self._is_short[tokens], begins, dtype=np.int64)
        fragmented = (sizes > 1) & (2 * n_fragments > sizes)
        is_unknown_word = np.logical_or.reduceat(is_unknown, begins) | fragmented
        known = np.where(is_word, ~is_unknown_word, np.where(is_emoticon, 1, -1))
        return np.where(self._is_folded[tokens[begins]], 1, known)

    def count_known(self, texts: Sequence[TokenizedText], text: Ints, sizes: Ints) -> list[tuple[int, int]]:
        """Return for each text how many words are known, and of how many; `text` is the text of each word."""
        known = self.known_words(texts, sizes)
        counts = [np.bincount(text[mask], minlength=len(texts)).tolist() for mask in (known == 1, known >= 0)]
        return list(zip(*counts, strict=True))


def assemble_chunks(chunks: Sequence[Chunk]) -> dict[str, Ints]:
    """Assemble the inputs of an encoder's graph."""
    sizes = np.array([len(token_ids) for token_ids, _ in chunks])
    present = np.arange(sizes.max()) < sizes[:, None]
    rows = np.full(present.shape, sizes.sum())
    rows[present] = np.arange(sizes.sum())
    token_ids, position_ids = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
    return {
        "token_ids": token_ids, "position_ids": position_ids, "rows": rows,
        "token_rows": np.flatnonzero(present),
    }  # fmt: skip


def compute_receptive_fields(attention_counts: NDArray[np.uint8]) -> TokenSets:
    """[L, B, N, N] -> [L+1, B, N]: R^l of each token, a bit for each token of its chunk."""
    L, B, N, _ = attention_counts.shape
    fields = np.empty((L + 1, B, N), np.uint64)
    fields[0] = np.uint64(1) << np.arange(N, dtype=np.uint64)
    for layer, attends in enumerate(attention_counts > 0):
        attended = fields[layer, :, None, :] * attends  # half the time of np.where
        np.bitwise_or.reduce(attended, axis=2, out=fields[layer + 1])
        fields[layer + 1] |= fields[layer]
    return fields


class ReceptiveFields:
    """The receptive fields of the words of texts, which have so many tokens each, numbered through all."""

    def __init__(self, texts: Sequence[EncodedText], sizes: Ints) -> None:
        self._texts = texts
        outputs = [output for text in texts for output in text.outputs]
        lengths = np.array([len(output.hidden_states) for output in outputs])
        self._first_token = np.cumsum(sizes) - sizes  # of each word
        self._sizes = sizes
        self._word_of_token = np.repeat(np.arange(len(sizes)), sizes)
        self._chunk_start = np.repeat(np.cumsum(lengths) - lengths, lengths)  # of each token
        fields = [output.receptive_fields for output in outputs if output.receptive_fields is not None]
        assert len(fields) == len(outputs)
        self._fields = np.concatenate(fields, axis=1)  # [L+1, T]

    def find_read_words(self, words: Ints) -> tuple[Ints, Ints, Ints]:
        """Find the other words that words have read.

        Returns:
            For every pair of a word and one that it has read: the index in `words`, the other word, and the
            layer at which it entered; sorted by the first two.
        """
        entered = self._entry_layers(words)
        index, bit = np.nonzero(entered < len(self._fields))
        layer = entered[index, bit]
        read = self._word_of_token[self._chunk_start[self._first_token[words]][index] + bit]
        # a word of several tokens enters with the first of them
        begins = np.flatnonzero(np.diff(index, prepend=-1) | np.diff(read, prepend=-1))
        layer, index, read = np.minimum.reduceat(layer, begins), index[begins], read[begins]
        is_other = read != words[index]
        return index[is_other], read[is_other], layer[is_other]

    def _entry_layers(self, words: Ints) -> Ints:
        """Return the layer at which each token of a word's chunk entered its receptive field, [n, 64].

        That is L + 1 for tokens that are not in it.
        """
        sizes = self._sizes[words]
        begins = np.cumsum(sizes) - sizes
        tokens = np.repeat(self._first_token[words] - begins, sizes) + np.arange(sizes.sum())
        fields = np.bitwise_or.reduceat(self._fields[:, tokens], begins, axis=1).astype("<u8")
        bits = np.unpackbits(fields.view(np.uint8), axis=1, bitorder="little")
        absent = len(bits) - bits.sum(axis=0, dtype=np.int64)  # receptive fields only grow
        return np.asarray(absent.reshape(len(words), -1))

    def find_attended(self, b: int, first_word: int) -> list[list[list[int]]]:
        """Return for each word and layer of text b the other words that its heads attend to.

        They are sorted by the number of heads, and numbered within the text, whose first word is given.
        """
        ranked: list[list[list[int]]] = []
        start = self._first_token[first_word]  # the chunk's first token
        for output in self._texts[b].outputs:
            stop = start + len(output.hidden_states)
            word, last_word = self._word_of_token[start], self._word_of_token[stop - 1]
            begins = self._first_token[word : last_word + 1] - start
            assert output.attention_counts is not None
            counts = np.add.reduceat(output.attention_counts, begins, axis=1, dtype=np.int64)
            counts = np.add.reduceat(counts, begins, axis=2)
            np.einsum("lii->li", counts)[:] = 0  # not to itself
            ranked += _rank_attended(counts, word - first_word)
            start = stop
        return ranked


def read_vocabulary(bundle: Bundle) -> Vocabulary:
    """Return the vocabulary of an encoder.

    Raises:
        BundleError: It is damaged.
    """
    try:
        document = orjson.loads(bundle.vocabulary or "")
    except ValueError as error:
        raise BundleError(f"{bundle.name}: pieces.json is not JSON: {error}", param="pieces.json") from None
    lists: dict[str, list[str]] = {}
    for field, key in VOCABULARY_KEYS.items():
        words = document.get(key) if isinstance(document, dict) else None
        if not isinstance(words, list) or not set(map(type, words)) <= {str}:
            problem = f"{bundle.name}: pieces.json needs {key} (a list of words)"
            raise BundleError(problem, param="pieces.json")
        lists[field] = words
    if len(lists["tokens"]) < MIN_TOKENS:
        problem = f"{bundle.name}: pieces.json needs at least {MIN_TOKENS} tokens"
        raise BundleError(problem, param="pieces.json")
    tokens, names, ambiguous, groups = lists.values()
    return Vocabulary(tokens, frozenset(names), frozenset(ambiguous), frozenset(groups))


def _rank_attended(counts: NDArray[np.int64], first_word: int) -> list[list[list[int]]]:
    """[L, m, m] as lists: for each word and layer the attended words, numbered from `first_word`."""
    n_layers, m, _ = counts.shape
    by_word = counts.swapaxes(0, 1).reshape(m * n_layers, m)
    row, attended = np.nonzero(by_word)
    order = np.lexsort((-by_word[row, attended], row))
    words = (first_word + attended[order]).tolist()
    ends = np.bincount(row, minlength=len(by_word)).cumsum().tolist()
    rows = [words[begin:end] for begin, end in pairwise([0, *ends])]
    return [rows[i : i + n_layers] for i in range(0, len(rows), n_layers)]
