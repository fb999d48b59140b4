"""Text classification in process, on one core, compared with softmax transformers, TF-IDF and fastText.

    python -m benchmarks.texts --data ../shared/data --encoder ENCODER [--quick]

Every subject gets the same texts, on one core and one thread, in turn. Models are fitted to labelled rows of
the training split. Accuracy is by the sign of the logit, on the test split, which no model was trained on.
`make bench` installs fastText; without it, it is left out, with a note.
"""

import argparse
import os
import random
import tempfile
from collections.abc import Callable, Sequence
from itertools import cycle, product

import numpy as np
from numpy.typing import NDArray

from benchmarks.models import SENTIMENT_SMALL, Floats, SoftTransformer, load_minilm, random_twin, served
from benchmarks.record import PRETRAINED, Record, argument_parser, rate
from benchmarks.servers import pinned
from hardmax.models.texts import Explain
from model_export.data.corpora import Row, Rows, read_all
from model_export.measure.scores import balanced_accuracy
from model_export.measure.served import ServedModel

Predictor = Callable[[Sequence[str]], NDArray[np.bool_]]  # which texts are positive
SERVED = ("ours, leaders", "ours, label only")
SMALL = "sentiment-small, leaders"  # no peer of the default model
MINILM, MINILM_INT8 = "all-MiniLM-L6-v2, soft, float32", "all-MiniLM-L6-v2, soft, int8"
TWIN, TWIN_INT8 = "softmax twin of ours, float32", "softmax twin of ours, int8"
MIN_WORDS, MAX_WORDS = 16, 24  # words of a sentence
MAX_FITTED_CHARS = 600  # of a text, for the logistic regression
NAMES = {"sst": "SST-2 (dev)", "yelp": "Yelp sentences", "tweets": "tweets", "amazon": "Amazon reviews",
         "electronics": "Amazon electronics", "mpqa": "MPQA phrases", "reviews": "IMDb reviews"}  # fmt: skip


def served_predictor(model: ServedModel, explain: Explain) -> Predictor:
    return lambda texts: np.array([answer["logit"] > 0 for answer in model.classify(texts, explain)])


def fit_tf_idf(rows: Rows) -> Predictor:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    pipeline = make_pipeline(vectorizer, LogisticRegression(C=30, max_iter=200))
    pipeline.fit([row.text for row in rows], [row.target for row in rows])
    return lambda texts: pipeline.predict_proba(texts)[:, 1] > 0.5


def fit_fast_text(rows: Rows) -> Predictor:
    import fasttext

    def line(text: str) -> str:
        return " ".join(text.lower().split())

    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.writelines(f"__label__{int(row.target or 0)} {line(row.text)}\n" for row in rows)
        file.flush()
        model = fasttext.train_supervised(file.name, wordNgrams=2, epoch=5, lr=0.5, thread=1, verbose=0)
    predict = model.f.predict  # its Python layer fails with numpy 2

    def predictor(texts: Sequence[str]) -> NDArray[np.bool_]:
        results = [predict(line(text) + "\n", 1, 0.0, "strict") for text in texts]
        return np.array([bool(labels) and labels[0][1] == "__label__1" for labels in results])

    return predictor


def fit_regression(embed: Callable[[Sequence[str]], Floats], rows: Rows) -> Predictor:
    """Return a logistic regression on the frozen states of a transformer, as users of encoders fit it."""
    from sklearn.linear_model import LogisticRegression

    rows = sorted(rows, key=lambda row: len(row.text))  # texts of a batch are padded to the longest
    texts = [row.text[:MAX_FITTED_CHARS] for row in rows]
    states = np.concatenate([embed(texts[i : i + 32]) for i in range(0, len(texts), 32)])
    fitted = LogisticRegression(C=10, max_iter=500).fit(states, [row.target == 1 for row in rows])
    return lambda texts: fitted.predict(embed(texts))


def first_channel_predictor(transformer: SoftTransformer) -> Predictor:
    """Return a predictor for transformers with random weights, to measure their speed only."""
    return lambda texts: transformer(texts)[:, 0] > 0


def measure_rate(predictor: Predictor, texts: Sequence[str], batch_size: int, seconds: float) -> float:
    """Return texts per second."""
    batches = cycle([texts[i : i + batch_size] for i in range(0, len(texts), batch_size)])
    return rate(lambda: len(predictor(next(batches))), seconds)


def draw(rows: Rows, max_rows: int | None) -> list[Row]:
    """Draw positive and negative rows, the same ones every time."""
    labelled = [row for row in rows if row.target in (0.0, 1.0) and any(map(str.isalpha, row.text))]
    random.Random(0).shuffle(labelled)
    return labelled[:max_rows]


