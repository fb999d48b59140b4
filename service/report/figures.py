"""How good a model is on labelled rows: the numbers (a JSON value), and the same in lines for people.

For `hardmax evaluate` and for the end of training. It knows answers, not models.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

FOLDS = 5
WORST = 20
BINS = 10
SURE = 1.96  # standard deviations: an interval of 95 %
LEAST_PROBABILITY = 1e-7
WORD = re.compile(r"\w+")

Truth = Sequence[frozenset[str]]  # of each row its labels


@dataclass(frozen=True)
class Judged:
    """A row and what a model said of it. Labels that do not exclude each other may be several, or none."""

    text: str
    truth: frozenset[str]
    said: frozenset[str]
    probs: dict[str, float]
    undecided: str | None = None
    leaders: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        return self.truth == self.said

    @property
    def loss(self) -> float:
        """How improbable the truth was found."""
        if len(self.truth) == 1 and abs(sum(self.probs.values()) - 1) < 1e-3:
            return -math.log(max(self.probs.get(next(iter(self.truth)), 0.0), LEAST_PROBABILITY))
        each = (p if label in self.truth else 1 - p for label, p in self.probs.items())
        return -sum(math.log(max(p, LEAST_PROBABILITY)) for p in each)


def measure(rows: Sequence[Judged], labels: Sequence[str], *, several: bool = False) -> dict[str, Any]:
    """What the report says of one model; shares are from 0 to 1."""
    right = sum(row.right for row in rows)
    by_label = _by_label(rows, labels)
    found = {
        "rows": len(rows),
        "accuracy": right / len(rows),
        "interval": wilson(right, len(rows)),
        "balanced_accuracy": fmean(each["recall"] for each in by_label if each["rows"]),
        "most_frequent_label": max(Counter(row.truth for row in rows).values()) / len(rows),
        "labels": by_label,
        "calibration": _calibration(rows, several),
        "undecided": dict(Counter(row.undecided for row in rows if row.undecided)),
        "decided_accuracy": _share([row.right for row in rows if not row.undecided]),
        "worst": [_shown(row) for row in sorted(rows, key=lambda row: -row.loss) if not row.right][:WORST],
        "mislabelled": [_shown(row) for row in mislabelled(rows)][:WORST] if not several else [],
    }
    if not several:
        pairs = Counter((*row.truth, *row.said) for row in rows)
        found["confusion"] = [[pairs[true, said] for said in labels] for true in labels]
    return found


def wilson(right: int, n: int) -> tuple[float, float]:
    """The interval of a share that holds in 95 of 100 cases (Wilson 1927)."""
    if not n:
        return 0.0, 1.0
    p, z = right / n, SURE
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def mislabelled(rows: Sequence[Judged]) -> list[Judged]:
    """Rows that the model calls something else, as surely as rows that are so (Northcutt et al. 2021), and
    more likely than not: a model that is never sure knows of none.
    """
    usual: dict[str, list[float]] = {}
    for row in rows:
        for label in row.truth:
            usual.setdefault(label, []).append(row.probs.get(label, 0.0))
    doubtful = [
        row
        for row in rows
        if not row.right
        and not row.undecided
        and all(row.probs[label] >= max(0.5, fmean(usual.get(label, [1.0]))) for label in row.said)
    ]
    return sorted(doubtful, key=lambda row: -row.loss)


def linear(
    texts: Sequence[str], truth: Truth, labels: Sequence[str], parts: Sequence[Sequence[int]] = ()
) -> float | None:
    """How many rows of `parts` (the folds of all) TF-IDF with logistic regression gets right, each learnt
    from the other rows. None without scikit-learn, or where the rows are too few for folds.
    """
    right: list[bool] = []
    several = any(len(each) != 1 for each in truth)
    target: list[Any] = [
        [int(label in each) for label in labels] if several else next(iter(each)) for each in truth
    ]
    for held in parts or folds(truth, texts):
        inside = set(held)
        learnt = [i for i in range(len(texts)) if i not in inside]
        try:
            peer = tf_idf(several).fit([texts[i] for i in learnt], [target[i] for i in learnt])
        except (ImportError, ValueError):  # a fold without two labels, or without a word
            return None
        for i, said in zip(held, peer.predict([texts[i] for i in held]), strict=True):
            right.append(bool(list(said) == target[i] if several else said == target[i]))
    return fmean(right)


def tf_idf(several: bool) -> Any:
    """TF-IDF of words and pairs with logistic regression, not fitted yet."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline

    judge = LogisticRegression(C=10.0, max_iter=1000)
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b")
    return make_pipeline(words, OneVsRestClassifier(judge) if several else judge)


