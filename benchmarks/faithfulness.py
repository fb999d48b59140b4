"""Do the words that we name decide? Leaders against LIME, occlusion, integrated gradients and chance.

    python -m benchmarks.faithfulness --data aclImdb_train.tar.gz [--reviews 1000] [--lime 60]

Each method names the same number of distinct words of a review. Comprehensiveness is how much the
probability of the predicted label falls when they are deleted (more is better), sufficiency how much it
falls when nothing else is left (less is better). Every method asks the same served model. LIME (its own
package, 1,000 samples a review) is a thousand times dearer, so it explains a part of the reviews; all others
are measured on that part too.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from model_export.measure.verify import stored_weights
from model_export.sentiment import reference
from model_export.train.corpora import read_reviews
from numpy.typing import NDArray
from service.texts.sentiment import Sentiment

from benchmarks.environments import fetched
from benchmarks.record import Record
from service.engine.bundle import read_bundle
from service.engine.runtime import Runtime

Scores = dict[str, float]  # how much each distinct word speaks for the predicted label
SAMPLES = 1000
BUDGETS = (5, 10)
_TOGETHER = 64


@dataclass(frozen=True)
class Review:
    """A review as its words, one space between them, so that every method cuts it in the same places."""

    words: tuple[str, ...]
    sign: int  # 1 where the model says positive, -1 negative
    probability: float

    @property
    def text(self) -> str:
        return " ".join(self.words)

    @property
    def distinct(self) -> list[str]:
        return list(dict.fromkeys(self.words))

    def without(self, removed: set[str]) -> str:
        return " ".join(word for word in self.words if word not in removed)


class Explained:
    """The served model, and what can be asked of it."""

    def __init__(self, folder: Path) -> None:
        bundle = read_bundle(folder)
        self.model = Sentiment.load(bundle, Runtime("cpu", 1))
        self.weights = stored_weights(bundle)

    def positive(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """The probability of "positive"; a text without words gets that of the bias."""
        found = np.zeros(len(texts))
        for at in range(0, len(texts), _TOGETHER):
            some = [text if text.strip() else "<br/>" for text in texts[at : at + _TOGETHER]]
            answers = self.model.classify(self.model.tokenise_many(some), "none")
            found[at : at + _TOGETHER] = [answer["probs"][self.model.labels[1]] for answer in answers]
        return found

    def review(self, text: str) -> Review:
        tokens = self.model.tokenise(text)
        cuts = zip(tokens.starts.tolist(), tokens.ends.tolist(), strict=True)
        words = tuple("".join(tokens.text[a:b].split()) for a, b in cuts)
        p = float(self.positive([" ".join(words)])[0])
        return Review(words, 1 if p > 0.5 else -1, max(p, 1 - p))

    def places(self, review: Review) -> list[tuple[str, dict[str, Any]]]:
        """Every place of a review: the word that it is read from, and what is said of it."""
        (answer,) = self.model.classify([self.model.tokenise(review.text)], "full")
        starts = np.cumsum([0, *(len(word) + 1 for word in review.words)])
        for cluster in answer["clusters"]:
            cluster["contribution"] *= review.sign
        found = []
        for word in answer["words"]:
            at = int(np.searchsorted(starts, word["spans"][0][0], side="right")) - 1
            sum_ = answer["clusters"][word["cluster"]]["contribution"]
            found.append(
                (review.words[at], {**word, "contribution": review.sign * word["contribution"], "sum": sum_})
            )
        return found


def by_leaders(model: Explained, review: Review, rng: np.random.Generator) -> Scores:
    """Leaders by what their clusters contribute; where they do not suffice, followers by what they add."""
    scores: Scores = defaultdict(lambda: -1e9)
    for word, place in model.places(review):
        value = place["contribution"]
        if place["leader"]:
            value = 1e3 + place["sum"] if place["sum"] > 0 else -1e3 + place["sum"]  # of the other side: last
        scores[word] = max(scores[word], value)
    return scores


def by_words(model: Explained, review: Review, rng: np.random.Generator) -> Scores:
    """What each word contributes, at all its places."""
    scores: Scores = defaultdict(float)
    for word, place in model.places(review):
        scores[word] += place["contribution"]
    return scores


def by_chance(model: Explained, review: Review, rng: np.random.Generator) -> Scores:
    return {word: float(rng.random()) for word in review.distinct}


def by_occlusion(model: Explained, review: Review, rng: np.random.Generator) -> Scores:
    """One deletion and one inference a word."""
    p = model.positive([review.without({word}) for word in review.distinct])
    return dict(zip(review.distinct, (-review.sign * p).tolist(), strict=True))


def by_gradients(model: Explained, review: Review, rng: np.random.Generator) -> Scores:
    """Integrated gradients of the logit from the origin of the plane, with respect to the places.

    The argmax does not change along a ray and all else is linear, so the integral needs no steps.
    """
    w, tokens = model.weights, model.model.tokenise(review.text)
    answer = reference.answer(w, tokens.ids)
    gamma = w.alpha / (1 + w.alpha)
    chain = np.eye(len(tokens))
    for C in answer.targets:
        chain = (1 - gamma) * chain + gamma * (C / C.sum(axis=1, keepdims=True)) @ chain
    share = answer.weight / (w.pseudo_weight + answer.weight.sum())
    parts = (share @ chain) * (answer.states[0] @ w.readout[0])
    starts = np.cumsum([0, *(len(word) + 1 for word in review.words)])
    scores: Scores = defaultdict(float)
    for at, part in zip(
        np.searchsorted(starts, tokens.starts, side="right") - 1, parts.tolist(), strict=True
    ):
        scores[review.words[at]] += review.sign * part
    return scores


def by_lime(model: Explained, review: Review, rng: np.random.Generator) -> Scores:
    from lime.lime_text import LimeTextExplainer

    def judge(texts: Sequence[str]) -> NDArray[np.float64]:
        p = model.positive(texts)
        return np.stack((1 - p, p), axis=1)

    explainer = LimeTextExplainer(
        split_expression=str.split, random_state=int(rng.integers(1 << 31)), feature_selection="none"
    )
    found = explainer.explain_instance(
        review.text, judge, labels=(1,), num_features=len(review.distinct), num_samples=SAMPLES
    )
    return {word: review.sign * weight for word, weight in found.as_list(label=1)}


METHODS: dict[str, Callable[[Explained, Review, np.random.Generator], Scores]] = {
    "ours, leaders": by_leaders,
    "ours, words": by_words,
    "random words": by_chance,
    "integrated gradients": by_gradients,
    "occlusion": by_occlusion,
    "LIME, 1000 samples": by_lime,
}


@dataclass(frozen=True)
class Outcome:
    """One method on some reviews: for each budget both figures of every review, and the time of each."""

    comprehensiveness: dict[int, NDArray[np.float64]]
    sufficiency: dict[int, NDArray[np.float64]]
    milliseconds: list[float]


def measure(name: str, model: Explained, reviews: Sequence[Review]) -> Outcome:
    rng = np.random.default_rng(0)
    taken, deleted, kept = [], defaultdict(list), defaultdict(list)
    for review in reviews:
        begun = time.perf_counter()
        scores = METHODS[name](model, review, rng)
        taken.append(1000 * (time.perf_counter() - begun))
        ranked = sorted(review.distinct, key=lambda word: -scores.get(word, -np.inf))
        for budget in BUDGETS:
            named = set(ranked[:budget])
            deleted[budget].append(review.without(named))
            kept[budget].append(review.without(set(review.words) - named))
    sign = np.array([review.sign for review in reviews])
    before = np.array([review.probability for review in reviews])

    def fall(texts: Sequence[str]) -> NDArray[np.float64]:
        p = model.positive(texts)
        return before - np.where(sign > 0, p, 1 - p)

    return Outcome(
        {budget: fall(deleted[budget]) for budget in BUDGETS},
        {budget: fall(kept[budget]) for budget in BUDGETS},
        taken,
    )


def without_lime() -> str:
    """Why LIME cannot be asked here, or nothing."""
    refused = fetched("texts")
    try:
        import lime.lime_text  # noqa: F401
    except ImportError as missing:
        return refused or str(missing)
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, default=Path("service/models/sentiment"))
    parser.add_argument("--reviews", type=int, default=1000)
    parser.add_argument("--lime", type=int, default=60, help="how many of them LIME explains too")
    arguments = parser.parse_args()

    refused = without_lime()
    model = Explained(arguments.model)
    texts = [row.text for row in read_reviews(arguments.data) if row.target is not None]
    drawn = np.random.default_rng(1).permutation(len(texts))[: arguments.reviews]
    reviews = [model.review(texts[i]) for i in drawn]
    record = Record("faithfulness", "Faithful explanations", ["numpy", "onnxruntime", "lime"])
    ours, chance = ("ours, leaders", "ours, words"), ("random words",)
    fall = record.table(
        "comprehensiveness",
        "Fall when the words are deleted",
        unit="probability",
        better="higher",
        ours=ours,
        floors=chance,
    )
    rest = record.table(
        "sufficiency",
        "Fall when only the words are left",
        unit="probability",
        better="lower",
        ours=ours,
        floors=chance,
    )
    cost = record.table("time", "One explanation", unit="ms", better="lower", ours=ours, floors=chance)
    parts = [(name, arguments.reviews) for name in METHODS if "LIME" not in name]
    if refused:
        record.note(f"LIME was left out: {refused}")
    else:
        parts += [(name, min(arguments.lime, arguments.reviews)) for name in METHODS]
    for name, count in parts:
        found = measure(name, model, reviews[:count])
        for budget in BUDGETS:
            case = {"words": budget, "reviews": count}
            fall.add(name, case, [float(found.comprehensiveness[budget].mean())])
            rest.add(name, case, [float(found.sufficiency[budget].mean())])
        row = cost.add(name, {"reviews": count}, found.milliseconds)
        falls = "  ".join(
            f"{budget} words: {deleted.mean():.3f} {found.sufficiency[budget].mean():.3f}"
            for budget, deleted in found.comprehensiveness.items()
        )
        print(f"{count:5} reviews  {name:22}  {falls}  {row.median:9.2f} ms", flush=True)
    record.note("Means over reviews that the model was not trained on; the words are what is judged.")
    print(record.write())


if __name__ == "__main__":
    main()
