"""Faithfulness of leaders and of LIME, compared with chance; `read` and `flip`.

    python -m benchmarks.faithfulness --data ../shared/data [--quick]

For each sentence, a method names as many words as our answer has leaders that speak for its label. The words
are removed without moving any other, and the changes of the label are counted. Here a label is the sign of
the logit.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.models import served
from benchmarks.record import PRETRAINED, Case, Record, Table, argument_parser, timed
from benchmarks.texts import draw
from model_export.data.corpora import Rows, read_reviews, read_table
from model_export.measure.scores import sigmoid
from model_export.measure.served import ServedModel
from service.text.counterfactual import find_counterfactual
from service.text.pipeline import ClassificationTask, ClassifyOptions, classify_all
from service.text.tokenizer import TokenizedText

Removals = Sequence[NDArray[np.bool_]]  # one mask of the removed words each
Predict = Callable[[Removals], NDArray[np.float64]]  # the probabilities of a positive logit for one text
Scores = NDArray[np.float64]  # how much each word speaks for the label
Method = Callable[[TokenizedText, bool, np.random.Generator], Sequence[int]]  # words, the strongest first
LIME_SAMPLES = 300  # for each text
MIN_WORDS, MAX_WORDS = 8, 30  # of a sentence


@dataclass(frozen=True)
class Sentence:
    tokenized: TokenizedText
    leaders: Sequence[int]  # indices of the words that speak for the label, the strongest first


class Explained:
    """Our model, and what it says of texts without some words."""

    def __init__(self, model: ServedModel) -> None:
        self.model = model
        self.options = ClassifyOptions((model.head,), "none")

    def predict(self, tokenized: TokenizedText, removals: Removals) -> NDArray[np.float64]:
        """Return the logistic function of the logits: 0.5 for a text without words."""
        spans = list(zip(tokenized.starts.tolist(), tokenized.ends.tolist(), strict=True))
        texts = [
            ClassificationTask(tokenized.text, self.options, [spans[i] for i in np.flatnonzero(removed)])
            for removed in removals
            if not removed.all()
        ]
        answers = iter(classify_all(texts))
        logits = np.array([0.0 if removed.all() else next(answers)[0]["logit"] for removed in removals])  # type: ignore[index]
        return sigmoid(logits)

    def explain(self, text: str) -> Sentence:
        (answer,) = self.model.classify([text])
        sign = 1 if answer["logit"] > 0 else -1
        tokenized = self.model.encoder.tokenize(text)
        leaders = sorted(answer["leaders"], key=lambda leader: -sign * leader["contribution"])
        spans = [leader["spans"][0][0] for leader in leaders if sign * leader["contribution"] > 0]
        return Sentence(tokenized, [int(tokenized.starts.searchsorted(span)) for span in spans])


def explain_with_lime(predict: Predict, n_words: int, rng: np.random.Generator) -> Scores:
    """Return the weights of LIME for a text whose words it knows by their indices."""
    from lime.lime_text import LimeTextExplainer

    def predict_texts(texts: Sequence[str]) -> NDArray[np.float64]:
        removals = [~np.isin(np.arange(n_words), [int(word) for word in text.split()]) for text in texts]
        p = np.concatenate([predict(removals[i : i + 32]) for i in range(0, len(removals), 32)])
        return np.stack((1 - p, p), axis=1)

    explainer = LimeTextExplainer(
        split_expression=str.split, random_state=int(rng.integers(1 << 31)), feature_selection="none"
    )
    text = " ".join(map(str, range(n_words)))
    explanation = explainer.explain_instance(
        text, predict_texts, labels=(1,), num_features=n_words, num_samples=LIME_SAMPLES
    )
    scores = np.zeros(n_words)
    for word, weight in explanation.as_list(label=1):
        scores[int(word)] = weight
    return scores


def methods_of(model: Explained, *, lime: bool) -> dict[str, Method]:
    def run_lime(text: TokenizedText, label: bool, rng: np.random.Generator) -> Sequence[int]:
        scores = explain_with_lime(partial(model.predict, text), len(text), rng)
        return np.argsort(-scores if label else scores).tolist()

    methods: dict[str, Method] = {
        "leaders": lambda text, label, rng: model.explain(text.text).leaders,
        "random words": lambda text, label, rng: rng.permutation(len(text)).tolist(),
    }
    return {**methods, f"LIME, {LIME_SAMPLES} samples": run_lime} if lime else methods


def measure(
    model: Explained, sentences: Sequence[Sentence], changes: Table, times: Table, lime: bool
) -> None:
    """Add the rows of every method that explains this model, on the same sentences."""
    for name, method in methods_of(model, lime=lime).items():
        rng = np.random.default_rng(0)
        changed, times_ms = [], []
        for sentence in sentences:
            removed = np.zeros(len(sentence.tokenized), np.bool_)
            before = float(model.predict(sentence.tokenized, [removed])[0]) > 0.5
            named, seconds = timed(partial(method, sentence.tokenized, before, rng))
            times_ms.append(1000 * seconds)
            removed[named[: max(1, len(sentence.leaders))]] = True
            changed.append(before != (float(model.predict(sentence.tokenized, [removed])[0]) > 0.5))
        case: Case = {"sentences": len(sentences)}
        changes.add(name, case, [100 * float(np.mean(changed))])
        times.add(name, case, times_ms)


def count_flip_words(model: ServedModel, text: str) -> int | None:
    """Return the number of words of the counterfactual, or None where there is none."""
    search = find_counterfactual(ClassificationTask(text, ClassifyOptions((model.head,))))
    answers: Any = None
    try:
        while True:
            answers = [result[0] for result in classify_all(search.send(answers))]  # type: ignore[index]
    except StopIteration as end:
        return len(end.value["without"]) if end.value else None


def measure_answers(record: Record, model: ServedModel, kinds: dict[str, Sequence[str]]) -> None:
    """Add sizes and times of `read` and of `flip`."""
    read = record.table("Receptive field of a leader, as a share of its text", unit="%")
    size = record.table("Words of a counterfactual (`flip`)", unit="words")
    share = record.table("Texts with a counterfactual (`flip`)", unit="%")
    search_times = record.table("Search time of `flip`", unit="ms")
    for kind, texts in kinds.items():
        case: Case = {"texts": kind}
        answers = [model.classify([text])[0] for text in texts]
        searches = [timed(partial(count_flip_words, model, text)) for text in texts]
        found = [n for n, _ in searches if n is not None]
        shares = [
            100 * (1 + len(leader["read"])) / answer["n_words"]
            for answer in answers
            for leader in answer["leaders"]
        ]
        read.add("ours", case, shares)
        size.add("ours", case, found or [0])
        share.add("ours", case, [100 * len(found) / len(texts)])
        search_times.add("ours", case, [1000 * seconds for _, seconds in searches])


def main() -> None:
    parser = argument_parser(
        __doc__, sentences=(200, "that are explained"), lime=(30, "of them that LIME explains too")
    )
    parser.add_argument("--data", type=Path, required=True)
    options = parser.parse_args()
    if options.quick:
        options.sentences, options.lime = 3, 1
    record = Record("faithfulness", "Faithfulness of explanations", ["lime", "numpy"], PRETRAINED)
    sets = {
        "sst": read_table(options.data / "sst2/dev.tsv", "sst"),
        "yelp": read_table(options.data / "yelp/sentences.tsv.gz", "yelp"),
    }
    model = served()
    explained = Explained(model)
    sentences = draw_sentences(explained, sets, options.sentences)
    subjects: Any = {"ours": ("leaders",), "floors": ("random words",)}
    title = "Labels changed by removing the named words"
    changes = record.table(title, unit="%", better="higher", **subjects)
    times = record.table("One explanation", unit="ms", better="lower", **subjects)
    measure(explained, sentences, changes, times, lime=False)
    if find_spec("lime"):
        measure(explained, sentences[: options.lime], changes, times, lime=True)
    else:
        record.note("LIME was left out: it is not installed.")
    reviews = [row for row in read_reviews(options.data / "aclImdb_train.tar.gz") if row.split == "test"]
    kinds: dict[str, Sequence[str]] = {
        "sentences": [sentence.tokenized.text for sentence in sentences],
        "reviews": [row.text for row in draw(reviews, 2 if options.quick else 30)],
    }
    measure_answers(record, model, kinds)
    record.note(
        f"{np.mean([len(s.leaders) for s in sentences]):.1f} words are named on average, of sentences "
        "of SST-2 (dev) and Yelp that the model has not learnt from."
    )
    record.write(quick=options.quick)


def draw_sentences(explained: Explained, sets: dict[str, Rows], n: int) -> list[Sentence]:
    """Return sentences of one chunk and with leaders that no model was trained on."""
    test_rows = [[row for row in sets[name] if name == "sst" or row.split == "test"] for name in sets]
    texts = [row.text for rows in test_rows for row in draw(rows, 4 * n)]
    texts = [text for text in texts if MIN_WORDS <= len(text.split()) <= MAX_WORDS]
    random.Random(0).shuffle(texts)
    sentences = map(explained.explain, texts)
    return [s for s in sentences if s.leaders and len(s.tokenized.chunks()) == 1][:n]


if __name__ == "__main__":
    main()
