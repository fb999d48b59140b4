"""Behavioural tests: sentences written from templates, and the share of them on which a model fails.

    invariance    the label must be the same for all texts of a group
    direction     the probability of "positive" must lie in [low, high]

The pretrained models are not trained on these sentences.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from model_export.measure.scores import three_labels

THINGS = ("kettle", "hotel", "bus ride", "phone", "soup", "course", "app", "jacket", "office", "concert")
GOOD_WORDS = tuple("excellent lovely reliable delightful comfortable impressive pleasant brilliant".split())
BAD_WORDS = tuple("awful dreadful useless uncomfortable disappointing horrible unpleasant annoying".split())
COMPARATIVES = ("better", "nicer", "lovelier", "more reliable", "more comfortable", "more pleasant")
PRAISING_VERBS = ("enjoyed", "loved", "liked", "admired")
BLAMING_VERBS = ("hated", "disliked", "regretted")
FACTS = (
    "the {thing} is on the second floor",
    "the {thing} was made in {number}",
    "we saw the {thing} on {day}",
    "this is a {thing}",
    "the {thing} has {number} parts",
    "they moved the {thing} to another town",
)
NAMES = ("Maria", "Ahmed", "Jennifer", "Wei", "Olga", "Michael", "Priya", "Carlos")
CITIES_AND_COUNTRIES = ("London", "Lagos", "Chicago", "Brazil", "Pakistan", "Norway", "Tokyo", "Texas")
NATIONS = ("American", "Chinese", "Nigerian", "Mexican", "German", "Turkish", "Indian", "Russian")
FAITHS = ("Christian", "Muslim", "Jewish", "Hindu", "Buddhist", "atheist", "Catholic", "Sikh")
ORIGINS = ("black", "white", "Asian", "Hispanic", "Arab", "Latino", "indigenous")
ORIENTATIONS = ("gay", "straight", "lesbian", "bisexual", "heterosexual", "transgender", "queer")
DAY, YEARS, NUMBERS = "Monday", ("12", "1998"), ("2", "17", "300", "1,500")
PRAISE = list(product(THINGS, GOOD_WORDS))
BLAME = list(product(THINGS, BAD_WORDS))
ROOM_PARTS = ("chair", "window", "table", "door", "desk")

Predict = Callable[[Sequence[str]], NDArray[np.float64]]  # texts -> probabilities of "positive"


@dataclass(frozen=True)
class Case:
    """Groups of texts: probabilities lie in [low, high], or without limits, a group has one label."""

    name: str
    groups: tuple[tuple[str, ...], ...]
    low: float | None = None
    high: float | None = None


def plain_judgements() -> list[tuple[str, float]]:
    """Return plain judgements, with the label 1 for praise and 0 for criticism."""
    positive = [(f"the {thing} was {word}", 1.0) for thing, word in product(THINGS, GOOD_WORDS)]
    negative = [(f"the {thing} was {word}", 0.0) for thing, word in product(THINGS, BAD_WORDS)]
    pairs = product(THINGS, PRAISING_VERBS + BLAMING_VERBS)
    verbs = [(f"I {verb} the {thing}", float(verb in PRAISING_VERBS)) for thing, verb in pairs]
    return positive + negative + verbs


def cases(neutral_margin: float) -> list[Case]:
    """Return all cases; a probability within `neutral_margin` of one half is neutral."""
    return [*_invariances(), *_directions(0.5 - neutral_margin, 0.5 + neutral_margin)]


def _invariances() -> list[Case]:
    """Return groups of texts that must have the same label."""
    texts = [text for text, _ in plain_judgements()]
    negated = tuple(
        (f"the {t} is not {w}", f"the {t} isn't {w}", f"the {t} isnt {w}") for t, w in PRAISE + BLAME
    )
    return [
        Case("name changed", _substitute("{x} is {word}.", NAMES)),
        Case("place changed", _substitute("the train to {x} was {word}", CITIES_AND_COUNTRIES)),
        Case("number changed", _substitute("after {x} days the phone was {word}", NUMBERS)),
        Case("nation named", _substitute("the {x} waiter is {word}", NATIONS)),
        Case("faith named", _substitute("he is a {x} teacher and he is {word}", FAITHS)),
        Case("origin named", _substitute("she is a {x} woman and she is {word}", ORIGINS)),
        Case("orientation named", _substitute("my {x} friend is {word}", ORIENTATIONS)),
        Case("neutral word changed", _substitute("the {x} in the hall was {word}", ROOM_PARTS)),
        Case("mark added", tuple((text, text + ".", text + " .") for text in texts)),
        Case(
            "link or handle added",
            tuple((text, f"{text} https://t.co/x1", f"@someone {text}") for text in texts),
        ),
        Case("contraction", negated),
        Case("letter doubled", tuple((text, _double_letter(text)) for text in texts)),
    ]


def _directions(low: float, high: float) -> list[Case]:
    """Return texts whose probability has a bound; neutral is from `low` to `high`."""
    facts = product(FACTS, THINGS, YEARS)
    return [
        Case("praise", tuple((text,) for text, p in plain_judgements() if p), low=0.5),
        Case("blame", tuple((text,) for text, p in plain_judgements() if not p), high=0.5),
        Case("negated praise", _fill("the {t} was not {w}", PRAISE), high=0.5),
        Case("negated praise, called", _fill("I would not call the {t} {w}", PRAISE), high=0.5),
        Case(
            "negated praise, at a distance",
            _fill("I am not convinced that the {t} was {w}", PRAISE),
            high=0.5,
        ),
        Case(
            "negated verb",
            tuple((f"I did not enjoy the {t}", f"we never liked the {t}") for t in THINGS),
            high=0.5,
        ),
        Case("negated blame", _fill("the {t} was not {w}", BLAME), low=low),
        Case(
            "negated comparison",
            _fill("the {t} could not possibly be {w}", list(product(THINGS, COMPARATIVES))),
            low=0.5,
        ),
        Case("once hated, now praised", _fill("I used to hate the {t}, but now it is {w}", PRAISE), low=0.5),
        Case("once loved, now blamed", _fill("I used to love the {t}, but now it is {w}", BLAME), high=0.5),
        Case("others blame, I praise", _fill("some say the {t} is bad, but I find it {w}", PRAISE), low=0.5),
        Case("others praise, I blame", _fill("some say the {t} is good, but I find it {w}", BLAME), high=0.5),
        Case(
            "fact",
            tuple((fact.format(thing=t, number=n, day=DAY),) for fact, t, n in facts),
            low=low,
            high=high,
        ),
    ]


def _substitute(template: str, words: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return a group for each opinion: the template with each of `words`."""
    opinions = [*GOOD_WORDS[:3], *BAD_WORDS[:3], "tired", "at home", "from the north"]
    return tuple(tuple(template.format(x=x, word=word) for x in words) for word in opinions)


def _fill(template: str, pairs: Sequence[tuple[str, str]]) -> tuple[tuple[str, ...], ...]:
    """Return the template with each thing and word, in groups of one."""
    return tuple((template.format(t=thing, w=word),) for thing, word in pairs)


def _double_letter(text: str) -> str:
    """Return the text with a letter of its longest word doubled, as in a typing error."""
    word = max(text.split(), key=len)
    return text.replace(word, word[:2] + word[1:])


def failure_rates(predict: Predict, neutral_margin: float) -> dict[str, float]:
    """Return the share of failed groups of each case."""
    rates = {}
    for case in cases(neutral_margin):
        probs = predict([text for group in case.groups for text in group])
        failed = 0
        for p in np.split(probs, np.cumsum([len(group) for group in case.groups])[:-1]):
            if case.low is None and case.high is None:
                failed += len(set(three_labels(p, neutral_margin).tolist())) > 1
            else:
                high = 1.0 if case.high is None else case.high
                failed += bool((p < (case.low or 0.0)).any() or (p > high).any())
        rates[case.name] = failed / len(case.groups)
    return rates
