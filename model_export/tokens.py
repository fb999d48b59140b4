"""From text to bags of distinct tokens: words, and phrases of two or three words that stand next to each
other.

The words are found by a `tokenizers` pipeline that keeps character offsets; it alone decides what a word is.
Phrases are looked up from word ids, all at once for many texts. Knows nothing of labels or models.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from service.errors import InvalidInput, MalformedInput, NotFound

PAD, UNK = 0, 1
SPECIAL = ("[PAD]", "[UNK]")
LONGEST_PHRASE = 3
# A phrase of word ids is one integer in this base: three digits fit in 63 bits.
BASE = 1 << 21
# "don't" and "10/10" are one word each; ! and ? speak for themselves, other punctuation does not.
WORD = r"\p{L}+(?:'\p{L}+)*|\d+(?:[./]\d+)?|[!?]"
SHORT = 40  # tokens: a text as short as this is never thinned, for "not" may be all that it says
_CHUNK = 4096

Ids = NDArray[np.int64]


def tokenizer_of(vocabulary: Sequence[str] = ()) -> Tokenizer:
    """A WordLevel tokenizer over words and phrases (id = position, after the two special tokens)."""
    known = {token: i for i, token in enumerate((*SPECIAL, *vocabulary))}
    tokenizer = Tokenizer(models.WordLevel(known, unk_token=SPECIAL[UNK]))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace("’", "'"),
            normalizers.Replace(Regex(r"</?[a-z][^<>]*>"), " "),  # <br /> and its like
            normalizers.Replace(Regex(r" +(?=(?:n't|'(?:s|re|ve|ll|d|m))\b)"), ""),  # SST-2 writes "do n't"
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(WORD), behavior="removed", invert=True)
    return tokenizer


def frequent_words(texts: Sequence[str], least: int) -> list[str]:
    """Every word that occurs at least `least` times, the most frequent first."""
    tokenizer = tokenizer_of()
    trainer = trainers.WordLevelTrainer(
        vocab_size=BASE - 1, min_frequency=least, special_tokens=list(SPECIAL), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)[len(SPECIAL) :]


@dataclass(frozen=True)
class WordIds:
    """Many texts as one long row of word ids; text i is ids[start[i]:start[i+1]]."""

    ids: Ids
    start: Ids

    @property
    def text(self) -> Ids:
        """The text that each word belongs to."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))

    def __len__(self) -> int:
        return len(self.start) - 1

    def take(self, rows: Ids) -> WordIds:
        """Some of the texts, in the order of `rows`."""
        size = np.diff(self.start)[rows]
        start = np.concatenate([[0], np.cumsum(size)])
        source = np.repeat(self.start[rows] - start[:-1], size) + np.arange(start[-1])
        return WordIds(self.ids[source], start)

    @property
    def unknown_share(self) -> float:
        return float((self.ids == UNK).mean()) if len(self.ids) else 0.0

    def phrases(self, length: int) -> tuple[Ids, Ids]:
        """(key, text) of every run of `length` known words of one text, in order."""
        count = max(len(self.ids) - length + 1, 0)
        key = np.zeros(count, dtype=np.int64)
        known = np.ones(count, dtype=bool)
        for offset in range(length):
            word = self.ids[offset : offset + count]
            key = key * BASE + word
            known &= word > UNK
        text = self.text
        known &= text[:count] == text[length - 1 :]
        return key[known], text[:count][known]


