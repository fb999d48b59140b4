"""Split a text into words, WordPiece tokens and chunks. Training and inference share this module.

    text -> words (character spans) -> tokens (WordPiece ids of each word) -> chunks (whole sentences)

One regular expression finds the words in a single pass: words of any script, numbers, punctuation, emoticons,
emoji. Every branch is linear. Names, numbers, groups of people, @handles and links must not change a label:
each is one special token, and a run of the same one is a single word. A rating ("4/5", "3 out of 10",
"2 stars", a run of ★) is the token of its value, in tenths of the best. Markup is skipped.

Position ids start at 0 in each chunk, so the cost of a text is linear in its length.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Chunk = tuple[Ints, Ints]  # token ids and position ids

MAX_WORDS = 2_560  # of a text
CHUNK_TOKENS = 64  # receptive fields are sets of 64 bits
MAX_TOKENS_PER_WORD = 8  # a word with more tokens is the unknown token
MAX_WORD_CHARS = 64  # a longer word, as written or normalized, is the unknown token
MIN_CHARS_TO_UNDOUBLE = 7  # words this long are also looked up with one letter of a double letter removed
MAX_REPEATED_MARKS = 3  # of a run of the same mark, and of an emoticon
MAX_CACHED_WORDS = 1 << 16  # then the cache is emptied
RATING_STEPS = 10  # ratings are rounded to tenths of the best one


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """The ids of the unknown token and of the tokens that stand for folded words.

    The defaults are those of BERT's vocabulary, which left the ids 1 to 99 free.
    """

    name: int = 1
    number: int = 2
    group: int = 3
    handle: int = 4
    link: int = 5
    worst_rating: int = 10  # 0 of 10; that of 10 of 10 is RATING_STEPS higher
    unknown: int = 100

    @property
    def folded(self) -> tuple[int, ...]:
        return self.name, self.number, self.group, self.handle, self.link

    @property
    def replacements(self) -> dict[int, str]:
        """How each special token is shown in an explanation."""
        ratings = {self.worst_rating + i: f"<rating {i}/{RATING_STEPS}>" for i in range(RATING_STEPS + 1)}
        return {getattr(self, name): f"<{name}>" for name in SpecialIds.__slots__} | ratings


# subtle: ++ and *+ do not backtrack, so they keep no state
_LETTERS = r"[^\W\d_]++(?:[\u0300-\u036f]++[^\W\d_]*+)*+"
_LINK = r"(?:https?://|www\.)\S"
_WORD = re.compile(
    rf"""(?:
      (?P<word> (?!{_LINK}) {_LETTERS}(?:['’]{_LETTERS})*+ | ['’](?:s|m|d|re|ve|ll)\b )
    | (?P<markup> </?[a-z!][^<>]{{0,300}}> | &(?:\#\d{{1,7}}|[a-z]{{2,8}}); )
    | (?P<link> {_LINK}+ )
    | (?P<handle> @\w+ )
    | (?P<rating> (?<![\w.,:/-]) (?: \d{{1,3}}(?:[.,]\d)?(?:\ ?/\ ?|\ out\ of\ )(?:100|10|5)
        | [0-5](?:[.,]\d)?[\ -]?stars? ) (?![\w/]|[.,:-]\d) | [★⭐]\ufe0f?(?:[★⭐☆✩]\ufe0f?)+ )
    | (?P<face> (?<!\w)[:;=]['’]?[-^o]?(?:[)(\]\[}}{{/\\|*]+|[DPpO3](?!\w)) | </?3(?!\w) )
    | (?P<number> \d+(?:[.,:/]\d+)*+(?:(?:st|nd|rd|th|s)\b)? )
    | (?P<break> \n )
    | (?P<emoji> [\u2600-\u27bf\u2b00-\u2bff\U0001f300-\U0001faff] [\ufe0f\u200d\U0001f3fb-\U0001f3ff]*+ )
    | (?P<mark> (?P<one>[^\w\s])(?P=one)* )
    )\ *+  # faster than a search that starts at each blank
    """,
    re.VERBOSE | re.IGNORECASE,
)
_SENTENCE_ENDS = frozenset(".!?…")
_CAPITAL_EXPECTED_AFTER = _SENTENCE_ENDS | {":"}  # a capital letter after them does not mark a name
_DRAWN_OUT = re.compile(r"(.)\1{2,}")
# not "hopped", "furry" and "needless", which are other words with a single letter
_DOUBLED = re.compile(r"(.)\1(?![eiy]|$)")
_AUXILIARIES = (
    "is are was were do does did has have had can could will would shall should might must need".split()
)
_SHORTENED = {"can": "ca", "will": "wo", "shall": "sha"}  # in front of n't
CONTRACTIONS = {f"{_SHORTENED.get(word, word)}n{mark}t": word for word in _AUXILIARIES for mark in ("'", "")}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The content of pieces.json: tokens in the order of their ids, and words that are folded."""

    tokens: Sequence[str]
    names: Collection[str]  # nearly always written with a capital: a name in either case
    ambiguous_names: Collection[str]  # a name when written with a capital inside a sentence
    groups: Collection[str]  # of people
    special: ClassVar[SpecialIds] = SpecialIds()


@dataclass(frozen=True, slots=True, eq=False)
class TokenizedText:
    """A text as words, tokens and chunks.

    Word i spans the code points [starts[i], ends[i]) and has the tokens [bounds[i], bounds[i+1]).
    """

    text: str
    starts: Ints  # [M]
    ends: Ints  # [M]
    bounds: Ints  # [M+1]
    token_ids: Ints  # [T]
    position_ids: Ints  # [T] within the chunk
    chunk_ids: Ints  # [T]
    truncated: bool  # the text has more than the maximum number of words

    def __len__(self) -> int:
        return len(self.starts)

    def ablate(self, removed: NDArray[np.bool_]) -> "TokenizedText":
        """Remove words in place: all other words keep their positions and chunks."""
        sizes = np.diff(self.bounds)
        words, tokens = ~removed, np.repeat(~removed, sizes)
        return TokenizedText(
            self.text,
            self.starts[words],
            self.ends[words],
            np.concatenate(([0], np.cumsum(sizes[words]))),
            self.token_ids[tokens],
            self.position_ids[tokens],
            self.chunk_ids[tokens],
            self.truncated,
        )

    def chunks(self) -> list[Chunk]:
        """Return the token ids and position ids of each chunk that has any, in order."""
        if not len(self.token_ids):
            return []
        if self.chunk_ids[0] == self.chunk_ids[-1]:
            return [(self.token_ids, self.position_ids)]
        cuts = np.flatnonzero(np.diff(self.chunk_ids)) + 1
        return list(zip(np.split(self.token_ids, cuts), np.split(self.position_ids, cuts), strict=True))


def word_sizes(texts: Sequence[TokenizedText]) -> Ints:
    """Return the number of tokens of each word of several texts."""
    bounds = np.concatenate([text.bounds for text in texts])
    ends = np.cumsum([len(text.bounds) for text in texts])
    return np.delete(np.diff(bounds), ends[:-1] - 1)  # without the step from each text to the next


def normalize_word(surface: str) -> str:
    """Lower the case, remove accents, and use one kind of apostrophe."""
    if surface.isascii():
        return surface.lower()
    decomposed = unicodedata.normalize("NFKD", surface.replace("’", "'").lower())
    # lower again: the capitals of mathematics have no lower case before they are decomposed
    return "".join(c for c in decomposed if not unicodedata.combining(c)).lower()


def scan_words(text: str) -> Iterator[tuple[str, int, int, str]]:
    """Yield (surface, start, end, kind) of every match in `text`: words, markup and line breaks."""
    for match in _WORD.finditer(text):
        kind = match.lastgroup or ""
        yield match[kind], *match.span(kind), kind


class WordPieceTokenizer:
    """A WordPiece tokenizer with a fixed vocabulary. Thread-safe: its cache only grows or is emptied.

    Without `fold_names`, names and groups of people are tokenized like other words.
    """

    def __init__(self, vocabulary: Vocabulary, *, fold_names: bool = True) -> None:
        self.tokens = vocabulary.tokens
        self.special = special = vocabulary.special
        self._id = {token: i for i, token in enumerate(vocabulary.tokens)}
        self._max_token_chars = max(map(len, vocabulary.tokens), default=0)
        self._fold_names = fold_names
        self._folded_words = {
            **dict.fromkeys(vocabulary.names if fold_names else (), special.name),
            **dict.fromkeys(vocabulary.groups if fold_names else (), special.group),
        }
        self._folded_kinds = {
            "number": (special.number,),
            "handle": (special.handle,),
            "link": (special.link,),
        }
        self._folded_ids = frozenset(special.folded)
        self._unknown = (special.unknown,)
        self._ambiguous_names = frozenset(vocabulary.ambiguous_names)
        self._cache: dict[tuple[str, bool], tuple[int, ...]] = {}

    def tokenize(self, text: str, max_words: int = MAX_WORDS) -> TokenizedText:
        """Tokenize `text` up to `max_words` words. Linear in its length."""
        offsets: list[int] = []  # the begin and the end of each word
        token_ids: list[int] = []
        bounds = [0]
        sentences = [0]  # the index of the first word of each
        in_sentence, sentence_ended, truncated = False, False, False
        previous: tuple[int, ...] = ()  # the tokens of the previous word of the sentence
        cache, folded_ids = self._cache, self._folded_ids
        for match in _WORD.finditer(text):
            kind = match.lastgroup or ""
            surface = match[kind]
            if kind == "markup" or kind == "break":
                sentence_ended = sentence_ended or kind == "break" or surface.startswith("<")
                in_sentence = in_sentence and not sentence_ended
                continue
            tokens = cache.get((surface, in_sentence)) or self._word_tokens(surface, kind, in_sentence)
            last_char = surface[-1]
            in_sentence = last_char not in _CAPITAL_EXPECTED_AFTER
            if sentence_ended and last_char not in _SENTENCE_ENDS and sentences[-1] < len(bounds) - 1:
                sentences.append(len(bounds) - 1)
                previous = ()
            sentence_ended = last_char in _SENTENCE_ENDS
            if tokens == previous and tokens[0] in folded_ids:
                offsets[-1] = match.end(kind)  # a run of one special token is one word
                continue
            if len(bounds) > max_words:
                truncated = True
                break
            offsets += match.span(kind)
            token_ids += tokens
            bounds.append(len(token_ids))
            previous = tokens
        chunks = _assign_chunks(bounds, [*sentences, len(bounds) - 1])
        starts, ends = np.array(offsets, np.int64).reshape(-1, 2).T
        words = starts, ends, np.array(bounds, np.int64), np.array(token_ids, np.int64)
        return TokenizedText(text, *words, *chunks, truncated)

    def _word_tokens(self, surface: str, kind: str, in_sentence: bool) -> tuple[int, ...]:
        """Return the tokens of one match, from the cache if possible."""
        if kind in self._folded_kinds:
            return self._folded_kinds[kind]
        surface = surface[: MAX_WORD_CHARS + 1]  # longer words have the same tokens
        key = surface, in_sentence
        tokens = self._cache.get(key)
        if tokens is None:
            if len(self._cache) >= MAX_CACHED_WORDS:
                self._cache = {}
            if kind == "word":
                tokens = self._split_word(surface, in_sentence)
            elif kind == "rating":
                tokens = self._rating(surface)
            else:
                tokens = self._split_mark(surface[0] if kind == "emoji" else surface)
            self._cache[key] = tokens
        return tokens

    def _split_word(self, surface: str, in_sentence: bool) -> tuple[int, ...]:
        if len(surface) > MAX_WORD_CHARS:
            return self._unknown
        word = normalize_word(surface)
        if len(word) > MAX_WORD_CHARS:  # NFKD makes a letter up to 18 letters long
            return self._unknown
        bare = word.removesuffix("'s")
        if (folded := self._folded_words.get(bare)) is not None:
            return (folded,)
        if (auxiliary := CONTRACTIONS.get(word)) is not None:
            return self._wordpiece(auxiliary) + self._wordpiece("not")
        tokens = self._wordpiece(word)
        capital = in_sentence and surface[0].isupper() and not (len(surface) > 1 and surface.isupper())
        if self._fold_names and capital and self._may_be_name(bare):
            return (self.special.name,)
        if len(tokens) > 1 or tokens == self._unknown:
            corrected = map(self._wordpiece, _spelling_corrections(word))
            tokens = next((ids for ids in corrected if len(ids) == 1), tokens)
        return tokens

    def _rating(self, surface: str) -> tuple[int, ...]:
        """Return the token of a rating."""
        value, best = _read_rating(surface)
        share = min(1.0, value / best)
        return (self.special.worst_rating + int(RATING_STEPS * share + 0.5),)

    def _may_be_name(self, word: str) -> bool:
        """Return whether a word with a capital letter inside a sentence is a name."""
        return word.isalpha() and (word not in self._id or word in self._ambiguous_names)

    def _split_mark(self, surface: str) -> tuple[int, ...]:
        """Split a mark, an emoticon into its marks, an emoji into its name."""
        unknown = self.special.unknown
        if len(surface) > 1:
            return tuple(self._id.get(mark, unknown) for mark in surface[:MAX_REPEATED_MARKS].lower())
        if surface in self._id:
            return (self._id[surface],)
        name = unicodedata.name(surface, "")
        if unicodedata.category(surface) != "So" or not name:
            return (self._id.get(unicodedata.normalize("NFKC", surface), unknown),)
        tokens = [token for word in name.lower().split() for token in self._wordpiece(word)]
        return tuple(tokens[:MAX_TOKENS_PER_WORD])

    def _wordpiece(self, word: str) -> tuple[int, ...]:
        """Split each run of letters and each mark into tokens: always the longest one that fits.

        Linear in the length of the word: no token is longer than the longest of the vocabulary.
        """
        tokens: list[int] = []
        for part in re.findall(r"\w+|[^\w\s]", word):
            begin = 0
            while begin < len(part):
                if len(tokens) == MAX_TOKENS_PER_WORD:
                    return self._unknown
                for end in range(min(len(part), begin + self._max_token_chars), begin, -1):
                    token = self._id.get(part[begin:end] if begin == 0 else "##" + part[begin:end])
                    if token is not None:
                        break
                else:
                    return self._unknown
                tokens.append(token)
                begin = end
        return tuple(tokens) or self._unknown


def _read_rating(surface: str) -> tuple[float, float]:
    """Return the value of a rating and the best possible one; stars alone are counted out of five."""
    if surface[0].isdigit():
        value, *rest = re.findall(r"\d+(?:[.,]\d)?", surface)
        return float(value.replace(",", ".")), float(rest[0]) if rest else 5.0
    filled, empty = (sum(map(surface.count, marks)) for marks in ("★⭐", "☆✩"))
    return filled, max(filled + empty, 5)


def _spelling_corrections(word: str) -> Iterator[str]:
    """Yield corrections of a word in which a letter is written too often."""
    if _DRAWN_OUT.search(word):
        yield from (_DRAWN_OUT.sub(replacement, word) for replacement in (r"\1\1", r"\1"))
    for match in _DOUBLED.finditer(word if len(word) >= MIN_CHARS_TO_UNDOUBLE else ""):
        yield word[: match.start()] + word[match.start() + 1 :]


def _assign_chunks(bounds: Sequence[int], sentences: Sequence[int]) -> tuple[Ints, Ints]:
    """Return the position id [T] and the chunk id [T] of each token.

    A chunk holds as many whole sentences as fit; a longer sentence is cut between words.
    """
    total = bounds[-1]
    if total <= CHUNK_TOKENS:
        return np.arange(total), np.zeros(total, np.int64)
    begins = [0]  # the first token of each chunk
    for begin, end in pairwise(sentences):
        if bounds[end] - begins[-1] > CHUNK_TOKENS and bounds[begin] > begins[-1]:
            begins.append(bounds[begin])
        for word in range(begin, end):
            if bounds[word + 1] - begins[-1] > CHUNK_TOKENS:
                begins.append(bounds[word])
    chunk_ids = np.zeros(total, np.int64)
    chunk_ids[begins[1:]] = 1
    chunk_ids = np.cumsum(chunk_ids)
    return np.arange(total) - np.array(begins)[chunk_ids], chunk_ids
