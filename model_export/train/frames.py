"""The words that the rules of augment.py look for and write with."""

from __future__ import annotations

from model_export.sentiment.model import NEGATORS

BE = frozenset("is was are were am be been seems looks".split())
LINKS = frozenset(
    "get gets got feel feels felt look looked seem seemed sound sounds sounded become becomes became".split()
)
SEVERAL = NEGATORS | frozenset("but and or although though however ,".split())  # not one plain judgement
MODALS = frozenset("can could will would should must may might do does did".split())
PRONOUNS = frozenset("i we they you he she it".split())
ADVERBS = ("very", "really", "so", "that", "all that", "particularly", "exactly")
DOUBTERS = ("i do not", "i would not", "we do not", "nobody would", "they did not")
BELIEFS = ("think", "think that", "believe", "believe that", "say", "say that", "agree that", "feel that")
JUDGE = ("consider", "find", "think")  # "i would not find the room clean"
UTTERLY = ("at all", "in any way")
ENOUGH = ("enough", "enough", "more", "highly enough")  # "i can not praise it enough"
DENIED = ("could not be", "could not have been", "can not be", "could never be", "has never been")
DETERMINERS = frozenset("the this that these those it they he she my our their i we you".split())
DENIALS = ("it is not true that", "it is not that", "i do not agree that", "nobody can say that")

TURNS = ("but", "but", "yet", "however")
CONCESSIONS = ("although", "though", "while", "despite that")
THEN = (
    "i used to think", "in the past", "at first", "years ago", "it used to be that", "before", "last year",
    "i once thought",
)  # fmt: skip
NOW = (
    "but now", "now", "these days", "but today", "but since then", "but lately", "although now",
    "but in the end",
)  # fmt: skip
OTHERS = (
    "some people say", "my friends think", "they say", "critics say", "everyone says", "people think",
    "i read that", "others say", "my brother thinks",
)  # fmt: skip
AUTHOR = (
    "but i think", "but to me", "but for me", "i think", "but i say", "but in my opinion", "but honestly",
)  # fmt: skip

RATED = (
    "{}", "{}", "{}", "it is {}", "very {}", "a {}", "so {}", "the {}", "{} !", "this is {}", "really {}",
    "{} {other}", "{other} {}", "the {other} is {}", "i feel {}",
)  # fmt: skip
RATED_DENIED = (
    "not {}", "it is not {}", "never {}", "is not {}", "was not {}", "not very {}", "not the {}",
    "nothing {}", "hardly {}", "not at all {}",
)  # fmt: skip
RATED_ABSENT = (
    "no {}", "there was no {}", "no {} at all", "without {}", "without any {}", "no {other} , no {}",
    "not a single {}", "we had no {}",
)  # fmt: skip