def make_predictors(
    sets: dict[str, Rows], options: argparse.Namespace, record: Record
) -> dict[str, Predictor]:
    model, small, minilm = served(), served(SENTIMENT_SMALL), load_minilm(options.encoder)
    train = [
        row
        for name in NAMES
        for row in draw([row for row in sets[name] if row.split == "train"], 400 if options.quick else None)
    ]
    random.Random(0).shuffle(train)
    sample = train[: 200 if options.quick else 5_000]
    predictors = {
        SERVED[0]: served_predictor(model, "leaders"),
        SERVED[1]: served_predictor(model, "none"),
        SMALL: served_predictor(small, "leaders"),
    }
    for name, int8 in ((TWIN, False), (TWIN_INT8, True)):
        twin = SoftTransformer(model.encoder.tokenize, random_twin(), int8=int8)
        predictors[name] = first_channel_predictor(twin)
    for name, int8 in ((MINILM, False), (MINILM_INT8, True)):
        transformer = SoftTransformer(small.encoder.tokenize, minilm, int8=int8)
        predictors[name] = fit_regression(transformer, sample)
    predictors["TF-IDF pairs + logistic regression"] = fit_tf_idf(train)
    try:
        predictors["fastText, pairs"] = fit_fast_text(train)
    except ImportError as error:
        record.note(f"fastText was left out: {error}")
    record.note(
        f"TF-IDF and fastText were trained on all {len(train):,} labelled rows of the training split. "
        "all-MiniLM-L6-v2, from whose shape sentiment-small was made, has a logistic regression of "
        f"{len(sample):,} of these rows on its frozen states. The softmax twin of ours, of DistilBERT's "
        "size, has random weights: for its speed alone. Each reads the tokens of the model of its shape."
    )
    return predictors


def main() -> None:
    options = argument_parser(
        __doc__, with_data=True, rounds=(5, "of every subject"), seconds=(1.2, "of each measurement")
    ).parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 0.1
    packages = ("onnxruntime", "numpy", "torch", "scikit-learn", "fasttext-wheel")
    record = Record("texts", "Texts in process", packages, PRETRAINED)
    sets = read_all(options.data)
    test_rows = {name: [row for row in sets[name] if row.split == "test"] for name in NAMES}
    predictors = make_predictors(sets, options, record)
    measure_speed(record, predictors, test_rows, options.rounds, options.seconds)
    measure_accuracy(record, predictors, test_rows, quick=options.quick)
    record.write(quick=options.quick)


def measure_speed(
    record: Record, predictors: dict[str, Predictor], test_rows: dict[str, Rows], rounds: int, seconds: float
) -> None:
    """Measure texts per second: subjects take turns, and the first round warms them up."""
    sentences = [
        row.text
        for name in ("sst", "yelp", "tweets", "electronics")
        for row in draw([r for r in test_rows[name] if MIN_WORDS <= len(r.text.split()) <= MAX_WORDS], 128)
    ]
    random.Random(0).shuffle(sentences)
    long_texts = [row.text for row in draw(test_rows["reviews"], 128)]
    cases = {
        "sentences alone": (sentences, 1), "sentences, 32 at a time": (sentences, 32),
        "whole reviews alone": (long_texts, 1),
    }  # fmt: skip
    samples: dict[tuple[str, str], list[float]] = {}
    with pinned(set(sorted(os.sched_getaffinity(0))[:1])):
        for turn in range(rounds + 1):
            for (case, (texts, batch_size)), (name, predictor) in product(cases.items(), predictors.items()):
                rate = measure_rate(predictor, texts, batch_size, seconds if turn else seconds / 3)
                samples.setdefault((case, name), []).extend([rate] if turn else [])
    speed = record.table(
        "Texts per second on one core", unit="1/s", better="higher", ours=SERVED, floors=[SMALL]
    )
    for (case, name), rates in samples.items():
        speed.add(name, {"texts": case}, rates)
    record.note(
        f"Sentences of {MIN_WORDS} to {MAX_WORDS} words of SST-2, Yelp, tweets and electronics; IMDb reviews "
        f"of {np.mean([len(text.split()) for text in long_texts]):.0f} words on average. Subjects take turns."
    )


def measure_accuracy(
    record: Record, predictors: dict[str, Predictor], test_rows: dict[str, Rows], *, quick: bool
) -> None:
    accuracy = record.table("Balanced accuracy", unit="%", better="higher", ours=SERVED[:1], floors=[SMALL])
    left_out = (TWIN, TWIN_INT8, SERVED[1], MINILM_INT8)  # random weights, or the answers of another subject
    predictors = {name: predictors[name] for name in predictors if name not in left_out}
    for name, title in NAMES.items():
        max_rows = 20 if quick else 300 if name in ("reviews", "amazon") else 1000
        rows = draw(test_rows[name], max_rows)
        truth = np.array([row.target == 1 for row in rows])
        batches = [[row.text for row in rows[i : i + 32]] for i in range(0, len(rows), 32)]
        for subject, predictor in predictors.items():
            predicted = np.concatenate([predictor(batch) for batch in batches])
            case = {"data": f"{title} ({len(rows)})"}
            accuracy.add(subject, case, [100 * balanced_accuracy(predicted, truth)])


if __name__ == "__main__":
    main()
