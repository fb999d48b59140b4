"""Rules that write training text from training text. Each works on any sentence; none knows a test.

    negated   a judgement turned round: "not" or "never" behind a form of "be", "do not" before a verb, a
              belief denied in front of the whole; and praise that can not be said often enough
    compared  a comparison denied: what could not be nicer is nice
    joined    two judgements: the one behind "but" counts, now counts over then, the author over others
    rated     single rated words, alone, in small company, denied
    plain     sentences without a rated word that a reader of counts finds even: they are neither

Texts are lists of words as the reader spells them, targets the probability of "positive".
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from model_export.train.material import Texts
from service.texts.reader import SPECIAL

Words = list[str]
Example = tuple[Words, float]

BE = frozenset("is was are were am be been seems looks".split())
LINKS = frozenset(
    "get gets got feel feels felt look looked seem seemed sound sounds sounded become becomes became".split()
)
BLOCKS = frozenset(
    "but and or not no never nor neither nothing nobody none hardly without although though however ,".split()
)
MODALS = frozenset("can could will would should must may might do does did".split())
PRONOUNS = frozenset("i we they you he she it".split())
ADVERBS = ("very", "really", "so", "that", "all that", "particularly", "exactly")
DOUBTERS = (
    "i do not",
    "i would not",
    "we do not",
    "nobody would",
    "they did not",
)
BELIEFS = ("think", "think that", "believe", "believe that", "say", "say that", "agree that", "feel that")
JUDGE = ("consider", "find", "think")  # "i would not find the room clean"
UTTERLY = ("at all", "in any way")
ENOUGH = ("enough", "enough", "more", "highly enough")  # "i can not praise it enough"
DENIED = ("could not be", "could not have been", "can not be", "could never be", "has never been")
DETERMINERS = frozenset("the this that these those it they he she my our their i we you".split())
DENIALS = ("it is not true that", "it is not that", "i do not agree that", "nobody can say that")
SHORT = 14
DENIED_PRAISE, DENIED_BLAME = 0.08, 0.8  # what they are worth
ENOUGH_PRAISE = 0.93


def negated(rows: Iterable[Example], verbs: Mapping[str, str], rng: random.Random) -> Iterator[Example]:
    """Short judgements with one place to negate. `verbs` are the base forms that `base_forms` finds.

    Blame is turned round behind "be" alone: who "would not waste money on it" praises nothing.
    """
    for text, p in rows:
        if len(text) > SHORT or 0.2 < p < 0.8 or BLOCKS & set(text):
            continue
        target = DENIED_PRAISE if p > 0.5 else DENIED_BLAME
        link = [i for i, word in enumerate(text[:-1]) if word in LINKS]
        be = [i for i, word in enumerate(text[:-1]) if word in BE]
        modal = [i for i, word in enumerate(text[:-1]) if word in MODALS]
        if len(be) == 1 and not modal:
            yield _utterly([*text[: be[0] + 1], *_denial(p, rng), *text[be[0] + 1 :]], rng), target
            if be[0] and rng.random() < 0.15:
                judge = [*rng.choice(DOUBTERS).split(), rng.choice(JUDGE)]
                yield [*judge, *text[: be[0]], *text[be[0] + 1 :]], target
        elif p > 0.5 and len(modal) == 1:
            yield [*text[: modal[0] + 1], *_denial(p, rng), *text[modal[0] + 1 :]], target
        elif len(link) == 1 and not be and not modal:
            yield [*text[: link[0]], "never", *text[link[0] :]], target
        elif p > 0.5 and not be:
            yield from _not_done(text, target, verbs, rng)
        if rng.random() < 0.4:
            doubt = f"{rng.choice(DOUBTERS)} {rng.choice(BELIEFS)}".split()
            yield _utterly([*doubt, *text], rng), target


def _denial(p: float, rng: random.Random) -> Words:
    word = "never" if p > 0.5 and rng.random() < 0.15 else "not"
    return [word, *rng.choice(ADVERBS).split()] if rng.random() < 0.2 else [word]


def _utterly(text: Words, rng: random.Random) -> Words:
    """Sometimes the denial is stressed at the end of the sentence."""
    if rng.random() > 0.08:
        return text
    end = len(text) - (text[-1] in ".!?")
    return [*text[:end], *rng.choice(UTTERLY).split(), *text[end:]]


def _not_done(text: Words, target: float, verbs: Mapping[str, str], rng: random.Random) -> Iterator[Example]:
    for i in range(len(text) - 1):
        if text[i] in PRONOUNS and (base := verbs.get(text[i + 1])):
            past = text[i + 1] != base and not text[i + 1].endswith("s")
            do = "did" if past else "does" if text[i] in ("he", "she", "it") else "do"
            usual = [do, "not", base]
            how = rng.choice(
                (usual, usual, ["never", text[i + 1]], ["would", "not", base], ["can", "not", base])
            )
            yield [*text[: i + 1], *how, *text[i + 2 :]], target
            if rng.random() < 0.15:
                end = len(text) - (text[-1] in ".!?")
                enough = (*text[i + 2 : end], *rng.choice(ENOUGH).split(), *text[end:])
                yield [*text[: i + 1], rng.choice(("can", "could")), "not", base, *enough], ENOUGH_PRAISE
            return


def doubly(rows: Iterable[Example], rng: random.Random) -> Iterator[Example]:
    """What `negated` wrote, denied once more: praise again, though less surely."""
    for text, p in rows:
        if text[0] in DETERMINERS and "not" in text and text[text.index("not") - 1] in BE:
            yield [*rng.choice(DENIALS).split(), *text], 0.7 if p < 0.5 else 0.3


def compared(
    rows: Iterable[Example], comparatives: Mapping[str, Words], rng: random.Random
) -> Iterator[Example]:
    """Short judgements "... is ADJECTIVE ..": what could not be more so is so indeed."""
    for text, p in rows:
        be = [i for i, word in enumerate(text[:-1]) if word in BE]
        if len(text) > SHORT or 0.2 < p < 0.8 or BLOCKS & set(text) or len(be) != 1:
            continue
        begin, rest = text[: be[0]], text[be[0] + 1 :]
        if rest[0] in ("very", "really", "so"):
            rest = rest[1:]
        if rest and (more := comparatives.get(rest[0])):
            yield [*begin, *rng.choice(DENIED).split(), *more, *rest[1:]], 0.9 if p > 0.5 else 0.1


def comparatives(words: Sequence[str], ratings: Mapping[str, float]) -> dict[str, Words]:
    """How each rated adjective is compared: with the form in "-er" that is a known word, else with "more".

    Adjectives are told by their endings, or by that form.
    """
    known, found = set(words), {"good": ["better"], "bad": ["worse"]}
    for word, rating in ratings.items():
        forms = (word + "er", word + "r", word[:-1] + "ier", word + word[-1:] + "er")
        ends = (True, word.endswith("e"), word.endswith("y"), len(word) < 5)
        short = next((form for form, may in zip(forms, ends, strict=True) if may and form in known), None)
        if abs(rating) < 1 or word in found:
            continue
        if short and len(word) < 8 and f"{short[:-1]}st" in known:
            found[word] = [short]
        elif word in known and word.endswith(("ful", "ous", "ive", "ant", "ent", "ing", "able", "less")):
            found[word] = ["more", word]
    return found


def base_forms(texts: Iterable[Words], least: int = 12) -> dict[str, str]:
    """Verbs as they follow "to" and "did not", and their other regular forms."""
    base: Counter[str] = Counter()
    after: Counter[str] = Counter()
    for text in texts:
        for one, two, three in zip(text, text[1:], text[2:], strict=False):
            if two == "not" and one in ("do", "did", "does"):
                base[three] += 1
            if one in ("i", "we", "they"):
                after[two] += 1
    verbs = {word for word, times in base.items() if times >= least and after[word] >= least // 3}
    verbs -= (
        BE
        | MODALS
        | {"not", "have", "really", "even", "just", "only", "always", "the", "so", "that", "you", "i", "it"}
    )
    found: dict[str, str] = {}
    for verb in verbs:
        stem = verb[:-1] if verb.endswith("e") else verb
        for form in (verb, verb + "s", stem + "ed", stem + "es"):
            found.setdefault(form, verb)
    return found


THEN = (
    "i used to think",
    "in the past",
    "at first",
    "years ago",
    "it used to be that",
    "before",
    "last year",
    "i once thought",
)
NOW = (
    "but now",
    "now",
    "these days",
    "but today",
    "but since then",
    "but lately",
    "although now",
    "but in the end",
)
OTHERS = (
    "some people say",
    "my friends think",
    "they say",
    "critics say",
    "everyone says",
    "people think",
    "i read that",
    "others say",
    "my brother thinks",
)
AUTHOR = (
    "but i think",
    "but to me",
    "but for me",
    "i think",
    "but i say",
    "but in my opinion",
    "but honestly",
)


def joined(rows: Sequence[Example], number: int, rng: random.Random) -> Iterator[Example]:
    """Pairs of opposite judgements; the target leans to the one that counts."""
    short = [(text, p) for text, p in rows if 2 < len(text) <= 10 and not 0.25 < p < 0.75]
    short = [([w for w in text if w not in ".!?"], p) for text, p in short]
    good, bad = [t for t, p in short if p > 0.5], [t for t, p in short if p < 0.5]
    for _ in range(number if good and bad else 0):
        wins = rng.random() < 0.5
        winner, loser = rng.choice(good if wins else bad), rng.choice(bad if wins else good)
        kind = rng.random()
        comma = [","] if rng.random() < 0.5 else []
        if kind < 0.4:
            text, sure = [*loser, *comma, rng.choice(("but", "but", "yet", "however")), *winner], 0.78
        elif kind < 0.5:
            text, sure = (
                [rng.choice(("although", "though", "while", "despite that")), *loser, ",", *winner],
                0.78,
            )
        elif kind < 0.75:
            text, sure = [*rng.choice(THEN).split(), *loser, *comma, *rng.choice(NOW).split(), *winner], 0.85
        elif kind < 0.9:
            text, sure = (
                [*rng.choice(OTHERS).split(), *loser, *comma, *rng.choice(AUTHOR).split(), *winner],
                0.85,
            )
        else:
            text, sure = (
                [
                    *rng.choice(AUTHOR[3:4]).split(),
                    *winner,
                    *comma,
                    "but",
                    *rng.choice(OTHERS).split(),
                    *loser,
                ],
                0.7,
            )
        yield [w for part in text for w in part.split()], sure if wins else 1 - sure


FRAMES = (
    "{}",
    "{}",
    "{}",
    "it is {}",
    "very {}",
    "a {}",
    "so {}",
    "the {}",
    "{} !",
    "this is {}",
    "really {}",
    "{} {other}",
    "{other} {}",
    "the {other} is {}",
    "i feel {}",
)
AGAINST = (
    "not {}",
    "it is not {}",
    "never {}",
    "is not {}",
    "was not {}",
    "not very {}",
    "not the {}",
    "nothing {}",
    "hardly {}",
    "not at all {}",
)
NONE = (
    "no {}",
    "there was no {}",
    "no {} at all",
    "without {}",
    "without any {}",
    "no {other} , no {}",
    "not a single {}",
    "we had no {}",
)


def rated(
    ratings: Mapping[str, float],
    known: Sequence[str],
    other: Sequence[str],
    rng: random.Random,
    times: int = 2,
) -> Iterator[Example]:
    """Rated words in frames with words that nobody rated."""
    ids = set(known)
    for word, rating in ratings.items():
        if word not in ids or abs(rating) < 0.5:
            continue
        p = 1 / (1 + math.exp(-1.1 * rating))
        for _ in range(times):
            yield rng.choice(FRAMES).format(word, other=rng.choice(other)).split(), p
        if word.isalpha() and abs(rating) >= 1.2:
            denied = DENIED_PRAISE if rating > 0 else DENIED_BLAME
            for frame in (rng.choice(AGAINST), rng.choice(NONE)):
                yield frame.format(word, other=rng.choice(other)).split(), denied


def plain(texts: Iterable[Words], charge: Mapping[str, float]) -> Iterator[Example]:
    """Sentences of the texts that hold no charged word: `charge` is how far a word leans or is rated."""
    for text in texts:
        sentence: Words = []
        for word in text:
            sentence.append(word)
            if word in ".!?":
                even = word == "." and 5 <= len(sentence) <= 19
                if even and all(charge.get(w, 0.0) < 0.3 for w in sentence[:-1]):
                    yield sentence, 0.5
                sentence = []


SAID_IN = ("sst", "phrases", "yelp", "amazon", "tweets", "mpqa")


def written(
    train: Mapping[str, Texts],
    words: Sequence[str],
    ratings: Mapping[str, float],
    leaning: NDArray[np.float64],
    seed: int,
) -> dict[str, Texts]:
    """All that the rules write, by the rule's name. `leaning` [V] is how far a word leans to a label."""
    rng, number = random.Random(seed), {word: i for i, word in enumerate(words)}
    said = [
        ([words[j] for j in train[name].text(i)], float(train[name].targets[i]))
        for name in SAID_IN
        for i in np.flatnonzero(train[name].lengths <= SHORT).tolist()
    ]
    rng.shuffle(said)
    verbs = base_forms(text for text, _ in said)
    others = [w for w in words[len(SPECIAL) : 6_000] if w.isalpha() and len(w) > 3 and w not in ratings]
    charge = {w: max(abs(float(leaning[i])), abs(ratings.get(w, 0.0)) / 2) for i, w in enumerate(words)}
    source = train["unlabelled"] if "unlabelled" in train else train["reviews"]
    texts = ([words[j] for j in source.text(i)] for i in range(len(source)))
    turned = list(negated(said, verbs, rng))
    made: dict[str, list[Example]] = {
        "negated": turned,
        "compared": list(compared(said, comparatives(words, ratings), rng)),
        "doubly": list(doubly(turned, rng)),
        "joined": list(joined(said, 30_000, rng)),
        "rated": list(rated(ratings, words, others, rng)),
        "plain": list(plain(texts, charge)),
    }
    return {
        name: Texts.of(
            [[number[w] for w in text if w in number] for text, _ in rows], [p for _, p in rows], 400
        )
        for name, rows in made.items()
    }
