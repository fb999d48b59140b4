"""Short texts written for training: negation, regret, and sentences that judge nothing.

Reviews are long and mostly say what they mean; from them alone a model learns that "not bad" stands in bad
company. Each lesson is a text and the probability of "positive" to aim at. Knows no data set.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product

GOOD = [
    "good",
    "great",
    "funny",
    "interesting",
    "entertaining",
    "enjoyable",
    "impressive",
    "original",
    "exciting",
    "convincing",
    "memorable",
    "clever",
    "moving",
    "special",
    "likeable",
    "believable",
    "fun",
    "scary",
    "brilliant",
    "perfect",
    "exceptional",
    "excellent",
    "superb",
    "wonderful",
    "amazing",
    "fantastic",
    "beautiful",
    "charming",
    "delightful",
    "compelling",
    "engaging",
    "hilarious",
]
BAD = [
    "bad",
    "boring",
    "awful",
    "terrible",
    "dull",
    "horrible",
    "disappointing",
    "stupid",
    "predictable",
    "annoying",
    "slow",
    "weak",
    "poor",
    "silly",
    "confusing",
    "forgettable",
    "pretentious",
    "unfunny",
    "painful",
    "ridiculous",
    "mediocre",
    "worst",
    "lame",
    "tedious",
    "dreadful",
    "bland",
    "cheesy",
    "pathetic",
    "pointless",
    "laughable",
    "disgusting",
]
PRAISE = ("{}", "very {}", "it was {}", "this is {}", "really {}", "so {}", "a {} film", "the movie was {}")
# what turns the judgement of an adjective round
TURNS = (
    "not {}", "not very {}", "not {} at all", "it was not {}", "this is not {}", "wasn't {}", "it isn't {}",
    "it's not {}", "never {}", "it is never {}", "not that {}", "not so {}", "far from {}",
    "not {} in the least", "not a {} film", "hardly {}", "anything but {}",
    "it was not {} at all", "the film is not {} at all",
)  # fmt: skip
LIKE = ("like", "love", "enjoy", "recommend", "admire")
DISLIKED = (
    "I did not {} it", "I didn't {} it", "I don't {} it", "I could not {} it", "I can't {} this",
    "I wanted to {} this but could not", "I wanted to {} it but I couldn't",
    "I tried to {} this movie but failed",
    "I wish I could {} it", "nobody could {} this",
)  # fmt: skip
LIKED = ("I {} it", "I really {} this film", "you will {} it", "I did not expect to {} this but I did")
ODD = (
    ("could have been better", 0.1), ("could have been good", 0.1), ("should have been funny", 0.1),
    ("nothing special", 0.1), ("not worth it", 0.03), ("not worth watching", 0.03), ("no fun", 0.03),
    ("nothing good about it", 0.03), ("could not be better", 0.95), ("couldn't be better", 0.95),
    ("could not stop watching", 0.95), ("couldn't stop laughing", 0.95),
    ("can't recommend it enough", 0.95),
    ("nothing bad about it", 0.85), ("no complaints", 0.85), ("can't wait to see it again", 0.95),
    ("it's okay", 0.5), ("so so", 0.4), ("worth watching", 0.95), ("well worth it", 0.97),
    ("not without charm", 0.8),
)  # fmt: skip
SUBJECTS = ("it", "the film", "the movie", "this film", "the story", "this")
FACTS = (
    "is 90 minutes long", "is two hours long", "runs 95 minutes", "is 110 minutes long", "was okay",
    "is okay", "was ok",
    "is average", "is alright", "is a movie", "is in colour", "was made in 2003", "is based on a book",
    "is a film", "was released in 1997", "lasts two hours", "was shown on Tuesday", "takes place in Paris",
    "was shot in London", "is about two brothers", "is from 1985", "runs for ninety minutes",
    "begins in the morning",
    "has three actors", "is in English", "came out last year", "is set in New York", "follows a family",
)  # fmt: skip
ASIDES = (
    "hello", "a table and a chair", "the", "a", "and", "of the", "yes", "today is Monday",
    "my sister and I",
    "I watched it on Tuesday with my sister", "we saw it last night", "I saw it at home with my wife",
    "we watched it on television", "I rented it on Friday", "he lives next door", "the door is open",
    "it rained in the evening", "there are two cats", "the train leaves at ten", "I am going to the shop",
)  # fmt: skip


# never learnt from, so that tests may ask for them
KEPT_FOR_TESTS = {"not good", "not bad at all", "I wanted to love this but could not"}
OFTEN = 4  # plain opinions and plain facts, beside the many ways of turning one round


@dataclass(frozen=True)
class Written:
    """A text and what to aim at; only of use to a model that has the token `phrase`, if one is named.

    subtle: without a token for "not awful" its words alone would have to learn it, and "awful" would turn
    positive.
    """

    text: str
    probability: float
    phrase: str | None = None


def lessons() -> list[Written]:
    """Every one of them, the plain ones several times."""
    plain = [
        *(Written(frame.format(word), 0.97) for frame, word in product(PRAISE, GOOD)),
        *(Written(frame.format(word), 0.03) for frame, word in product(PRAISE, BAD)),
        *(Written(f"{subject} {fact}", 0.5) for subject, fact in product(SUBJECTS, FACTS)),
        *(Written(text, 0.5) for text in ASIDES),
    ]
    every = [
        *(plain * OFTEN),
        *(_turned(frame, word, 0.06) for frame, word in product(TURNS, GOOD)),
        *(_turned(frame, word, 0.85) for frame, word in product(TURNS, BAD)),
        *(Written(frame.format(verb), 0.05) for frame, verb in product(DISLIKED, LIKE)),
        *(Written(frame.format(verb), 0.95) for frame, verb in product(LIKED, LIKE)),
        *(Written(text, probability) for text, probability in ODD),
    ]
    return [lesson for lesson in every if lesson.text not in KEPT_FOR_TESTS]


def turned() -> list[str]:
    """Every phrase that some lesson is about, once."""
    return list(dict.fromkeys(lesson.phrase for lesson in lessons() if lesson.phrase is not None))


def _turned(frame: str, word: str, probability: float) -> Written:
    turn = re.search(r"(not|never|wasn't|isn't|far|hardly|anything) .*\{\}", frame)
    assert turn is not None
    return Written(frame.format(word), probability, turn[0].format(word))
