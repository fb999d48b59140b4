"""Faithfulness of leaders, LIME and integrated gradients, compared with chance; `read` and `flip`.

    python -m benchmarks.faithfulness --data ../shared/data --encoder ENCODER [--quick]

For each sentence, a method names as many words as our answer has leaders that speak for its label. The words
are removed without moving any other, and the changes of the label are counted. Every method explains the
measured model: leaders explain ours, LIME both, integrated gradients all-MiniLM-L6-v2. Here a label is the
sign of the logit, for both models.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.environments import install_packages
from benchmarks.minilm import load_minilm
from benchmarks.peers.sentiment import SENTIMENT_SMALL, Classifier
from benchmarks.record import PRETRAINED, Case, Record, Table, argument_parser
from benchmarks.soft_transformers import Pooled, SoftTransformer, fit_logistic
from benchmarks.texts import draw
from model_export.data.corpora import Rows, read_reviews, read_table
from model_export.encoder.attention import PAD
from model_export.encoder.model import Encoder
from service.text.counterfactual import find_counterfactual
from service.text.pipeline import ClassificationTask, ClassifyOptions, classify_all
from service.text.tokenizer import TokenizedText

Removals = Sequence[NDArray[np.bool_]]  # one mask of the removed words each
Predict = Callable[[Removals], NDArray[np.float64]]  # the probabilities of a positive logit for one text
Scores = NDArray[np.float64]  # how much each word speaks for the label
LIME_SAMPLES = 300  # for each text
GRADIENT_STEPS = 32
MIN_WORDS, MAX_WORDS = 8, 30  # of a sentence


@dataclass(frozen=True)
class Sentence:
    tokenized: TokenizedText
    leaders: Sequence[int]  # indices of the words that speak for the label, the strongest first


class ServedModel:
    name = "ours"

    def __init__(self, model: Classifier) -> None:
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
        return 1 / (1 + np.exp(-logits))

    def explain(self, text: str) -> Sentence:
        (answer,) = self.model.classify([text])
        sign = 1 if answer["logit"] > 0 else -1
        tokenized = self.model.encoder.tokenize(text)
        leaders = sorted(answer["leaders"], key=lambda leader: -sign * leader["contribution"])
        spans = [leader["spans"][0][0] for leader in leaders if sign * leader["contribution"] > 0]
        return Sentence(tokenized, [int(tokenized.starts.searchsorted(span)) for span in spans])


class SoftModel:
    name = "all-MiniLM-L6-v2, soft"

    def __init__(self, model: Classifier, weights: Encoder, rows: Sequence[Any]) -> None:
        transformer = SoftTransformer(model.encoder.tokenize, weights)
        states = np.concatenate(
            [transformer([row.text for row in rows[i : i + 32]]) for i in range(0, len(rows), 32)]
        )
        fitted = fit_logistic(states, np.array([row.target == 1 for row in rows]))
        self.tokenize = model.encoder.tokenize  # the words are those of ours, the tokens are not
        self.weights, self.pooled = weights, Pooled(weights).eval()
        self.vector = torch.from_numpy(fitted.coef_[0].astype(np.float32))
        self.bias = float(fitted.intercept_[0])

    @torch.no_grad()
    def predict(self, tokenized: TokenizedText, removals: Removals) -> NDArray[np.float64]:
        tokenized = self.tokenize(tokenized.text)
        sizes = np.diff(tokenized.bounds)
        x = torch.from_numpy(
            np.stack([np.where(np.repeat(removed, sizes), PAD, tokenized.token_ids) for removed in removals])
        )
        logit = self.pooled(x) @ self.vector + self.bias
        return torch.sigmoid(logit).nan_to_num(0.5).double().numpy()

    def gradients(self, tokenized: TokenizedText) -> Scores:
        """Return integrated gradients of the logit, from padding to the text, by words."""
        tokenized = self.tokenize(tokenized.text)
        x = torch.from_numpy(tokenized.token_ids)[None]
        table = self.weights.words
        embedded, padding = table(x).detach(), table(torch.zeros_like(x)).detach()
        steps = ((torch.arange(GRADIENT_STEPS) + 0.5) / GRADIENT_STEPS)[:, None, None]
        path = (padding + steps * (embedded - padding)).requires_grad_()
        hook = table.register_forward_hook(lambda *_: path)
        try:
            logit = self.pooled(x.expand(GRADIENT_STEPS, -1)) @ self.vector
        finally:
            hook.remove()
        (gradient,) = torch.autograd.grad(logit.sum(), path)
        attributions = (gradient.mean(0) * (embedded - padding)[0]).sum(-1).double().numpy()
        return np.asarray(np.add.reduceat(attributions, tokenized.bounds[:-1]))


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


def measure(
    model: ServedModel | SoftModel, sentences: Sequence[Sentence], changes: Table, times: Table, lime: bool
) -> None:
    """Add the rows of every method that explains this model, on the same sentences."""
    methods = [*(["leaders"] if isinstance(model, ServedModel) else ["integrated gradients"]), "random words"]
    for method in [*methods, *([f"LIME, {LIME_SAMPLES} samples"] if lime else [])]:
        rng = np.random.default_rng(0)
        changed, times_ms = [], []
        for sentence in sentences:
            tokenized, n_named = sentence.tokenized, max(1, len(sentence.leaders))
            removed = np.zeros(len(tokenized), np.bool_)
            before = float(model.predict(tokenized, [removed])[0])
            start_s = time.perf_counter()
            if method == "leaders":
                assert isinstance(model, ServedModel)
                named = list(model.explain(tokenized.text).leaders)
            elif method == "random words":
                named = rng.permutation(len(tokenized))[:n_named].tolist()
            else:
                scores = (
                    model.gradients(tokenized)
                    if isinstance(model, SoftModel) and method == "integrated gradients"
                    else explain_with_lime(partial(model.predict, tokenized), len(tokenized), rng)
                )
                named = np.argsort(-scores if before > 0.5 else scores)[:n_named].tolist()
            times_ms.append(1000 * (time.perf_counter() - start_s))
            removed[named] = True
            after = float(model.predict(tokenized, [removed])[0])
            changed.append((before > 0.5) != (after > 0.5))
        case: Case = {"model": model.name, "sentences": len(sentences)}
        changes.add(method, case, [100 * float(np.mean(changed))])
        times.add(method, case, times_ms)


def count_flip_words(model: Classifier, text: str) -> int | None:
    """Return the number of words of the counterfactual, or None where there is none."""
    search = find_counterfactual(ClassificationTask(text, ClassifyOptions((model.head,))))
    answers: Any = None
    try:
        while True:
            answers = [result[0] for result in classify_all(search.send(answers))]  # type: ignore[index]
    except StopIteration as end:
        return len(end.value["without"]) if end.value else None


def measure_answers(record: Record, model: Classifier, kinds: dict[str, Sequence[str]]) -> None:
    """Add sizes and times of answers, of `read` and of `flip`."""
    read = record.table("Receptive field of a leader, as a share of its text", unit="%")
    times = record.table("One answer, a single text", unit="ms")
    size = record.table("Words of a counterfactual (`flip`)", unit="words")
    share = record.table("Texts with a counterfactual (`flip`)", unit="%")
    search_times = record.table("Search time of `flip`", unit="ms")
    for kind, texts in kinds.items():
        shares, sizes, search_ms = [], [], []
        samples: dict[str, list[float]] = {"none": [], "leaders": [], "full": []}
        for text in texts:
            for explain, times_ms in samples.items():
                start_s = time.perf_counter()
                (answer,) = model.classify([text], explain)  # type: ignore[arg-type]
                times_ms.append(1000 * (time.perf_counter() - start_s))
            shares += [100 * (1 + len(leader["read"])) / answer["n_words"] for leader in answer["leaders"]]
            start_s = time.perf_counter()
            sizes.append(count_flip_words(model, text))
            search_ms.append(1000 * (time.perf_counter() - start_s))
        case: Case = {"texts": kind}
        read.add("ours", case, shares)
        for explain, times_ms in samples.items():
            times.add(explain, case, times_ms)
        size.add("ours", case, [n for n in sizes if n] or [0])
        share.add("ours", case, [100 * float(np.mean([n is not None for n in sizes]))])
        search_times.add("ours", case, search_ms)


def main() -> None:
    options = argument_parser(
        __doc__,
        with_data=True,
        sentences=(200, "that are explained"),
        lime=(30, "of them that LIME explains too"),
    ).parse_args()
    if options.quick:
        options.sentences, options.lime = 3, 1
    install_error = install_packages("texts")  # before the record, which reads their versions
    record = Record("faithfulness", "Faithfulness of explanations", ["lime", "numpy", "torch"], PRETRAINED)
    sets = {
        "sst": read_table(options.data / "sst2/dev.tsv", "sst"),
        "yelp": read_table(options.data / "yelp/sentences.tsv.gz", "yelp"),
    }
    model = Classifier()
    served = ServedModel(model)
    fitting = draw([row for row in sets["yelp"] if row.split == "train"], 100 if options.quick else 3000)
    soft = SoftModel(Classifier(SENTIMENT_SMALL), load_minilm(options.encoder), fitting)
    sentences = draw_sentences(served, sets, options.sentences)
    subjects: Any = {"ours": ("leaders",), "floors": ("random words",)}
    title = "Labels changed by removing the named words"
    changes = record.table(title, unit="%", better="higher", **subjects)
    times = record.table("One explanation", unit="ms", better="lower", **subjects)
    if install_error:
        record.note(f"LIME was left out: {install_error}")
    for explained in (served, soft):
        measure(explained, sentences, changes, times, lime=False)
        if not install_error:
            measure(explained, sentences[: options.lime], changes, times, lime=True)
    reviews = [row for row in read_reviews(options.data / "aclImdb_train.tar.gz") if row.split == "test"]
    kinds: dict[str, Sequence[str]] = {
        "sentences": [sentence.tokenized.text for sentence in sentences],
        "reviews": [row.text for row in draw(reviews, 2 if options.quick else 30)],
    }
    measure_answers(record, model, kinds)
    record.note(
        f"{np.mean([len(s.leaders) for s in sentences]):.1f} words are named on average, of sentences "
        "of SST-2 (dev) and Yelp that no model has learnt from. Each label is that of the model itself, so "
        "the figures of the two models are not of the same labels."
    )
    record.write(quick=options.quick)


def draw_sentences(served: ServedModel, sets: dict[str, Rows], n: int) -> list[Sentence]:
    """Return sentences of one chunk and with leaders that no model was trained on."""
    test_rows = [[row for row in sets[name] if name == "sst" or row.split == "test"] for name in sets]
    texts = [row.text for rows in test_rows for row in draw(rows, 4 * n)]
    texts = [text for text in texts if MIN_WORDS <= len(text.split()) <= MAX_WORDS]
    random.Random(0).shuffle(texts)
    sentences = map(served.explain, texts)
    return [s for s in sentences if s.leaders and len(s.tokenized.chunks()) == 1][:n]


if __name__ == "__main__":
    main()
