"""Whole reviews in process: the flagship against TF-IDF pairs + logistic regression and fastText.

    python -m benchmarks.texts --data aclImdb_train.tar.gz [--model service/models/sentiment]

Every subject reads the same reviews and gives a label and a probability; ours also gives leaders and
clusters. The peers are fitted first. Subjects take turns, so that a busy machine slows all alike. With two
cores each subject runs in two processes. fastText is installed on first use (environments.py).
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

from benchmarks.environments import fetched
from benchmarks.record import Record
from model_export.corpus import Corpus, read
from service.bundle import read_bundle
from service.runtime import Runtime
from service.sentiment import Explain, Sentiment

Judge = Callable[[Sequence[str]], object]
BUDGET = 16384  # padded tokens of one inference, as the service's default
READ_AT_ONCE = 64


def ours(folder: Path, explain: Explain) -> Judge:
    """The served model: texts of similar length run together."""
    model = Sentiment.load(read_bundle(folder), Runtime("cpu", 1))

    def judge(texts: Sequence[str]) -> int:
        words = []
        for at in range(0, len(texts), READ_AT_ONCE):
            words += model.tokenise_many(texts[at : at + READ_AT_ONCE])
        words.sort(key=lambda text: text.length)
        answers, at = 0, 0
        while at < len(words):
            size = max(1, BUDGET // max(words[min(at + 63, len(words) - 1)].length, 1))
            answers += len(model.classify(words[at : at + min(size, 64)], explain))
            at += min(size, 64)
        return answers

    return judge


def logistic_regression(corpus: Corpus) -> Judge:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    pipeline = make_pipeline(vectorizer, LogisticRegression(C=30, max_iter=200))
    pipeline.fit(corpus.texts, corpus.labels)
    return lambda texts: pipeline.predict_proba(texts)


def fast_text(corpus: Corpus) -> Judge:
    import fasttext

    def line(text: str) -> str:
        return " ".join(text.lower().split())

    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        rows = zip(corpus.texts, corpus.labels.tolist(), strict=True)
        file.writelines(f"__label__{label} {line(text)}\n" for text, label in rows)
        file.flush()
        model = fasttext.train_supervised(file.name, wordNgrams=2, epoch=5, lr=0.5, thread=1, verbose=0)
    predict = model.f.predict  # its Python layer does not know numpy 2
    return lambda texts: [predict(line(text) + "\n", 1, 0.0, "strict") for text in texts]


_judges: dict[str, Judge] = {}  # inherited by the forked processes


def _pinned(name: str, texts: Sequence[str], core: int) -> float:
    os.sched_setaffinity(0, {core})
    begun = time.perf_counter()
    _judges[name](texts)
    return time.perf_counter() - begun


def docs_per_second(name: str, texts: Sequence[str], cores: Sequence[int]) -> float:
    """All texts on every core at once; the slowest core counts."""
    with ProcessPoolExecutor(len(cores)) as pool:  # forked here: judges are shared, affinities are not
        list(pool.map(_pinned, [name] * len(cores), [texts[:32]] * len(cores), cores))
        seconds = list(pool.map(_pinned, [name] * len(cores), [texts] * len(cores), cores))
    return len(texts) * len(cores) / max(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, default=Path("service/models/sentiment"))
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--fit", type=int, default=5000, help="reviews that the peers are fitted on")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()

    refused = fetched("texts")
    corpus = read(arguments.data, unlabelled=False)
    drawn = np.random.default_rng(0).permutation(len(corpus))
    texts = [corpus.texts[i] for i in drawn[: arguments.texts]]
    fitting = corpus.take(np.sort(drawn[: arguments.fit]))
    _judges["ours, leaders"] = ours(arguments.model, "leaders")
    _judges["ours, label only"] = ours(arguments.model, "none")
    _judges["TF-IDF pairs + logistic regression"] = logistic_regression(fitting)
    try:
        _judges["fastText, pairs"] = fast_text(fitting)
    except ImportError as missing:
        refused = refused or str(missing)

    record = Record(
        "texts", "Whole reviews in process", ["onnxruntime", "numpy", "scikit-learn", "fasttext-wheel"]
    )
    table = record.table(
        "reviews",
        "Whole reviews a second",
        unit="docs/s",
        better="higher",
        ours=("ours, leaders", "ours, label only"),
    )
    available = sorted(os.sched_getaffinity(0))
    for cores in (available[:1], available[:2]):
        samples: dict[str, list[float]] = {name: [] for name in _judges}
        for _ in range(arguments.repeats):
            for name, found in samples.items():
                found.append(docs_per_second(name, texts, cores))
        for name, found in samples.items():
            row = table.add(name, {"cores": len(cores)}, found)
            print(
                f"{len(cores)} core(s)  {name:36}{row.median:10.0f} docs/s  ({row.min:.0f} to {row.max:.0f})"
            )
    characters = np.mean([len(text) for text in texts])
    if "fastText, pairs" not in _judges:
        record.note(f"fastText was left out: {refused}")
    record.note(f"{len(texts)} reviews of {characters:.0f} characters on average; the subjects take turns.")
    print(record.write())


if __name__ == "__main__":
    main()