def folds(truth: Truth, texts: Sequence[str] = ()) -> list[list[int]]:
    """Which rows are measured together: each label spread evenly, always in the same way.

    Rows that repeat a text are in one fold: a model that learnt one of them knows the others.
    """
    same: dict[object, list[int]] = {}
    for i in sorted(range(len(truth)), key=lambda i: (i * 2_654_435_761) % 2**32):
        same.setdefault(_wording(texts[i]) if texts else i, []).append(i)
    count: Counter[tuple[int, frozenset[str]]] = Counter()
    found: list[list[int]] = [[] for _ in range(FOLDS)]
    for rows in same.values():
        have = truth[rows[0]]
        first = sum(map(ord, "".join(sorted(have))))  # the same in every process
        fold = min(range(FOLDS), key=lambda k: (count[k, have], (k - first) % FOLDS))
        found[fold] += rows
        count.update((fold, truth[i]) for i in rows)
    return [sorted(part) for part in found if part]


def repeated(texts: Sequence[str]) -> int:
    """How many rows have the text of a row before them."""
    return len(texts) - len(set(map(_wording, texts)))


def _wording(text: str) -> str:
    """Texts that differ in capitals, blanks and marks alone have the same; a text of marks is its own."""
    return " ".join(WORD.findall(text.casefold())) or text


# ---------------------------------------- for people


def described(report: dict[str, Any]) -> Iterator[str]:
    for name, found in report["models"].items():
        low, high = found["interval"]
        yield (
            f"{name}: {found['accuracy']:.1%} of {found['rows']:,} rows right (95 %: {low:.1%} "
            f"to {high:.1%}), balanced {found['balanced_accuracy']:.1%}"
        )
        undecided = sum(found["undecided"].values())
        if undecided:
            reasons = ", ".join(f"{number:,} {reason}" for reason, number in found["undecided"].items())
            right = found["decided_accuracy"]
            others = "" if right is None else f"; {right:.1%} of the others are right"
            yield f"  undecided: {undecided / found['rows']:.1%} ({reasons}){others}"
        yield f"  calibration: probabilities are off by {found['calibration']['error']:.1%} on average"
    first = next(iter(report["models"].values()))
    beside = [f"{first['most_frequent_label']:.1%} by always saying the most frequent label"]
    if report.get("linear") is not None:
        beside.append(f"{report['linear']:.1%} by TF-IDF with logistic regression (learnt from other folds)")
    yield f"for comparison: {', '.join(beside)}"
    yield ""
    yield f"{'label':24} {'rows':>7} {'precision':>10} {'recall':>8}"
    for each in first["labels"]:
        yield (
            f"{each['label'][:24]:24} {each['rows']:7,} {percent(each['precision']):>10} "
            f"{percent(each['recall']):>8}"
        )
    for title, field in (("worst errors", "worst"), ("rows that look mislabelled", "mislabelled")):
        if first[field]:
            yield ""
            yield f"{title}:"
            yield from (f"  {_line(row)}" for row in first[field])
    for warning in report.get("warnings", []):
        yield f"warning: {warning}"


def _line(row: dict[str, Any]) -> str:
    led = f" [{', '.join(row['leaders'][:3])}]" if row["leaders"] else ""
    text = row["text"] if len(row["text"]) <= 100 else row["text"][:99] + "…"
    return (
        f"{'|'.join(row['truth']) or '-'}, said {'|'.join(row['said']) or '-'} "
        f"{row['score']:.0%}{led}: {' '.join(text.split())}"
    )


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


# ---------------------------------------- parts


def _by_label(rows: Sequence[Judged], labels: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "label": label,
            "rows": sum(label in row.truth for row in rows),
            "said": sum(label in row.said for row in rows),
            "precision": _share([label in row.truth for row in rows if label in row.said]),
            "recall": _share([label in row.said for row in rows if label in row.truth]),
        }
        for label in labels
    ]


def _calibration(rows: Sequence[Judged], several: bool) -> dict[str, Any]:
    """By tenths of the probability: how many rows, what was said of them on average, and what was right.

    `error` is the mean distance of the last two, weighted by rows.
    """
    pairs = (
        [(p, label in row.truth) for row in rows for label, p in row.probs.items()]
        if several
        else [(max(row.probs.values()), row.right) for row in rows]
    )
    bins = []
    for number in range(BINS):
        inside = [(p, hit) for p, hit in pairs if min(int(p * BINS), BINS - 1) == number]
        if inside:
            said, hits = fmean(p for p, _ in inside), fmean(hit for _, hit in inside)
            bins.append({"rows": len(inside), "said": said, "right": hits})
    error = sum(each["rows"] * abs(each["said"] - each["right"]) for each in bins) / len(pairs)
    return {"error": error, "bins": bins}


def _share(hits: Sequence[bool]) -> float | None:
    return sum(hits) / len(hits) if hits else None


def _shown(row: Judged) -> dict[str, Any]:
    return {
        "text": row.text,
        "truth": sorted(row.truth),
        "said": sorted(row.said),
        "score": max((row.probs[label] for label in row.said), default=1 - max(row.probs.values())),
        "undecided": row.undecided,
        "leaders": list(row.leaders),
    }
