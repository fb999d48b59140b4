"""Text classification in process, on one core, compared with softmax transformers, TF-IDF and fastText.

    python -m benchmarks.texts --data ../shared/data --encoder ENCODER [--finetuned CHECKPOINT] [--quick]

Every subject gets the same texts, on one core and one thread, in turn. Models are fitted to labelled rows of
the training split. Accuracy is by the sign of the logit, on the test split, which no model was trained on.
all-mpnet-base-v2 is included where it is (`make teacher`). `--finetuned` adds the soft encoder of a
checkpoint, whose later stages made the pretrained one. Peers are installed on first use (environments.py).
"""

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from benchmarks.environments import install_packages
from benchmarks.minilm import load_minilm
from benchmarks.peers.sentiment import SENTIMENT_SMALL, Classifier
from benchmarks.record import PRETRAINED, ROOT, Record, argument_parser
from benchmarks.servers import pinned
from benchmarks.soft_transformers import DISTILBERT, Floats, SoftTransformer, fit_logistic
from hardmax.models.texts import Explain
from model_export.data.corpora import Row, Rows, read_all
from model_export.encoder.model import Encoder
from model_export.encoder.published import MPNET
from model_export.measure.scores import balanced_accuracy
from model_export.teacher.encoder import PADDING, Teacher
from model_export.training_model import PooledHead
from service.errors import NotFound

Predictor = Callable[[Sequence[str]], NDArray[np.bool_]]  # which texts are positive
SERVED = ("ours, leaders", "ours, label only")
SMALL = "sentiment-small, leaders"  # no peer of the default model
MINILM, MINILM_INT8 = "all-MiniLM-L6-v2, soft, float32", "all-MiniLM-L6-v2, soft, int8"
MPNET_BASE = "all-mpnet-base-v2, soft, float32"
TWIN, TWIN_INT8 = "softmax twin of ours, float32", "softmax twin of ours, int8"
FINETUNED = "fine-tuned encoder, soft, float32"
TEACHER = ROOT / "runs/teacher/all-mpnet-base-v2"
MIN_WORDS, MAX_WORDS = 16, 24  # words of a sentence
MAX_FITTED_CHARS = 600  # of a text, for the logistic regression
MAX_MPNET_TOKENS = 384  # of a text, as published
NAMES = {"sst": "SST-2 (dev)", "yelp": "Yelp sentences", "tweets": "tweets", "amazon": "Amazon reviews",
         "electronics": "Amazon electronics", "mpqa": "MPQA phrases", "reviews": "IMDb reviews"}  # fmt: skip


def served_predictor(model: Classifier, explain: Explain) -> Predictor:
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
    """Return a logistic regression on the frozen states of a transformer."""
    rows = sorted(rows, key=lambda row: len(row.text))  # texts of a batch are padded to the longest
    texts = [row.text[:MAX_FITTED_CHARS] for row in rows]
    states = np.concatenate([embed(texts[i : i + 32]) for i in range(0, len(texts), 32)])
    fitted = fit_logistic(states, np.array([row.target == 1 for row in rows]))
    return lambda texts: fitted.predict(embed(texts))


def load_mpnet(folder: Path) -> Callable[[Sequence[str]], Floats]:
    """Return the mean hidden states of all twelve layers of all-mpnet-base-v2."""
    teacher = Teacher(folder)

    @torch.no_grad()
    def embed(texts: Sequence[str]) -> Floats:
        token_ids = [torch.from_numpy(ids) for ids in teacher.tokenize(texts, MAX_MPNET_TOKENS)]
        states: Floats = teacher.embed(pad_sequence(token_ids, True, PADDING)).numpy()
        return states

    return embed


def first_channel_predictor(transformer: SoftTransformer) -> Predictor:
    """Return a predictor for transformers with random weights, to measure their speed only."""
    return lambda texts: transformer(texts)[:, 0] > 0


