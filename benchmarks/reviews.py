"""Reviews of any length: fragments written for this project, combined by a seeded generator.

`reviews(22, 256)` returns 256 different texts of exactly 22 words. The fragments have about as many words and
phrases with a sentiment as real short reviews.
"""

import random
from itertools import chain

OPENINGS = (
    "I went in expecting very little and",
    "My whole family watched this last night and",
    "After all the praise I had heard",
    "From the first scene to the last",
    "As a fan of the original book",
    "Nobody told me how slow it is but",
    "Despite a cast full of great actors",
    "Twenty minutes before the end of it",
)
MIDDLES = (
    "the acting was superb and the story moving",
    "the plot was a complete waste of time",
    "it is not good and never really funny",
    "every joke fell flat and the script was awful",
    "the music is wonderful and the ending perfect",
    "the dialogue was painfully boring and badly written",
    "I loved the photography and the gentle humour",
    "the special effects looked cheap and rather poor",
    "what follows is an amazing and heartfelt performance",
)
ENDINGS = (
    "so I would highly recommend it to anyone.",
    "and I want those two hours of my life back.",
    "which is a shame because the idea was excellent.",
    "and that makes it one of the best films this year.",
    "though the director has made far worse before.",
    "so save your money and watch something else instead.",
    "and we left the cinema with a smile.",
)
FILLERS = (
    "really", "quite", "somehow", "in the end", "for once", "as they say", "to be honest", "all the same",
)  # fmt: skip


def reviews(words: int, count: int, seed: int = 0) -> list[str]:
    """Return `count` texts of exactly `words` words each, the same for the same seed."""
    rng = random.Random(f"{words}/{seed}")
    return [_review(words, rng) for _ in range(count)]


def _review(words: int, rng: random.Random) -> str:
    sentences = chain.from_iterable(_sentence(rng) for _ in range(words))
    return " ".join(word for word, _ in zip(sentences, range(words), strict=False))


def _sentence(rng: random.Random) -> list[str]:
    parts = (rng.choice(OPENINGS), rng.choice(FILLERS), rng.choice(MIDDLES), rng.choice(ENDINGS))
    return " ".join(parts).split()
