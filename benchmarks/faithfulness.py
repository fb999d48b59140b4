"""Do the words that are named decide? Leaders against LIME, gradients and chance; `read`, `flip`.

    python -m benchmarks.faithfulness --data ../shared/data --encoder ENCODER [--quick]

Of each sentence a method names as many words as our answer has leaders that speak for its label. They are
left out in place: no other word moves. Counted is how often the label changes. Every method is asked about
the model that it explains: the leaders are ours, LIME explains both models, integrated gradients
all-MiniLM-L6-v2. A label is the sign of the logit here, for both models.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.environments import fetched
from benchmarks.minilm import load_minilm
from benchmarks.peers.sentiment import SENTIMENT_SMALL, Classifier
from benchmarks.record import PRETRAINED, Case, Record, Table, arguments
from benchmarks.soft_transformers import Pooled, SoftTransformer, logistic
from benchmarks.texts import drawn
from model_export.data.corpora import Rows, read_reviews, read_table
from model_export.encoder.attention import PAD
from model_export.encoder.model import Encoder
from service.text.counterfactual import find_counterfactual
from service.text.pipeline import ClassificationTask, ClassifyOptions, classify_all
from service.text.tokenizer import TokenizedText

Positive = Callable[[Sequence[NDArray[np.bool_]]], NDArray[np.float64]]  # of a text, for words that are gone
Scores = NDArray[np.float64]  # how much each word speaks for the label
SAMPLES = 300  # of LIME, a text
STEPS = 32  # of integrated gradients
WORDS = 8, 30  # of a sentence


@dataclass(frozen=True)
class Sentence:
    tokenized: TokenizedText
    leaders: Sequence[int]  # words: the leaders that speak for the label, the strongest first


class Ours:
    name = "ours"

    def __init__(self, model: Classifier) -> None:
        self.model = model
        self.options = ClassifyOptions((model.head,), "none")

    def positive(self, tokenized: TokenizedText, gone: Sequence[NDArray[np.bool_]]) -> NDArray[np.float64]:
        """The logistic function of the logit; a text of which nothing is left has the bias's."""
        spans = list(zip(tokenized.starts.tolist(), tokenized.ends.tolist(), strict=True))
        texts = [
            ClassificationTask(tokenized.text, self.options, [spans[i] for i in np.flatnonzero(each)])
            for each in gone
            if not each.all()
        ]
        found = iter(classify_all(texts))
        logits = np.array([0.0 if each.all() else next(found)[0]["logit"] for each in gone])  # type: ignore[index]
        return 1 / (1 + np.exp(-logits))

    def sentence(self, text: str) -> Sentence:
        (answer,) = self.model.classify([text])
        sign = 1 if answer["logit"] > 0 else -1
        tokenized = self.model.encoder.tokenize(text)
        strong = sorted(answer["leaders"], key=lambda leader: -sign * leader["contribution"])
        spans = [leader["spans"][0][0] for leader in strong if sign * leader["contribution"] > 0]
        return Sentence(tokenized, [int(tokenized.starts.searchsorted(span)) for span in spans])


class Soft:
    name = "all-MiniLM-L6-v2, soft"

    def __init__(self, model: Classifier, weights: Encoder, rows: Sequence[Any]) -> None:
        transformer = SoftTransformer(model.encoder.tokenize, weights)
        states = np.concatenate(
            [transformer([row.text for row in rows[i : i + 32]]) for i in range(0, len(rows), 32)]
        )
        fitted = logistic(states, np.array([row.target == 1 for row in rows]))
        self.tokenize = model.encoder.tokenize  # the words are those of ours, the tokens are not
        self.weights, self.pooled = weights, Pooled(weights).eval()
        self.vector = torch.from_numpy(fitted.coef_[0].astype(np.float32))
        self.bias = float(fitted.intercept_[0])

    @torch.no_grad()
    def positive(self, tokenized: TokenizedText, gone: Sequence[NDArray[np.bool_]]) -> NDArray[np.float64]:
        tokenized = self.tokenize(tokenized.text)
        sizes = np.diff(tokenized.bounds)
        x = torch.from_numpy(
            np.stack([np.where(np.repeat(each, sizes), PAD, tokenized.token_ids) for each in gone])
        )
        logit = self.pooled(x) @ self.vector + self.bias
        return torch.sigmoid(logit).nan_to_num(0.5).double().numpy()

    def gradients(self, tokenized: TokenizedText) -> Scores:
        """Integrated gradients of the logit from padding's vector, a sum over the tokens of each word."""
        tokenized = self.tokenize(tokenized.text)
        x = torch.from_numpy(tokenized.token_ids)[None]
        table = self.weights.words
        end, begin = table(x).detach(), table(torch.zeros_like(x)).detach()
        steps = ((torch.arange(STEPS) + 0.5) / STEPS)[:, None, None]
        path = (begin + steps * (end - begin)).requires_grad_()
        hook = table.register_forward_hook(lambda *_: path)
        try:
            logit = self.pooled(x.expand(STEPS, -1)) @ self.vector
        finally:
            hook.remove()
        (slope,) = torch.autograd.grad(logit.sum(), path)
        parts = (slope.mean(0) * (end - begin)[0]).sum(-1).double().numpy()
        return np.asarray(np.add.reduceat(parts, tokenized.bounds[:-1]))