def word_ids(tokenizer: Tokenizer, texts: Sequence[str]) -> WordIds:
    """Only words are looked up here: no single word of a text can equal a phrase, which has a space in it."""
    rows = [
        np.asarray(encoding.ids, dtype=np.int64)
        for at in range(0, len(texts), _CHUNK)
        for encoding in tokenizer.encode_batch_fast(list(texts[at : at + _CHUNK]))
    ]
    start = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return WordIds(np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64), start)


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a model: `names[i]` is token i; a name of several words is a phrase."""

    names: tuple[str, ...]
    tokenizer: Tokenizer = field(repr=False, compare=False)
    _keys: tuple[Ids, ...] = field(repr=False, compare=False)  # for each length 1..3, sorted
    _ids: tuple[Ids, ...] = field(repr=False, compare=False)

    @classmethod
    def of(cls, tokens: Sequence[str]) -> Vocabulary:
        return cls.from_tokenizer(tokenizer_of(tokens))

    @classmethod
    def load(cls, path: str | Path) -> Vocabulary:
        if not Path(path).exists():
            raise NotFound(f"{path}: no such tokenizer", param="tokenizer")
        try:
            return cls.from_tokenizer(Tokenizer.from_str(Path(path).read_text(encoding="utf-8")))
        except (ValueError, json.JSONDecodeError) as damage:
            raise MalformedInput(f"{path} is no tokenizer: {damage}", param="tokenizer") from damage

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer) -> Vocabulary:
        ids: dict[str, int] = tokenizer.get_vocab()
        names = tuple(sorted(ids, key=ids.__getitem__))
        if names[:2] != SPECIAL or len(names) != max(ids.values()) + 1:
            raise InvalidInput("a tokenizer must number its tokens without gaps, [PAD] and [UNK] first")
        keys: list[list[int]] = [[] for _ in range(LONGEST_PHRASE)]
        values: list[list[int]] = [[] for _ in range(LONGEST_PHRASE)]
        for token, name in enumerate(names[2:], start=2):
            words = name.split(" ")
            key = 0
            for word in words:
                if word not in ids:
                    raise InvalidInput(f"the phrase {name!r} has a word that is not a token: {word!r}")
                key = key * BASE + ids[word]
            keys[len(words) - 1].append(key)
            values[len(words) - 1].append(token)
        order = [np.argsort(np.asarray(k, dtype=np.int64)) for k in keys]
        return cls(
            names=names,
            tokenizer=tokenizer,
            _keys=tuple(np.asarray(k, dtype=np.int64)[o] for k, o in zip(keys, order, strict=True)),
            _ids=tuple(np.asarray(v, dtype=np.int64)[o] for v, o in zip(values, order, strict=True)),
        )

    def __len__(self) -> int:
        return len(self.names)

    def bags(self, texts: Sequence[str]) -> Bags:
        return self.bags_of(word_ids(self.tokenizer, texts))

    def bags_of(self, words: WordIds) -> Bags:
        """Every word and phrase of the vocabulary in every text, with its multiplicity."""
        tokens, texts = [], []
        for length in range(1, LONGEST_PHRASE + 1):
            keys, ids = self._keys[length - 1], self._ids[length - 1]
            if not len(keys):
                continue
            key, text = words.phrases(length)
            at = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
            found = keys[at] == key
            tokens.append(ids[at[found]])
            texts.append(text[found])
        shape = (len(words.start) - 1, len(self))
        token = np.concatenate(tokens) if tokens else np.zeros(0, dtype=np.int64)
        text = np.concatenate(texts) if texts else np.zeros(0, dtype=np.int64)
        return Bags.of(sparse.csr_matrix((np.ones(len(token), dtype=np.float32), (text, token)), shape=shape))


@dataclass(frozen=True)
class Bags:
    """The distinct tokens of many texts with their multiplicities: the rows of a sparse matrix."""

    tokens: Ids
    counts: NDArray[np.float32]
    start: Ids

    @classmethod
    def of(cls, matrix: sparse.csr_matrix) -> Bags:
        matrix.sum_duplicates()
        return cls(
            matrix.indices.astype(np.int64), matrix.data.astype(np.float32), matrix.indptr.astype(np.int64)
        )

    def __len__(self) -> int:
        return len(self.start) - 1

    @property
    def sizes(self) -> Ids:
        return np.diff(self.start)

    def padded(
        self, rows: Ids, rng: np.random.Generator | None = None, dropout: float = 0.0
    ) -> tuple[Ids, NDArray[np.float32]]:
        """tokens [B, N] and counts [B, N] of some texts, 0 where there is none; a share of the tokens left
        out.
        """
        size = self.sizes[rows]
        row = np.repeat(np.arange(len(rows)), size)
        source = np.repeat(self.start[rows] - np.cumsum(size) + size, size) + np.arange(len(row))
        if rng is not None and dropout > 0:
            kept = (rng.random(len(source)) >= dropout) | (size[row] < SHORT)
            row, source = row[kept], source[kept]
            size = np.bincount(row, minlength=len(rows))
        place = np.arange(len(row)) - np.repeat(np.cumsum(size) - size, size)
        tokens = np.zeros((len(rows), max(int(size.max(initial=0)), 1)), dtype=np.int64)
        counts = np.zeros(tokens.shape, dtype=np.float32)
        tokens[row, place], counts[row, place] = self.tokens[source], self.counts[source]
        return tokens, counts

    def batches(self, rows: Ids, size: int, rng: np.random.Generator | None = None) -> Iterator[Ids]:
        """Rows in batches of similar length; with `rng` in a new order each time."""
        if rng is not None:
            rows = rng.permutation(rows)
        batches: list[Ids] = []
        reach = len(rows) if rng is None else 50 * size
        for at in range(0, len(rows), max(reach, 1)):
            near = rows[at : at + reach]
            near = near[np.argsort(self.sizes[near], kind="stable")]
            batches += [near[i : i + size] for i in range(0, len(near), size)]
        order = range(len(batches)) if rng is None else rng.permutation(len(batches))
        return (batches[i] for i in order)
