"""Texts in process, on one core: ours beside soft transformers, TF-IDF and fastText.

    python -m benchmarks.texts --data ../shared/data --encoder ENCODER [--runs RUNS] [--quick]

Every subject reads the same texts, one core and one thread each, in turn. What learns is fitted to labelled
rows of the split `train`; the fitted encoder, which is ours before it was made hard, is there where RUNS has
what `make models` kept of it. Accuracy is measured on `report`, which nobody has learnt from. Peers are
installed on first use (environments.py).
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.environments import fetched
from benchmarks.minilm import load_minilm
from benchmarks.peers.sentiment import Classifier
from benchmarks.record import PRETRAINED, ROOT, Record, arguments
from benchmarks.servers import pinned
from benchmarks.twins import DISTILBERT, Twin, logistic
from model_export.data.corpora import Row, Rows, read_all
from model_export.encoder.model import Encoder
from model_export.encoder.published import MPNET
from model_export.measure.scores import balanced_accuracy
from model_export.stages import PooledHead

Judge = Callable[[Sequence[str]], NDArray[np.bool_]]  # which texts are positive
OURS = ("ours, leaders", "ours, label only")
TWIN, INT8, LARGE = (
    "published encoder, soft, float32",
    "published encoder, soft, int8",
    "transformer of DistilBERT's size",
)
LARGE_INT8 = f"{LARGE}, int8"
FITTED = "fitted encoder, soft, float32"
LEAST, MOST = 16, 24  # words of a sentence
SHORT_PIECES = 600  # letters of a text that the twin's verdict is fitted to
NAMES = {"sst": "SST-2 (dev)", "yelp": "Yelp sentences", "tweets": "tweets", "amazon": "Amazon reviews",
         "electronics": "Amazon electronics", "mpqa": "MPQA phrases", "reviews": "IMDb reviews"}  # fmt: skip


def ours(model: Classifier, explain: str) -> Judge:
    positive = model.head.rule.labels[1]
    return lambda texts: np.array([each["label"] == positive for each in model.classify(texts, explain)])  # type: ignore[arg-type]


def tf_idf(rows: Rows) -> Judge:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    pipeline = make_pipeline(vectorizer, LogisticRegression(C=30, max_iter=200))
    pipeline.fit([row.text for row in rows], [row.target for row in rows])
    return lambda texts: pipeline.predict_proba(texts)[:, 1] > 0.5


def fast_text(rows: Rows) -> Judge:
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
        return np.array([bool(each) and each[0][1] == "__label__1" for each in found])

    return judge


def soft(twin: Twin, rows: Rows) -> Judge:
    """A twin with a logistic regression on its frozen states."""
    texts = [row.text[:SHORT_PIECES] for row in rows]
    states = np.concatenate([twin(texts[i : i + 32]) for i in range(0, len(texts), 32)])
    fitted = logistic(states, np.array([row.target == 1 for row in rows]))
    return lambda texts: fitted.predict(twin(texts))


def fitted(kept: Path, model: Classifier) -> Judge:
    """Ours after its first stage, with the verdict that it then had."""
    found = torch.load(kept)
    reader = Encoder(replace(MPNET, vocabulary=len(found["encoder"]["words.weight"])))
    pooled = PooledHead(reader.config.width)
    reader.load_state_dict(found["encoder"])
    pooled.load_state_dict(found["pooled"])
    twin, vector = Twin(model.reader.tokenize, reader), pooled.linear.weight.detach().numpy()[0]
    return lambda texts: twin(texts) @ vector + pooled.linear.bias.item() > 0


def rate(judge: Judge, texts: Sequence[str], together: int, seconds: float) -> float:
    """Texts a second."""
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        at = done % len(texts)
        done += len(judge(texts[at : at + together]))
    return done / (time.perf_counter() - began)


def drawn(rows: Rows, most: int | None) -> list[Row]:
    """Some of the rows that have a side, the same every time."""
    some = [row for row in rows if row.target in (0.0, 1.0) and any(map(str.isalpha, row.text))]
    random.Random(0).shuffle(some)
    return some[:most]


def judges_of(
    sets: dict[str, Rows], encoder: Path, runs: Path, record: Record, refused: str, quick: bool
) -> dict[str, Judge]:
    model, weights = Classifier(), load_minilm(encoder)
    train = [
        row
        for name in NAMES
        for row in drawn([row for row in sets[name] if row.split == "train"], 400 if quick else None)
    ]
    random.Random(0).shuffle(train)
    few = train[: 200 if quick else 5_000]
    judges = {name: ours(model, explain) for name, explain in zip(OURS, ("leaders", "none"), strict=True)}
    judges[TWIN] = soft(Twin(model.reader.tokenize, weights), few)
    judges[INT8] = soft(Twin(model.reader.tokenize, weights, int8=True), few)
    for name, int8 in ((LARGE, False), (LARGE_INT8, True)):
        large = Twin(model.reader.tokenize, Encoder(DISTILBERT), int8=int8)
        judges[name] = lambda texts, large=large: large(texts)[:, 0] > 0
    judges["TF-IDF pairs + logistic regression"] = tf_idf(train)
    try:
        judges["fastText, pairs"] = fast_text(train)
    except ImportError as missing:
        record.note(f"fastText was left out: {refused or missing}")
    if kept := max(runs.glob("finetune-*.pt"), key=lambda file: file.stat().st_mtime, default=None):
        judges[FITTED] = fitted(kept, model)
        record.note(
            f"The fitted encoder is ours before it was made hard, soft: {kept.name} of `make models`."
        )
    else:
        record.note("The fitted encoder was left out: no weights of the soft step are kept here.")
    record.note(
        f"TF-IDF and fastText learnt from all {len(train):,} labelled rows of the split train. "
        "The published encoder is all-MiniLM-L6-v2, with a logistic regression of "
        f"{len(few):,} of these rows on its frozen states. The transformer of DistilBERT's size has random "
        "weights: a speed and no accuracy. All three read our pieces and passages."
    )
    return judges


def main() -> None:
    parser = arguments(
        __doc__, learns=True, rounds=(5, "of every subject"), seconds=(1.2, "of each measurement")
    )
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="where `make models` kept its steps")
    asked = parser.parse_args()
    if asked.quick:
        asked.rounds, asked.seconds = 1, 0.1
    refused = fetched("texts")  # first, so that the record finds their versions
    packages = ("onnxruntime", "numpy", "torch", "scikit-learn", "fasttext-wheel")
    record = Record("texts", "Texts in process", packages, PRETRAINED)
    sets = read_all(asked.data)
    held = {name: [row for row in sets[name] if row.split == "test"] for name in NAMES}
    judges = judges_of(sets, asked.encoder, asked.runs, record, refused, asked.quick)
    sentences = [
        row.text
        for name in ("sst", "yelp", "tweets", "electronics")
        for row in drawn([row for row in held[name] if LEAST <= len(row.text.split()) <= MOST], 128)
    ]
    random.Random(0).shuffle(sentences)
    whole = [row.text for row in drawn(held["reviews"], 128)]
    cases = {
        "sentences alone": (sentences, 1), "sentences, 32 at a time": (sentences, 32),
        "whole reviews alone": (whole, 1),
    }  # fmt: skip
    samples: dict[tuple[str, str], list[float]] = {}
    with pinned(set(sorted(os.sched_getaffinity(0))[:1])):
        for turn in range(asked.rounds + 1):  # the first one warms up
            for case, (texts, together) in cases.items():
                for name, judge in judges.items():
                    if name == FITTED:
                        continue  # as fast as the published one
                    found = rate(judge, texts, together, asked.seconds if turn else asked.seconds / 3)
                    if turn:
                        samples.setdefault((case, name), []).append(found)
    speed = record.table("speed", "Texts a second on one core", unit="1/s", better="higher", ours=OURS)
    for (case, name), found in samples.items():
        speed.add(name, {"texts": case}, found)
    right = record.table("accuracy", "Balanced accuracy", unit="%", better="higher", ours=OURS[:1])
    for name, title in NAMES.items():
        most = 20 if asked.quick else 300 if name in ("reviews", "amazon") else 1000
        rows = drawn(held[name], most)
        truth = np.array([row.target == 1 for row in rows])
        for subject, judge in judges.items():
            if subject in (LARGE, LARGE_INT8, OURS[1], INT8):
                continue
            told = np.concatenate(
                [judge([row.text for row in rows[i : i + 32]]) for i in range(0, len(rows), 32)]
            )
            right.add(subject, {"data": f"{title} ({len(rows)})"}, [100 * balanced_accuracy(told, truth)])
    record.note(
        f"Sentences of {LEAST} to {MOST} words of SST-2, Yelp, tweets and electronics; IMDb reviews of "
        f"{np.mean([len(text.split()) for text in whole]):.0f} words on average. Subjects take turns."
    )
    record.keep(quick=asked.quick)


if __name__ == "__main__":
    main()