def by_lime(positive: Positive, words: int, rng: np.random.Generator) -> Scores:
    """Its package, told of a text of numbered words."""
    from lime.lime_text import LimeTextExplainer

    def judge(texts: Sequence[str]) -> NDArray[np.float64]:
        gone = [~np.isin(np.arange(words), [int(word) for word in text.split()]) for text in texts]
        p = np.concatenate([positive(gone[i : i + 32]) for i in range(0, len(gone), 32)])
        return np.stack((1 - p, p), axis=1)

    explainer = LimeTextExplainer(
        split_expression=str.split, random_state=int(rng.integers(1 << 31)), feature_selection="none"
    )
    found = explainer.explain_instance(
        " ".join(map(str, range(words))), judge, labels=(1,), num_features=words, num_samples=SAMPLES
    )
    scores = np.zeros(words)
    for word, weight in found.as_list(label=1):
        scores[int(word)] = weight
    return scores


def compare(
    changed: Table, took: Table, name: str, outcomes: Sequence[tuple[bool, float]], case: Case
) -> None:
    flips, seconds = zip(*outcomes, strict=True)
    changed.add(name, case, [100 * float(np.mean(flips))])
    took.add(name, case, [1000 * each for each in seconds])


def measure(
    model: Ours | Soft, sentences: Sequence[Sentence], changed: Table, took: Table, lime: bool
) -> None:
    """Every method that explains this model, on the same sentences."""
    methods = [*(["leaders"] if isinstance(model, Ours) else ["integrated gradients"]), "random words"]
    for method in [*methods, *([f"LIME, {SAMPLES} samples"] if lime else [])]:
        rng = np.random.default_rng(0)
        outcomes = []
        for each in sentences:
            n, most = len(each.tokenized), max(1, len(each.leaders))
            before = float(model.positive(each.tokenized, [np.zeros(n, np.bool_)])[0])
            began = time.perf_counter()
            if method == "leaders":
                assert isinstance(model, Ours)
                named = list(model.sentence(each.tokenized.text).leaders)
            elif method == "random words":
                named = rng.permutation(n)[:most].tolist()
            else:
                scores = (
                    model.gradients(each.tokenized)
                    if isinstance(model, Soft) and method == "integrated gradients"
                    else by_lime(lambda gone, each=each: model.positive(each.tokenized, gone), n, rng)  # type: ignore[misc]
                )
                named = np.argsort(-scores if before > 0.5 else scores)[:most].tolist()
            seconds = time.perf_counter() - began
            gone = np.zeros(n, np.bool_)
            gone[named] = True
            after = float(model.positive(each.tokenized, [gone])[0])
            outcomes.append(((before > 0.5) != (after > 0.5), seconds))
        compare(changed, took, method, outcomes, {"model": model.name, "sentences": len(sentences)})


def flip(model: Classifier, text: str) -> tuple[int | None, int]:
    """The words of the set found, or None, and how many texts the model ran for it."""
    search, answers, asked = (
        find_counterfactual(ClassificationTask(text, ClassifyOptions((model.head,)))),
        None,
        0,
    )
    try:
        while True:
            texts = search.send(answers)  # type: ignore[arg-type]
            asked += len(texts)
            answers = [each[0] for each in classify_all(texts)]  # type: ignore[index]
    except StopIteration as end:
        return (len(end.value["without"]) if end.value else None), asked


