"""Text classification in process, on one core, compared with softmax transformers, TF-IDF and fastText.

    python -m benchmarks.texts --data ../shared/data --encoder ENCODER [--runs RUNS] [--quick]

Every subject gets the same texts, on one core and one thread, in turn. Models are fitted to labelled rows of
the training split. Accuracy is by the sign of the logit, on the test split, which no model was trained on.
all-mpnet-base-v2 is included if RUNS has it (`make teacher`), and the fine-tuned encoder, the pretrained one
before its heads became hard, if RUNS has the checkpoint of `make models`. Peers are installed on first use
(environments.py).
"""

from __future__ import annotations

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

from benchmarks.environments import fetched
from benchmarks.minilm import load_minilm
from benchmarks.peers.sentiment import SENTIMENT_SMALL, Classifier
from benchmarks.record import PRETRAINED, ROOT, Record, arguments
from benchmarks.servers import pinned
from benchmarks.soft_transformers import DISTILBERT, Floats, SoftTransformer, logistic
from hardmax.models.texts import Explain
from model_export.data.corpora import Row, Rows, read_all
from model_export.encoder.model import Encoder
from model_export.encoder.published import MPNET
from model_export.measure.scores import balanced_accuracy
from model_export.teacher.encoder import PADDING, Teacher
from model_export.training_model import PooledHead
from service.errors import NotFound

Predictor = Callable[[Sequence[str]], NDArray[np.bool_]]  # which texts are positive
OURS = ("ours, leaders", "ours, label only")
SMALL = "sentiment-small, leaders"  # no peer of the default model
MINILM, MINILM_INT8 = "all-MiniLM-L6-v2, soft, float32", "all-MiniLM-L6-v2, soft, int8"
MPNET_BASE = "all-mpnet-base-v2, soft, float32"
TWIN, TWIN_INT8 = "softmax twin of ours, float32", "softmax twin of ours, int8"
FINETUNED = "fine-tuned encoder, soft, float32"
MIN_WORDS, MAX_WORDS = 16, 24  # words of a sentence
MAX_FITTED_CHARS = 600  # of a text, for the logistic regression
MAX_MPNET_TOKENS = 384  # of a text, as published
NAMES = {"sst": "SST-2 (dev)", "yelp": "Yelp sentences", "tweets": "tweets", "amazon": "Amazon reviews",
         "electronics": "Amazon electronics", "mpqa": "MPQA phrases", "reviews": "IMDb reviews"}  # fmt: skip


def ours(model: Classifier, explain: Explain) -> Predictor:
    return lambda texts: np.array([answer["logit"] > 0 for answer in model.classify(texts, explain)])


def tf_idf(rows: Rows) -> Predictor:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    pipeline = make_pipeline(vectorizer, LogisticRegression(C=30, max_iter=200))
    pipeline.fit([row.text for row in rows], [row.target for row in rows])
    return lambda texts: pipeline.predict_proba(texts)[:, 1] > 0.5


def fast_text(rows: Rows) -> Predictor:
    import fasttext

    def line(text: str) -> str:
        return " ".join(text.lower().split())

    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.writelines(f"__label__{int(row.target or 0)} {line(row.text)}\n" for row in rows)
        file.flush()
        model = fasttext.train_supervised(file.name, wordNgrams=2, epoch=5, lr=0.5, thread=1, verbose=0)
    predict = model.f.predict  # its Python layer does not know numpy 2

    def predictor(texts: Sequence[str]) -> NDArray[np.bool_]:
        found = [predict(line(text) + "\n", 1, 0.0, "strict") for text in texts]
        return np.array([bool(each) and each[0][1] == "__label__1" for each in found])

    return predictor


def with_logistic_regression(embed: Callable[[Sequence[str]], Floats], rows: Rows) -> Predictor:
    """Return a logistic regression on the frozen states of a transformer."""
    rows = sorted(rows, key=lambda row: len(row.text))  # texts of a batch are padded to the longest
    texts = [row.text[:MAX_FITTED_CHARS] for row in rows]
    states = np.concatenate([embed(texts[i : i + 32]) for i in range(0, len(texts), 32)])
    fitted = logistic(states, np.array([row.target == 1 for row in rows]))
    return lambda texts: fitted.predict(embed(texts))


