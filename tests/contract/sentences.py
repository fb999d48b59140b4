"""Ordinary sentences for the recorded answers, made from templates. The same index gives the same text."""

import random

COUNT = 500

THINGS = """
    film movie book album hotel restaurant soup pizza coffee laptop phone charger headset jacket lamp sofa
    game app update service website delivery parcel invoice waiter receptionist doctor teacher course concert
    story ending plot cast museum train flight seat room view garden battery screen keyboard
    manual support warranty
""".split()
GOOD = """
    superb good great lovely friendly fast delicious brilliant reliable comfortable moving funny quiet clean
    helpful charming fresh sturdy honest generous
""".split()
BAD = """
    bad awful slow rude cold boring broken dirty noisy late useless bland expensive confusing fragile dull
    disappointing stale cramped careless
""".split()
PLAIN = """
    blue wooden small large second new old usual square grey heavy light round weekly local
""".split()
DEGREES = ["very ", "really ", "quite ", "rather ", "a bit ", "so ", "not ", "never ", "hardly ", ""]
TIMES = [
    "on Monday", "last week", "after two days", "in the evening", "for 12 euros", "at 9.30", "again", "twice",
]  # fmt: skip
TEMPLATES = [
    "The {thing} was {degree}{good}.",
    "The {thing} was {degree}{bad}.",
    "A {good} {thing}, and a {degree}{bad} {other}.",
    "I don't think the {thing} is {good}, but the {other} was {degree}{good}.",
    "We bought the {plain} {thing} {time}.",
    "The {thing} arrived {time} and it was {bad}!",
    "Nobody could call this {thing} {bad}; the {other} is {good}.",
    "Is the {thing} {good}? No, it is {degree}{bad}...",
    "My {thing} stopped working {time}, so I asked for a {plain} {other}.",
    "{good} {thing}",
    "{bad} {thing}!!!",
    "It's a {thing} like any other: {plain}, {plain2} and {good}.",
    "Despite the {bad} {thing}, we had a {good} time with the {other} {time}.",
    "They said “{good}”, I say {bad} 😀",
    "The {thing} (and the {other}) cost more than it should, yet I'd buy it {time}.",
    "MY {thing} IS {bad} AND THE {other} IS {good}",
    "café naïve {thing} – {degree}{good}, 100% {good}",
    "If only the {thing} had been {good} instead of {bad}, I would come {time}.",
]


CHOICES = {
    "thing": THINGS, "other": THINGS, "good": GOOD, "bad": BAD, "plain": PLAIN, "plain2": PLAIN,
    "degree": DEGREES, "time": TIMES,
}  # fmt: skip


def sentence(rng: random.Random) -> str:
    """Return one sentence."""
    words = {name: rng.choice(choices) for name, choices in CHOICES.items()}
    return rng.choice(TEMPLATES).format(**words)


def text(index: int) -> str:
    """Return a text: mostly one to three sentences, at every 50th index a review of thirty."""
    rng = random.Random(index)
    count = 30 if index % 50 == 49 else rng.choice([1, 1, 1, 2, 3])
    return " ".join(sentence(rng) for _ in range(count))


def texts() -> list[str]:
    """Return all texts."""
    return [text(index) for index in range(COUNT)]