def measure_answers(record: Record, model: Classifier, kinds: dict[str, Sequence[str]]) -> None:
    """`read` and `flip`: sizes and times."""
    read = record.table("Receptive field of a leader, as a share of its text", unit="%")
    whole = record.table("One answer, a single text", unit="ms")
    size = record.table("Words of a counterfactual (`flip`)", unit="words")
    found = record.table("Texts with a counterfactual (`flip`)", unit="%")
    took = record.table("Search time of `flip`", unit="ms")
    for kind, texts in kinds.items():
        shares, sets, seconds = [], [], []
        times: dict[str, list[float]] = {"none": [], "leaders": [], "full": []}
        for text in texts:
            for explain, samples in times.items():
                began = time.perf_counter()
                (answer,) = model.classify([text], explain)  # type: ignore[arg-type]
                samples.append(1000 * (time.perf_counter() - began))
            shares += [100 * (1 + len(leader["read"])) / answer["n_words"] for leader in answer["leaders"]]
            began = time.perf_counter()
            sets.append(flip(model, text)[0])
            seconds.append(1000 * (time.perf_counter() - began))
        case: Case = {"texts": kind}
        read.add("ours", case, shares)
        for explain, samples in times.items():
            whole.add(explain, case, samples)
        size.add("ours", case, [each for each in sets if each] or [0])
        found.add("ours", case, [100 * float(np.mean([each is not None for each in sets]))])
        took.add("ours", case, seconds)


def main() -> None:
    options = arguments(
        __doc__,
        learns=True,
        sentences=(200, "that are explained"),
        lime=(30, "of them that LIME explains too"),
    ).parse_args()
    if options.quick:
        options.sentences, options.lime = 3, 1
    refused = fetched("texts")  # first, so that the record finds their versions
    record = Record("faithfulness", "Faithfulness of explanations", ["lime", "numpy", "torch"], PRETRAINED)
    sets = {
        "sst": read_table(options.data / "sst2/dev.tsv", "sst"),
        "yelp": read_table(options.data / "yelp/sentences.tsv.gz", "yelp"),
    }
    model = Classifier()
    ours = Ours(model)
    fitting = drawn([row for row in sets["yelp"] if row.split == "train"], 100 if options.quick else 3000)
    soft = Soft(Classifier(SENTIMENT_SMALL), load_minilm(options.encoder), fitting)
    sentences = sentences_of(ours, sets, options.sentences)
    sides: Any = {"ours": ("leaders",), "floors": ("random words",)}
    title = "Labels changed by removing the named words"
    changed = record.table(title, unit="%", better="higher", **sides)
    took = record.table("One explanation", unit="ms", better="lower", **sides)
    if refused:
        record.note(f"LIME was left out: {refused}")
    for each in (ours, soft):
        measure(each, sentences, changed, took, lime=False)
        if not refused:
            measure(each, sentences[: options.lime], changed, took, lime=True)
    reviews = [row for row in read_reviews(options.data / "aclImdb_train.tar.gz") if row.split == "test"]
    whole = [row.text for row in drawn(reviews, 2 if options.quick else 30)]
    measure_answers(
        record, model, {"sentences": [each.tokenized.text for each in sentences], "reviews": whole}
    )
    record.note(
        f"{np.mean([len(each.leaders) for each in sentences]):.1f} words are named on average, of sentences "
        "of SST-2 (dev) and Yelp that no model has learnt from. Each label is that of the model itself, so "
        "the figures of the two models are not of the same labels."
    )
    record.write(quick=options.quick)


def sentences_of(ours: Ours, sets: dict[str, Rows], most: int) -> list[Sentence]:
    """Return sentences that no model was trained on, of one chunk and with leaders."""
    held = [[row for row in sets[name] if name == "sst" or row.split == "test"] for name in sets]
    texts = [row.text for rows in held for row in drawn(rows, 4 * most)]
    texts = [text for text in texts if WORDS[0] <= len(text.split()) <= WORDS[1]]
    random.Random(0).shuffle(texts)
    every = map(ours.sentence, texts)
    return [each for each in every if each.leaders and len(each.tokenized.chunks()) == 1][:most]


if __name__ == "__main__":
    main()
