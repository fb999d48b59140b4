"""Rules that write training text from training text. Each works on any sentence; none knows a test.

    negated   a judgement turned round: "not" or "never" behind a form of "be", "do not" before a verb, a
              belief denied in front of the whole; and praise that can not be said often enough
    compared  a comparison denied: what could not be nicer is nice
    joined    two judgements: the one behind "but" counts, now counts over then, the author over others
    rated     single rated words, alone, in small company, denied
    plain     sentences of words that hardly lean: they are neither

Texts are lists of words as the reader spells them, targets the probability of "positive".
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from model_export.train import frames
from model_export.train.material import Texts
from service.texts.reader import SPECIAL

Words = list[str]
Example = tuple[Words, float]

SHORT = 14
DENIED_PRAISE, DENIED_BLAME = 0.08, 0.8  # what they are worth
ENOUGH_PRAISE = 0.93


def negated(rows: Iterable[Example], verbs: Mapping[str, str], rng: random.Random) -> Iterator[Example]:
    """Short judgements with one place to negate. `verbs` are the base forms that `base_forms` finds.

    Blame is turned round behind "be" alone: who "would not waste money on it" praises nothing.
    """
    for text, p in rows:
        if len(text) > SHORT or 0.2 < p < 0.8 or frames.SEVERAL & set(text):
            continue
        target = DENIED_PRAISE if p > 0.5 else DENIED_BLAME
        link = [i for i, word in enumerate(text[:-1]) if word in frames.LINKS]
        be = [i for i, word in enumerate(text[:-1]) if word in frames.BE]
        modal = [i for i, word in enumerate(text[:-1]) if word in frames.MODALS]
        if len(be) == 1 and not modal:
            yield _utterly([*text[: be[0] + 1], *_denial(p, rng), *text[be[0] + 1 :]], rng), target
            if be[0] and rng.random() < 0.15:
                judge = [*rng.choice(frames.DOUBTERS).split(), rng.choice(frames.JUDGE)]
                yield [*judge, *text[: be[0]], *text[be[0] + 1 :]], target
        elif p > 0.5 and len(modal) == 1:
            yield [*text[: modal[0] + 1], *_denial(p, rng), *text[modal[0] + 1 :]], target
        elif len(link) == 1 and not be and not modal:
            yield [*text[: link[0]], "never", *text[link[0] :]], target
        elif p > 0.5 and not be:
            yield from _not_done(text, target, verbs, rng)
        if rng.random() < 0.4:
            doubt = f"{rng.choice(frames.DOUBTERS)} {rng.choice(frames.BELIEFS)}".split()
            yield _utterly([*doubt, *text], rng), target


def _denial(p: float, rng: random.Random) -> Words:
    word = "never" if p > 0.5 and rng.random() < 0.15 else "not"
    return [word, *rng.choice(frames.ADVERBS).split()] if rng.random() < 0.2 else [word]


def _utterly(text: Words, rng: random.Random) -> Words:
    """Sometimes the denial is stressed at the end of the sentence."""
    if rng.random() > 0.08:
        return text
    end = len(text) - (text[-1] in ".!?")
    return [*text[:end], *rng.choice(frames.UTTERLY).split(), *text[end:]]


def _not_done(text: Words, target: float, verbs: Mapping[str, str], rng: random.Random) -> Iterator[Example]:
    for i in range(len(text) - 1):
        if text[i] in frames.PRONOUNS and (base := verbs.get(text[i + 1])):
            past = text[i + 1] != base and not text[i + 1].endswith("s")
            do = "did" if past else "does" if text[i] in ("he", "she", "it") else "do"
            usual = [do, "not", base]
            how = rng.choice(
                (usual, usual, ["never", text[i + 1]], ["would", "not", base], ["can", "not", base])
            )
            yield [*text[: i + 1], *how, *text[i + 2 :]], target
            if rng.random() < 0.15:
                end = len(text) - (text[-1] in ".!?")
                enough = (*text[i + 2 : end], *rng.choice(frames.ENOUGH).split(), *text[end:])
                yield [*text[: i + 1], rng.choice(("can", "could")), "not", base, *enough], ENOUGH_PRAISE
            return


def doubly(rows: Iterable[Example], rng: random.Random) -> Iterator[Example]:
    """What `negated` wrote, denied once more: praise again, though less surely."""
    for text, p in rows:
        if text[0] in frames.DETERMINERS and "not" in text and text[text.index("not") - 1] in frames.BE:
            yield [*rng.choice(frames.DENIALS).split(), *text], 0.7 if p < 0.5 else 0.3


def compared(
    rows: Iterable[Example], comparatives: Mapping[str, Words], rng: random.Random
) -> Iterator[Example]:
    """Short judgements "... is ADJECTIVE ..": what could not be more so is so indeed."""
    for text, p in rows:
        be = [i for i, word in enumerate(text[:-1]) if word in frames.BE]
        if len(text) > SHORT or 0.2 < p < 0.8 or frames.SEVERAL & set(text) or len(be) != 1:
            continue
        begin, rest = text[: be[0]], text[be[0] + 1 :]
        if rest[0] in ("very", "really", "so"):
            rest = rest[1:]
        if rest and (more := comparatives.get(rest[0])):
            yield [*begin, *rng.choice(frames.DENIED).split(), *more, *rest[1:]], 0.9 if p > 0.5 else 0.1


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
        frames.BE
        | frames.MODALS
        | {"not", "have", "really", "even", "just", "only", "always", "the", "so", "that", "you", "i", "it"}
    )
    found: dict[str, str] = {}
    for verb in verbs:
        stem = verb[:-1] if verb.endswith("e") else verb
        for form in (verb, verb + "s", stem + "ed", stem + "es"):
            found.setdefault(form, verb)
    return found


def joined(rows: Sequence[Example], number: int, rng: random.Random) -> Iterator[Example]:
    """Pairs of opposite judgements; the target leans to the one that counts."""
    short = [(text, p) for text, p in rows if 2 < len(text) <= 10 and not 0.25 < p < 0.75]
    short = [([w for w in text if w not in ".!?"], p) for text, p in short]
    good, bad = [t for t, p in short if p > 0.5], [t for t, p in short if p < 0.5]

    def one(phrases: Sequence[str]) -> Words:
        return rng.choice(phrases).split()

    for _ in range(number if good and bad else 0):
        wins = rng.random() < 0.5
        winner, loser = rng.choice(good if wins else bad), rng.choice(bad if wins else good)
        kind, comma = rng.random(), [","] if rng.random() < 0.5 else []
        if kind < 0.4:
            parts, sure = [loser, comma, one(frames.TURNS), winner], 0.78
        elif kind < 0.5:
            parts, sure = [one(frames.CONCESSIONS), loser, [","], winner], 0.78
        elif kind < 0.75:
            parts, sure = [one(frames.THEN), loser, comma, one(frames.NOW), winner], 0.85
        elif kind < 0.9:
            parts, sure = [one(frames.OTHERS), loser, comma, one(frames.AUTHOR), winner], 0.85
        else:
            parts, sure = [["i", "think"], winner, comma, ["but"], one(frames.OTHERS), loser], 0.7
        yield [word for part in parts for word in part], sure if wins else 1 - sure


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
            yield rng.choice(frames.RATED).format(word, other=rng.choice(other)).split(), p
        if word.isalpha() and abs(rating) >= 1.2:
            denied = DENIED_PRAISE if rating > 0 else DENIED_BLAME
            for frame in (rng.choice(frames.RATED_DENIED), rng.choice(frames.RATED_ABSENT)):
                yield frame.format(word, other=rng.choice(other)).split(), denied


def plain(texts: Iterable[Words], charge: Mapping[str, float], limit: float) -> Iterator[Example]:
    """Sentences of words whose charge, how far they lean or are rated, is below the limit."""
    for text in texts:
        sentence: Words = []
        for word in text:
            sentence.append(word)
            if word in ".!?":
                even = word == "." and 5 <= len(sentence) <= 19
                if even and all(charge.get(w, 0.0) < limit for w in sentence[:-1]):
                    yield sentence, 0.5
                sentence = []


SAID_IN = ("sst", "phrases", "yelp", "amazon", "tweets", "mpqa")


def written(
    train: Mapping[str, Texts],
    words: Sequence[str],
    ratings: Mapping[str, float],
    leaning: NDArray[np.float64],
    seed: int,
    plain_below: float,
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
        "plain": list(plain(texts, charge, plain_below)),
    }
    return {
        name: Texts.of(
            [[number[w] for w in text if w in number] for text, _ in rows], [p for _, p in rows], 400
        )
        for name, rows in made.items()
    }