def mpnet(folder: Path) -> Callable[[Sequence[str]], Floats]:
    """Return the mean hidden states of all twelve layers of all-mpnet-base-v2."""
    teacher = Teacher(folder)

    @torch.no_grad()
    def embed(texts: Sequence[str]) -> Floats:
        token_ids = [torch.from_numpy(ids) for ids in teacher.tokenize(texts, MAX_MPNET_TOKENS)]
        states: Floats = teacher.embed(pad_sequence(token_ids, True, PADDING)).numpy()
        return states

    return embed


def by_first_channel(transformer: SoftTransformer) -> Predictor:
    """Return a predictor of random weights, for its speed alone."""
    return lambda texts: transformer(texts)[:, 0] > 0


def finetuned(checkpoint: Path, model: Classifier) -> Predictor:
    """Return the encoder after the first stage of its training, with the head of that stage."""
    state = torch.load(checkpoint)
    encoder = Encoder(replace(MPNET, vocabulary=len(state["encoder.words.weight"])))
    pooled = PooledHead(encoder.config.width)
    for part, module in {"encoder.": encoder, "pooled.": pooled}.items():
        module.load_state_dict({k.removeprefix(part): v for k, v in state.items() if k.startswith(part)})
    transformer = SoftTransformer(model.encoder.tokenize, encoder)
    vector = pooled.linear.weight.detach().numpy()[0]
    return lambda texts: transformer(texts) @ vector + pooled.linear.bias.item() > 0


def rate(predictor: Predictor, texts: Sequence[str], together: int, seconds: float) -> float:
    """Return texts per second."""
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        at = done % len(texts)
        done += len(predictor(texts[at : at + together]))
    return done / (time.perf_counter() - began)


def drawn(rows: Rows, most: int | None) -> list[Row]:
    """Some of the rows that have a side, the same every time."""
    some = [row for row in rows if row.target in (0.0, 1.0) and any(map(str.isalpha, row.text))]
    random.Random(0).shuffle(some)
    return some[:most]


def predictors_of(
    sets: dict[str, Rows], encoder: Path, runs: Path, record: Record, refused: str, quick: bool
) -> dict[str, Predictor]:
    model, small, minilm = Classifier(), Classifier(SENTIMENT_SMALL), load_minilm(encoder)
    train = [
        row
        for name in NAMES
        for row in drawn([row for row in sets[name] if row.split == "train"], 400 if quick else None)
    ]
    random.Random(0).shuffle(train)
    few = train[: 200 if quick else 5_000]
    predictors = {
        OURS[0]: ours(model, "leaders"),
        OURS[1]: ours(model, "none"),
        SMALL: ours(small, "leaders"),
    }
    for name, int8 in ((TWIN, False), (TWIN_INT8, True)):
        twin = SoftTransformer(model.encoder.tokenize, Encoder(DISTILBERT), int8=int8)
        predictors[name] = by_first_channel(twin)
    for name, int8 in ((MINILM, False), (MINILM_INT8, True)):
        transformer = SoftTransformer(small.encoder.tokenize, minilm, int8=int8)
        predictors[name] = with_logistic_regression(transformer, few)
    try:
        predictors[MPNET_BASE] = with_logistic_regression(mpnet(runs / "teacher/all-mpnet-base-v2"), few)
    except NotFound as missing:
        record.note(f"all-mpnet-base-v2 was left out: {missing}")
    predictors["TF-IDF pairs + logistic regression"] = tf_idf(train)
    try:
        predictors["fastText, pairs"] = fast_text(train)
    except ImportError as missing:
        record.note(f"fastText was left out: {refused or missing}")
    if checkpoint := max(runs.glob("finetune-*.pt"), key=lambda file: file.stat().st_mtime, default=None):
        predictors[FINETUNED] = finetuned(checkpoint, model)
        record.note(
            "The fine-tuned encoder is the pretrained one before its heads became hard: "
            f"{checkpoint.name} of `make models`."
        )
    else:
        record.note("The fine-tuned encoder was left out: there is no checkpoint of the first stage.")
    record.note(
        f"TF-IDF and fastText were trained on all {len(train):,} labelled rows of the training split. "
        "all-MiniLM-L6-v2, from whose shape sentiment-small was made, and all-mpnet-base-v2, of whose twelve "
        f"layers ours has six, have a logistic regression of {len(few):,} of these rows on their frozen "
        "states. The softmax twin of ours, of DistilBERT's size, has random weights: for its speed alone. "
        "all-mpnet-base-v2 reads its own tokens, the others those of the model of their shape."
    )
    return predictors


