"""Whole reviews in process: ours against TF-IDF + logistic regression, fastText, VADER and a transformer.

    python -m benchmarks.texts --data aclImdb_train.tar.gz [--model service/models/sentiment]

Every subject reads the same reviews and says which are positive; ours also gives leaders and clusters. The
learning peers are fitted first. None has learnt from these reviews, and ours neither. The transformer has
random weights: it shows a speed and has no accuracy. Subjects take turns, so that a busy machine slows all
alike. With two cores each subject runs in two processes. The peers are installed on first use
(environments.py).
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.environments import fetched
from benchmarks.record import Record
from model_export.data.corpora import Row, read_reviews
from service.answers.texts import raise_first
from service.engine.bundle import HEAD
from service.engine.registry import Registry
from service.engine.runtime import Runtime
from service.lifecycle import domain_loaders
from service.schemas.texts import Explain
from service.settings import Settings
from service.texts.heads import Head
from service.texts.work import How, run_all, texts_of

Judge = Callable[[Sequence[str]], NDArray[np.bool_]]  # which texts are positive
AT_ONCE = 64
MET = 3000  # other reviews that every subject has read before it is timed
TRANSFORMER = "transformer of DistilBERT's size"
FEW = 30  # reviews for the transformer, which reads three a second


def ours(folder: Path, explain: Explain) -> Judge:
    """The served model; its reader is in the folder beside it."""
    registry = Registry([folder.parent], domain_loaders(Runtime("cpu", 1), Settings()))
    registry.load(folder.name)
    head: Head = registry.find(folder.name, HEAD)

    def judge(texts: Sequence[str]) -> NDArray[np.bool_]:
        labels: list[str] = []
        for at in range(0, len(texts), AT_ONCE):
            some = texts_of(texts[at : at + AT_ONCE], How((head,), explain))
            labels += [answers[0]["label"] for answers in raise_first(run_all(some), "input")]
        return np.array(labels) == head.rules.labels[1]

    return judge


def logistic_regression(rows: Sequence[Row]) -> Judge:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    pipeline = make_pipeline(vectorizer, LogisticRegression(C=30, max_iter=200))
    pipeline.fit([row.text for row in rows], [row.target for row in rows])
    return lambda texts: pipeline.predict_proba(texts)[:, 1] > 0.5


def fast_text(rows: Sequence[Row]) -> Judge:
    import fasttext

    def line(text: str) -> str:
        return " ".join(text.lower().split())

    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.writelines(f"__label__{int(row.target or 0)} {line(row.text)}\n" for row in rows)
        file.flush()
        model = fasttext.train_supervised(file.name, wordNgrams=2, epoch=5, lr=0.5, thread=1, verbose=0)
    predict = model.f.predict  # its Python layer does not know numpy 2

    def judge(texts: Sequence[str]) -> NDArray[np.bool_]:
        found = [predict(line(text) + "\n", 1, 0.0, "strict") for text in texts]
        return np.array([label == "__label__1" for ((_, label),) in found])

    return judge


def vader() -> Judge:
    from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

    scores = SentimentIntensityAnalyzer().polarity_scores
    return lambda texts: np.array([scores(text)["compound"] > 0 for text in texts])


def random_transformer() -> Judge:
    from benchmarks.peers.transformer import transformer

    scores = transformer()
    return lambda texts: np.array([np.diff(scores(text))[0] > 0 for text in texts])


_judges: dict[str, Judge] = {}  # inherited by the forked processes


def _pinned(name: str, texts: Sequence[str], core: int) -> float:
    os.sched_setaffinity(0, {core})
    begun = time.perf_counter()
    _judges[name](texts)
    return time.perf_counter() - begun


def docs_per_second(name: str, texts: Sequence[str], cores: Sequence[int]) -> float:
    """All texts on every core at once; the slowest core counts."""
    with ProcessPoolExecutor(len(cores)) as pool:  # forked here: judges are shared, affinities are not
        list(pool.map(_pinned, [name] * len(cores), [texts[: len(texts) // 30]] * len(cores), cores))
        seconds = list(pool.map(_pinned, [name] * len(cores), [texts] * len(cores), cores))
    return len(texts) * len(cores) / max(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, default=Path("service/models/sentiment"))
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--fit", type=int, default=20000, help="reviews that the peers are fitted on")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()

    refused = fetched("texts")
    left_out: dict[str, str] = {}
    rng = np.random.default_rng(0)
    labelled = [row for row in read_reviews(arguments.data) if row.target is not None]
    held = [row for row in labelled if row.split == "report"]
    fitting = [row for row in labelled if row.split == "train"]
    held = [held[i] for i in rng.permutation(len(held))[: arguments.texts]]
    fitting = [fitting[i] for i in rng.permutation(len(fitting))[: arguments.fit]]
    texts = [row.text for row in held]
    _judges["ours, leaders"] = ours(arguments.model, "leaders")
    _judges["ours, label only"] = ours(arguments.model, "none")
    _judges["TF-IDF pairs + logistic regression"] = logistic_regression(fitting)
    for name, make in (("fastText, pairs", lambda: fast_text(fitting)), ("VADER", vader)):
        try:
            _judges[name] = make()
        except ImportError as missing:
            left_out[name] = refused or str(missing)

    _judges[TRANSFORMER] = random_transformer()

    peers = ["onnxruntime", "numpy", "scikit-learn", "fasttext-wheel", "vaderSentiment"]
    record = Record("texts", "Whole reviews in process", peers)
    mine = ("ours, leaders", "ours, label only")
    table = record.table("reviews", "Whole reviews a second", unit="docs/s", better="higher", ours=mine)
    for name, judge in _judges.items():
        if name != TRANSFORMER:  # ours remembers how words are spelt, as a service that has run for a while
            judge([row.text for row in fitting[:MET]])
    available = sorted(os.sched_getaffinity(0))
    for cores in (available[:1], available[:2]):
        samples: dict[str, list[float]] = {name: [] for name in _judges}
        for _ in range(arguments.repeats):
            for name, found in samples.items():
                some = texts[:FEW] if name == TRANSFORMER else texts
                found.append(docs_per_second(name, some, cores))
        for name, found in samples.items():
            row = table.add(name, {"cores": len(cores)}, found)
            print(
                f"{len(cores)} core(s)  {name:36}{row.median:10.0f} docs/s  ({row.min:.0f} to {row.max:.0f})"
            )
    right = record.table("accuracy", "Reviews judged right", unit="share", better="higher", ours=mine)
    truth = np.array([row.target == 1 for row in held])
    for name, judge in _judges.items():
        if name == TRANSFORMER:
            right.add(name, {"reviews": len(held)}, [], "random weights: no accuracy")
            continue
        row = right.add(name, {"reviews": len(held)}, [float((judge(texts) == truth).mean())])
        print(f"{name:36}{row.median:10.3f} judged right")
    characters = np.mean([len(text) for text in texts])
    for name, reason in left_out.items():
        record.note(f"{name} was left out: {reason}")
    record.note(f"{len(texts)} reviews of {characters:.0f} characters on average; the subjects take turns.")
    fewer = np.mean([len(text) for text in texts[:FEW]])
    record.note(
        "The transformer: 6 layers, 768 numbers, 12 heads, 66 million random float32 weights; no tokenizer"
        f" (a word is one piece). It reads {FEW} of the reviews, of {fewer:.0f} characters, one by one."
    )
    print(record.write())


if __name__ == "__main__":
    main()