def load_finetuned(checkpoint: Path, model: Classifier) -> Predictor:
    """Return the encoder after the first stage of its training, with the head of that stage."""
    state = torch.load(checkpoint)
    encoder = Encoder(replace(MPNET, vocabulary=len(state["encoder.words.weight"])))
    pooled = PooledHead(encoder.config.width)
    for part, module in {"encoder.": encoder, "pooled.": pooled}.items():
        module.load_state_dict({k.removeprefix(part): v for k, v in state.items() if k.startswith(part)})
    transformer = SoftTransformer(model.encoder.tokenize, encoder)
    vector = pooled.linear.weight.detach().numpy()[0]
    return lambda texts: transformer(texts) @ vector + pooled.linear.bias.item() > 0


def measure_rate(predictor: Predictor, texts: Sequence[str], batch_size: int, seconds: float) -> float:
    """Return texts per second."""
    n_texts, start_s = 0, time.perf_counter()
    while time.perf_counter() - start_s < seconds:
        begin = n_texts % len(texts)
        n_texts += len(predictor(texts[begin : begin + batch_size]))
    return n_texts / (time.perf_counter() - start_s)


def draw(rows: Rows, max_rows: int | None) -> list[Row]:
    """Draw positive and negative rows, the same ones every time."""
    labelled = [row for row in rows if row.target in (0.0, 1.0) and any(map(str.isalpha, row.text))]
    random.Random(0).shuffle(labelled)
    return labelled[:max_rows]


def make_predictors(
    sets: dict[str, Rows], options: argparse.Namespace, record: Record, install_error: str
) -> dict[str, Predictor]:
    model, small, minilm = Classifier(), Classifier(SENTIMENT_SMALL), load_minilm(options.encoder)
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
        twin = SoftTransformer(model.encoder.tokenize, Encoder(DISTILBERT), int8=int8)
        predictors[name] = first_channel_predictor(twin)
    for name, int8 in ((MINILM, False), (MINILM_INT8, True)):
        transformer = SoftTransformer(small.encoder.tokenize, minilm, int8=int8)
        predictors[name] = fit_regression(transformer, sample)
    try:
        predictors[MPNET_BASE] = fit_regression(load_mpnet(options.teacher), sample)
    except NotFound as error:
        record.note(f"all-mpnet-base-v2 was left out: {error}")
    predictors["TF-IDF pairs + logistic regression"] = fit_tf_idf(train)
    try:
        predictors["fastText, pairs"] = fit_fast_text(train)
    except ImportError as error:
        record.note(f"fastText was left out: {install_error or error}")
    if options.finetuned:
        predictors[FINETUNED] = load_finetuned(options.finetuned, model)
    record.note(
        f"TF-IDF and fastText were trained on all {len(train):,} labelled rows of the training split. "
        "all-MiniLM-L6-v2, from whose shape sentiment-small was made, and all-mpnet-base-v2, of whose twelve "
        f"layers ours has six, have a logistic regression of {len(sample):,} of these rows on their frozen "
        "states. The softmax twin of ours, of DistilBERT's size, has random weights: for its speed alone. "
        "all-mpnet-base-v2 reads its own tokens, the others those of the model of their shape."
    )
    return predictors


def main() -> None:
    parser = argument_parser(
        __doc__, with_data=True, rounds=(5, "of every subject"), seconds=(1.2, "of each measurement")
    )
    parser.add_argument("--teacher", type=Path, default=TEACHER, help="all-mpnet-base-v2, as published")
    parser.add_argument("--finetuned", type=Path, help="checkpoint of the first stage of `make models`")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 0.1
    install_error = install_packages("texts")  # before the record, which reads their versions
    packages = ("onnxruntime", "numpy", "torch", "scikit-learn", "fasttext-wheel")
    record = Record("texts", "Texts in process", packages, PRETRAINED)
    sets = read_all(options.data)
    test_rows = {name: [row for row in sets[name] if row.split == "test"] for name in NAMES}
    predictors = make_predictors(sets, options, record, install_error)
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
    timed = {name: predictors[name] for name in predictors if name not in (FINETUNED, MPNET_BASE)}
    with pinned(set(sorted(os.sched_getaffinity(0))[:1])):
        for turn in range(rounds + 1):
            for (case, (texts, batch_size)), (name, predictor) in product(cases.items(), timed.items()):
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