def main() -> None:
    parser = arguments(
        __doc__, learns=True, rounds=(5, "of every subject"), seconds=(1.2, "of each measurement")
    )
    parser.add_argument(
        "--runs", type=Path, default=ROOT / "runs", help="folder with the stages of `make models`"
    )
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 0.1
    refused = fetched("texts")  # first, so that the record finds their versions
    packages = ("onnxruntime", "numpy", "torch", "scikit-learn", "fasttext-wheel")
    record = Record("texts", "Texts in process", packages, PRETRAINED)
    sets = read_all(options.data)
    held = {name: [row for row in sets[name] if row.split == "test"] for name in NAMES}
    predictors = predictors_of(sets, options.encoder, options.runs, record, refused, options.quick)
    measure_speed(record, predictors, held, options.rounds, options.seconds)
    measure_accuracy(record, predictors, held, quick=options.quick)
    record.write(quick=options.quick)


def measure_speed(
    record: Record, predictors: dict[str, Predictor], held: dict[str, Rows], rounds: int, seconds: float
) -> None:
    """Measure texts per second; all subjects take a turn in each round, and the first round warms up."""
    sentences = [
        row.text
        for name in ("sst", "yelp", "tweets", "electronics")
        for row in drawn([row for row in held[name] if MIN_WORDS <= len(row.text.split()) <= MAX_WORDS], 128)
    ]
    random.Random(0).shuffle(sentences)
    whole = [row.text for row in drawn(held["reviews"], 128)]
    cases = {
        "sentences alone": (sentences, 1), "sentences, 32 at a time": (sentences, 32),
        "whole reviews alone": (whole, 1),
    }  # fmt: skip
    samples: dict[tuple[str, str], list[float]] = {}
    timed = {name: each for name, each in predictors.items() if name not in (FINETUNED, MPNET_BASE)}
    with pinned(set(sorted(os.sched_getaffinity(0))[:1])):
        for turn in range(rounds + 1):
            for (case, (texts, together)), (name, predictor) in product(cases.items(), timed.items()):
                found = rate(predictor, texts, together, seconds if turn else seconds / 3)
                samples.setdefault((case, name), []).extend([found] if turn else [])
    speed = record.table(
        "Texts per second on one core", unit="1/s", better="higher", ours=OURS, floors=[SMALL]
    )
    for (case, name), rates in samples.items():
        speed.add(name, {"texts": case}, rates)
    record.note(
        f"Sentences of {MIN_WORDS} to {MAX_WORDS} words of SST-2, Yelp, tweets and electronics; IMDb reviews "
        f"of {np.mean([len(text.split()) for text in whole]):.0f} words on average. Subjects take turns."
    )


def measure_accuracy(
    record: Record, predictors: dict[str, Predictor], held: dict[str, Rows], *, quick: bool
) -> None:
    right = record.table("Balanced accuracy", unit="%", better="higher", ours=OURS[:1], floors=[SMALL])
    left_out = (TWIN, TWIN_INT8, OURS[1], MINILM_INT8)  # random weights, or the answers of another subject
    predictors = {name: each for name, each in predictors.items() if name not in left_out}
    for name, title in NAMES.items():
        most = 20 if quick else 300 if name in ("reviews", "amazon") else 1000
        rows = drawn(held[name], most)
        truth = np.array([row.target == 1 for row in rows])
        batches = [[row.text for row in rows[i : i + 32]] for i in range(0, len(rows), 32)]
        for subject, predictor in predictors.items():
            predicted = np.concatenate([predictor(batch) for batch in batches])
            case = {"data": f"{title} ({len(rows)})"}
            right.add(subject, case, [100 * balanced_accuracy(predicted, truth)])


if __name__ == "__main__":
    main()
