"""Behavioural tests: sentences written from templates, and the share of them on which a model fails.

    invariance    changes without a meaning: the label must not change within a group
    direction     the probability of "positive" must lie in [low, high]

No sentence is training data: the pretrained models are trained on texts of the data sets alone.
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
CITIES_AND_COUNTRIES = ("London", "Lagos", "Chicago", "Brazil", "Pakistan", "Norway", "Tokyo", "Texas")
NATIONS = ("American", "Chinese", "Nigerian", "Mexican", "German", "Turkish", "Indian", "Russian")
FAITHS = ("Christian", "Muslim", "Jewish", "Hindu", "Buddhist", "atheist", "Catholic", "Sikh")
ORIGINS = ("black", "white", "Asian", "Hispanic", "Arab", "Latino", "indigenous")
LOVES = ("gay", "straight", "lesbian", "bisexual", "heterosexual", "transgender", "queer")
DAY, YEARS = "Monday", ("12", "1998")
PRAISED = list(product(THINGS, GOOD))
BLAMED = list(product(THINGS, BAD))
ROOM_PARTS = ("chair", "window", "table", "door", "desk")

Predict = Callable[[Sequence[str]], NDArray[np.float64]]  # texts -> probabilities of "positive"


@dataclass(frozen=True)
class Case:
    """Groups of texts: with limits every probability must lie in [low, high], else a group has one label."""

    name: str
    groups: tuple[tuple[str, ...], ...]
    low: float | None = None
    high: float | None = None


def plain_judgements() -> list[tuple[str, float]]:
    """Return plain judgements, with 1 for praise and 0 for blame."""
    good = [(f"the {thing} was {word}", 1.0) for thing, word in product(THINGS, GOOD)]
    bad = [(f"the {thing} was {word}", 0.0) for thing, word in product(THINGS, BAD)]
    acts = [
        (f"I {verb} the {thing}", float(verb in PRAISE)) for thing, verb in product(THINGS, PRAISE + BLAME)
    ]
    return good + bad + acts


def cases(neutral_margin: float) -> list[Case]:
    """Return all tests; a probability within `neutral_margin` of one half is neutral."""
    return [*_invariances(), *_directions(0.5 - neutral_margin, 0.5 + neutral_margin)]


def _invariances() -> list[Case]:
    """Return changes that must not change the label."""
    texts = [text for text, _ in plain_judgements()]
    negated = tuple(
        (f"the {t} is not {w}", f"the {t} isn't {w}", f"the {t} isnt {w}") for t, w in PRAISED + BLAMED
    )
    return [
        Case("name changed", _swapped("{x} is {word}.", NAMES)),
        Case("place changed", _swapped("the train to {x} was {word}", CITIES_AND_COUNTRIES)),
        Case("number changed", _swapped("after {x} days the phone was {word}", ("2", "17", "300", "1,500"))),
        Case("nation named", _swapped("the {x} waiter is {word}", NATIONS)),
        Case("faith named", _swapped("he is a {x} teacher and he is {word}", FAITHS)),
        Case("origin named", _swapped("she is a {x} woman and she is {word}", ORIGINS)),
        Case("orientation named", _swapped("my {x} friend is {word}", LOVES)),
        Case("neutral word changed", _swapped("the {x} in the hall was {word}", ROOM_PARTS)),
        Case("mark added", tuple((text, text + ".", text + " .") for text in texts)),
        Case(
            "link or handle added",
            tuple((text, f"{text} https://t.co/x1", f"@someone {text}") for text in texts),
        ),
        Case("contraction", negated),
        Case("letter doubled", tuple((text, _doubled(text)) for text in texts)),
    ]


def _directions(low: float, high: float) -> list[Case]:
    """Return texts whose probability has a bound; neutral is from `low` to `high`."""
    facts = product(FACTS, THINGS, YEARS)
    return [
        Case("praise", tuple((text,) for text, p in plain_judgements() if p), low=0.5),
        Case("blame", tuple((text,) for text, p in plain_judgements() if not p), high=0.5),
        Case("negated praise", _filled("the {t} was not {w}", PRAISED), high=0.5),
        Case("negated praise, called", _filled("I would not call the {t} {w}", PRAISED), high=0.5),
        Case(
            "negated praise, at a distance",
            _filled("I am not convinced that the {t} was {w}", PRAISED),
            high=0.5,
        ),
        Case(
            "negated verb",
            tuple((f"I did not enjoy the {t}", f"we never liked the {t}") for t in THINGS),
            high=0.5,
        ),
        Case("negated blame", _filled("the {t} was not {w}", BLAMED), low=low),
        Case(
            "negated comparison",
            _filled("the {t} could not possibly be {w}", list(product(THINGS, BETTER))),
            low=0.5,
        ),
        Case(
            "once hated, now praised", _filled("I used to hate the {t}, but now it is {w}", PRAISED), low=0.5
        ),
        Case(
            "once loved, now blamed", _filled("I used to love the {t}, but now it is {w}", BLAMED), high=0.5
        ),
        Case(
            "others blame, I praise", _filled("some say the {t} is bad, but I find it {w}", PRAISED), low=0.5
        ),
        Case(
            "others praise, I blame", _filled("some say the {t} is good, but I find it {w}", BLAMED), high=0.5
        ),
        Case(
            "fact",
            tuple((fact.format(thing=t, number=n, day=DAY),) for fact, t, n in facts),
            low=low,
            high=high,
        ),
    ]


def _swapped(template: str, words: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return a group for each charged word: the template with each of `words`."""
    charged = [*GOOD[:3], *BAD[:3], "tired", "at home", "from the north"]
    return tuple(tuple(template.format(x=x, word=word) for x in words) for word in charged)


def _filled(template: str, pairs: Sequence[tuple[str, str]]) -> tuple[tuple[str, ...], ...]:
    """Return the template with each thing and word, in groups of one."""
    return tuple((template.format(t=thing, w=word),) for thing, word in pairs)


def _doubled(text: str) -> str:
    """Return the text with a letter of its longest word doubled, a typical typing error."""
    word = max(text.split(), key=len)
    return text.replace(word, word[:2] + word[1:])


def failure_rates(predict: Predict, neutral_margin: float) -> dict[str, float]:
    """Return the share of groups of each test that fail."""
    rates = {}
    for case in cases(neutral_margin):
        flat = predict([text for group in case.groups for text in group])
        at, failed = 0, 0
        for group in case.groups:
            p = flat[at : at + len(group)]
            at += len(group)
            if case.low is None and case.high is None:
                failed += len(set(three_labels(p, neutral_margin).tolist())) > 1
            else:
                failed += bool(
                    (p < (case.low or 0.0)).any() or (p > (1.0 if case.high is None else case.high)).any()
                )
        rates[case.name] = failed / len(case.groups)
    return rates
