"""Behaviour: sentences written from templates, and how often an answer is not what anyone would expect.

    same      small changes that mean nothing: the label may not change within a group
    not above, not below, between   where the probability of "positive" has to be

No training text comes from here: the bundled model learns from sentences of the data sets alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from model_export.measure.scores import three_labels

THINGS = ("kettle", "hotel", "bus ride", "phone", "soup", "course", "app", "jacket", "office", "concert")
GOOD = ("excellent", "lovely", "reliable", "delightful", "comfortable", "impressive", "pleasant", "brilliant")
BAD = ("awful", "dreadful", "useless", "uncomfortable", "disappointing", "horrible", "unpleasant", "annoying")
BETTER = ("better", "nicer", "lovelier", "more reliable", "more comfortable", "more pleasant")
PRAISE = ("enjoyed", "loved", "liked", "admired")
BLAME = ("hated", "disliked", "regretted")
FACTS = (
    "the {thing} is on the second floor",
    "the {thing} was made in {number}",
    "we saw the {thing} on {day}",
    "this is a {thing}",
    "the {thing} has {number} parts",
    "they moved the {thing} to another town",
)
NAMES = ("Maria", "Ahmed", "Jennifer", "Wei", "Olga", "Michael", "Priya", "Carlos")
PLACES = ("London", "Lagos", "Chicago", "Brazil", "Pakistan", "Norway", "Tokyo", "Texas")
NATIONS = ("American", "Chinese", "Nigerian", "Mexican", "German", "Turkish", "Indian", "Russian")
FAITHS = ("Christian", "Muslim", "Jewish", "Hindu", "Buddhist", "atheist", "Catholic", "Sikh")
ORIGINS = ("black", "white", "Asian", "Hispanic", "Arab", "Latino", "indigenous")
LOVES = ("gay", "straight", "lesbian", "bisexual", "heterosexual", "transgender", "queer")
DAY, YEARS = "Monday", ("12", "1998")

Predict = Callable[[Sequence[str]], NDArray[np.float64]]  # texts -> probabilities of "positive"


@dataclass(frozen=True)
class Case:
    """`groups` of texts. With limits every text lies in [low, high]; without, a group shares its label."""

    name: str
    groups: tuple[tuple[str, ...], ...]
    low: float | None = None
    high: float | None = None


def plain_judgements() -> list[tuple[str, float]]:
    """Plain judgements, with 1 for praise and 0 for blame."""
    good = [(f"the {thing} was {word}", 1.0) for thing, word in product(THINGS, GOOD)]
    bad = [(f"the {thing} was {word}", 0.0) for thing, word in product(THINGS, BAD)]
    acts = [
        (f"I {verb} the {thing}", float(verb in PRAISE)) for thing, verb in product(THINGS, PRAISE + BLAME)
    ]
    return good + bad + acts


def cases(even: float) -> list[Case]:
    """All tests; `even` is half the band that is called neither."""
    texts = [text for text, _ in plain_judgements()]
    low, high = 0.5 - even, 0.5 + even
    praise = [(thing, word) for thing, word in product(THINGS, GOOD)]
    blame = [(thing, word) for thing, word in product(THINGS, BAD)]

    def swapped(template: str, words: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        charged = [*GOOD[:3], *BAD[:3], "tired", "at home", "from the north"]
        return tuple(tuple(template.format(x=x, word=word) for x in words) for word in charged)

    def each(template: str, pairs: Sequence[tuple[str, str]]) -> tuple[tuple[str, ...], ...]:
        return tuple((template.format(t=thing, w=word),) for thing, word in pairs)

    better = [(thing, word) for thing, word in product(THINGS, BETTER)]
    rooms = ("chair", "window", "table", "door", "desk")
    denied = tuple(
        (f"the {t} is not {w}", f"the {t} isn't {w}", f"the {t} isnt {w}") for t, w in praise + blame
    )
    facts = [
        fact.format(thing=thing, number=number, day=DAY)
        for fact, thing, number in product(FACTS, THINGS, YEARS)
    ]
    return [
        Case("name changed", swapped("{x} is {word}.", NAMES)),
        Case("place changed", swapped("the train to {x} was {word}", PLACES)),
        Case("number changed", swapped("after {x} days the phone was {word}", ("2", "17", "300", "1,500"))),
        Case("nation named", swapped("the {x} waiter is {word}", NATIONS)),
        Case("faith named", swapped("he is a {x} teacher and he is {word}", FAITHS)),
        Case("origin named", swapped("she is a {x} woman and she is {word}", ORIGINS)),
        Case("orientation named", swapped("my {x} friend is {word}", LOVES)),
        Case("neutral word changed", swapped("the {x} in the hall was {word}", rooms)),
        Case("mark added", tuple((text, text + ".", text + " .") for text in texts)),
        Case(
            "link or handle added",
            tuple((text, f"{text} https://t.co/x1", f"@someone {text}") for text in texts),
        ),
        Case("contraction", denied),
        Case("letter doubled", tuple((text, _doubled(text)) for text in texts)),
        Case("praise", tuple((text,) for text, p in plain_judgements() if p), low=0.5),
        Case("blame", tuple((text,) for text, p in plain_judgements() if not p), high=0.5),
        Case("negated praise", each("the {t} was not {w}", praise), high=0.5),
        Case("negated praise, called", each("I would not call the {t} {w}", praise), high=0.5),
        Case(
            "negated praise, at a distance", each("I am not convinced that the {t} was {w}", praise), high=0.5
        ),
        Case(
            "negated verb",
            tuple((f"I did not enjoy the {t}", f"we never liked the {t}") for t in THINGS),
            high=0.5,
        ),
        Case("negated blame", each("the {t} was not {w}", blame), low=low),
        Case("denied comparison", each("the {t} could not possibly be {w}", better), low=0.5),
        Case("once hated, now praised", each("I used to hate the {t}, but now it is {w}", praise), low=0.5),
        Case("once loved, now blamed", each("I used to love the {t}, but now it is {w}", blame), high=0.5),
        Case("others blame, I praise", each("some say the {t} is bad, but I find it {w}", praise), low=0.5),
        Case("others praise, I blame", each("some say the {t} is good, but I find it {w}", blame), high=0.5),
        Case("fact", tuple((fact,) for fact in facts), low=low, high=high),
    ]


def _doubled(text: str) -> str:
    """A letter of the longest word written twice: a slip of the finger."""
    word = max(text.split(), key=len)
    return text.replace(word, word[:2] + word[1:])


def failures(predict: Predict, even: float) -> dict[str, float]:
    """The share of groups of each test that fail."""
    found = {}
    for case in cases(even):
        flat = predict([text for group in case.groups for text in group])
        at, failed = 0, 0
        for group in case.groups:
            p = flat[at : at + len(group)]
            at += len(group)
            if case.low is None and case.high is None:
                failed += len(set(three_labels(p, even).tolist())) > 1
            else:
                failed += bool(
                    (p < (case.low or 0.0)).any() or (p > (1.0 if case.high is None else case.high)).any()
                )
        found[case.name] = failed / len(case.groups)
    return found
