"""The sentiment experiment of arXiv 2407.01602: word vectors, hardmax attention, mean of the words, a line.

The encoder is a table of vectors in R^d. K attention layers with A = I and one alpha move the words of a
review; the logit is linear in their mean. As in the paper it is trained with softmax attention at temperature
0.001, Adam, batches of 64 reviews of at most 128 words, gradients clipped at 5, and used with hardmax.

    python examples/paper_sentiment.py --data aclImdb_train.tar.gz --dimensions 2 4 8 16

With the defaults (2 layers, 8 epochs at a learning rate of 0.01) a dimension takes two minutes on a core;
`--layers 8 --epochs 101 --learning-rate 0.001` are the paper's own. Other differences: words are cleaned but
not lemmatised, and the archive's labelled reviews are divided 70 : 30, as the paper divides all 50,000.
Needs torch (`pip install '.[export]'`).
"""

import argparse
import random
import re
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, pstdev

import torch
from torch import Tensor, nn
from torch.nn import functional

THEIRS = {  # dimension: best test accuracy, its epoch, the last epoch's
    2: (79.14, 100, 79.14), 4: (82.28, 46, 80.27), 8: (85.05, 38, 81.34), 16: (88.21, 20, 84.57),
}  # fmt: skip
THEIR_LEADERS = (  # d = 2, over the confident and correct of 15,000 test reviews
    "great 1247, worst 677, waste 670, love 561, awful 532, money 457, year 414, amazing 391, boring 380, "
    "perfect 335, left 308, enjoyed 293, people 273, found 250, poor 244"
)
FUNCTION_WORDS = frozenset(
    "a about after all also an and any are as at be because been before but by can could did do does "
    "for from had has have he her him his how i if in into is it its just me more most my no not of "
    "on one only or other our out she so some such than that the their them then there these they "
    "this to too up very was we were what when where which while who will with would you your".split()
)
WORDS = 128
BATCH = 64
CONFIDENT = 0.9
INITIAL_SCALE = 0.3  # of the vectors' entries: with wide ones nearly every word leads itself


@dataclass(frozen=True)
class Reviews:
    """Word numbers of each review, 0 where there is none, and whether it is positive."""

    words: Tensor  # [N, 128]
    positive: Tensor  # [N]

    def batches(self, order: list[int]) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, len(order), BATCH):
            rows = torch.tensor(order[start : start + BATCH])
            yield self.words[rows], self.positive[rows]


class HardmaxClassifier(nn.Module):
    """z = E[words]; K layers z_i <- z_i + gamma (mean over C_i - z_i); logit = <v, mean of z> + b."""

    def __init__(self, n_words: int, dimension: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_words, dimension, padding_idx=0)
        nn.init.normal_(self.embedding.weight, std=INITIAL_SCALE)
        self.log_alpha = nn.Parameter(torch.zeros(()))
        self.readout = nn.Linear(dimension, 1)
        self.layers = layers

    @property
    def alpha(self) -> float:
        return float(self.log_alpha.detach().exp())

    def forward(self, words: Tensor, temperature: float) -> Tensor:
        z, present = self.embedding(words), words > 0  # [B, n, d], [B, n]
        for _ in range(self.layers):
            z = self.move(z, attention(z, present, temperature))
        share = present / present.sum(dim=1, keepdim=True).clamp(min=1)
        return self.readout((z * share[:, :, None]).sum(dim=1)).squeeze(1)

    def move(self, z: Tensor, weights: Tensor) -> Tensor:
        gamma = self.log_alpha.exp() / (1 + self.log_alpha.exp())
        return z + gamma * (weights @ z - z)

    @torch.no_grad()
    def leaders(self, words: Tensor) -> list[dict[int, int]]:
        """The leaders of each review, and the first layer at which each attends to itself alone."""
        z, present = self.embedding(words), words > 0
        since: list[dict[int, int]] = [{} for _ in words]
        same_word = words[:, :, None] == words[:, None, :]
        for layer in range(self.layers):
            weights = attention(z, present, 0)
            alone = present & (((weights > 0) == (same_word & present[:, None, :])).all(dim=2))
            for row, column in alone.nonzero().tolist():
                since[row].setdefault(int(words[row, column]), layer)
            z = self.move(z, weights)
        return since


def attention(z: Tensor, present: Tensor, temperature: float) -> Tensor:
    """Softmax weights; at temperature 0 equal weights on the argmax set C_i."""
    scores = (z @ z.transpose(1, 2)).masked_fill(~present[:, None, :], -torch.inf)
    if temperature:
        return functional.softmax(scores / temperature, dim=2)
    members = scores == scores.amax(dim=2, keepdim=True)
    return members / members.sum(dim=2, keepdim=True)


def read_archive(path: Path) -> list[tuple[str, bool]]:
    """The labelled reviews of the archive in its official layout, in the order of their names."""
    reviews = {}
    with tarfile.open(path) as archive:
        for member in archive:
            match = re.search(r"(?:train|test)/(pos|neg)/[^/]+\.txt$", member.name)
            if match:
                file = archive.extractfile(member)
                assert file is not None
                reviews[member.name] = (file.read().decode(), match[1] == "pos")
    return [reviews[name] for name in sorted(reviews)]


def clean(text: str) -> list[str]:
    """Lower-case words without tags, punctuation, numbers and function words."""
    found = re.findall(r"[a-z]+(?:'[a-z]+)?", re.sub(r"<[^>]*>", " ", text.lower()))
    return [word for word in found if word not in FUNCTION_WORDS]


def number_words(texts: list[list[str]], vocabulary: dict[str, int], labels: list[bool]) -> Reviews:
    words = torch.zeros(len(texts), WORDS, dtype=torch.long)
    for row, text in enumerate(texts):
        numbers = [vocabulary[word] for word in text if word in vocabulary][:WORDS]
        words[row, : len(numbers)] = torch.tensor(numbers, dtype=torch.long)
    return Reviews(words, torch.tensor(labels, dtype=torch.float32))


def split(reviews: list[tuple[str, bool]], seed: int, n_words: int) -> tuple[Reviews, Reviews, list[str]]:
    """70 % to train, 30 % to test, and the training part's most frequent words."""
    random.Random(seed).shuffle(reviews)
    texts, labels = [clean(text) for text, _ in reviews], [positive for _, positive in reviews]
    n = len(reviews) * 7 // 10
    frequency = Counter(word for text in texts[:n] for word in text)
    names = ["", *(word for word, _ in frequency.most_common(n_words))]
    vocabulary = {word: number for number, word in enumerate(names) if number}
    return (
        number_words(texts[:n], vocabulary, labels[:n]),
        number_words(texts[n:], vocabulary, labels[n:]),
        names,
    )


def train_epoch(
    model: HardmaxClassifier, reviews: Reviews, optimizer: torch.optim.Optimizer, options: argparse.Namespace
) -> None:
    order = list(range(len(reviews.positive)))
    random.shuffle(order)
    model.train()
    for words, positive in reviews.batches(order):
        loss = functional.binary_cross_entropy_with_logits(model(words, options.temperature), positive)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5)
        optimizer.step()


@torch.no_grad()
def predict(model: HardmaxClassifier, reviews: Reviews) -> Tensor:
    """Probabilities of a positive review, with hardmax."""
    model.eval()
    every = list(range(len(reviews.positive)))
    return torch.cat([model(words, 0).sigmoid() for words, _ in reviews.batches(every)])


def accuracy(model: HardmaxClassifier, reviews: Reviews) -> float:
    return 100 * float(((predict(model, reviews) > 0.5) == (reviews.positive > 0.5)).float().mean())


@dataclass(frozen=True)
class Outcome:
    """One dimension's run."""

    model: HardmaxClassifier
    history: list[float]  # test accuracy in percent after each epoch, with hardmax
    leaders_per_review: list[int]
    initial_share: float  # of the leaders, from layer 0
    leader_words: list[tuple[str, int]]  # of confident and correct test reviews


def run(
    options: argparse.Namespace, dimension: int, train: Reviews, test: Reviews, names: list[str]
) -> Outcome:
    torch.manual_seed(options.seed)
    random.seed(options.seed)
    model = HardmaxClassifier(len(names), dimension, options.layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
    history = []
    for epoch in range(options.epochs):
        start = time.perf_counter()
        train_epoch(model, train, optimizer, options)
        history.append(accuracy(model, test))
        seconds = time.perf_counter() - start
        print(f"  d = {dimension}, epoch {epoch + 1}: {history[-1]:.2f} % ({seconds:.0f} s)", flush=True)
    return count_leaders(model, history, test, names)


def count_leaders(model: HardmaxClassifier, history: list[float], test: Reviews, names: list[str]) -> Outcome:
    probability = predict(model, test)
    confident = torch.maximum(probability, 1 - probability) > CONFIDENT
    sure_and_right = (confident & ((probability > 0.5) == (test.positive > 0.5))).tolist()
    every = list(range(len(test.positive)))
    since = [row for words, _ in test.batches(every) for row in model.leaders(words)]
    words = Counter(
        names[word] for row, counted in zip(since, sure_and_right, strict=True) if counted for word in row
    )
    layers = [layer for row in since for layer in row.values()]
    initial = layers.count(0) / max(1, len(layers))
    return Outcome(model, history, [len(row) for row in since], initial, words.most_common(15))


def report(outcomes: dict[int, Outcome]) -> Iterator[str]:
    """Markdown tables, with the paper's figures next to ours."""
    yield "| d | authors, best epoch | authors, last epoch | ours, last epoch | ours, best epoch | alpha |"
    yield "|---|---|---|---|---|---|"
    for d, found in outcomes.items():
        best, epoch, last = THEIRS.get(d, ("-", "-", "-"))
        top = max(found.history)
        ours = f"{found.history[-1]:.2f} | {top:.2f} (epoch {found.history.index(top) + 1})"
        yield f"| {d} | {best} (epoch {epoch}) | {last} | {ours} | {found.model.alpha:.2f} |"
    yield ""
    yield "| d | leaders per review: average | deviation | minimum | maximum | leaders from layer 0, % |"
    yield "|---|---|---|---|---|---|"
    for d, found in outcomes.items():
        counts = found.leaders_per_review
        spread = f"{mean(counts):.2f} | {pstdev(counts):.2f} | {min(counts)} | {max(counts)}"
        yield f"| {d} | {spread} | {100 * found.initial_share:.1f} |"
    yield ""
    yield f"Leaders of confident and correct test reviews. Authors, d = 2: {THEIR_LEADERS}."
    for d, found in outcomes.items():
        yield f"Ours, d = {d}: {', '.join(f'{word} {count}' for word, count in found.leader_words)}."


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The sentiment experiment of arXiv 2407.01602.")
    parser.add_argument("--data", type=Path, required=True, help="aclImdb_v1.tar.gz, or its training half")
    parser.add_argument("--dimensions", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--layers", type=int, default=2, help="the paper has 8")
    parser.add_argument("--epochs", type=int, default=8, help="the paper has 101")
    parser.add_argument("--temperature", type=float, default=0.001, help="of softmax in training; 0: hardmax")
    parser.add_argument("--learning-rate", type=float, default=0.01, help="the paper has 0.001")
    parser.add_argument("--words", type=int, default=20_000, help="words with a vector, the most frequent")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> dict[int, Outcome]:
    options = parse(arguments)
    train, test, names = split(read_archive(options.data), options.seed, options.words)
    print(
        f"{len(train.positive)} reviews to train, {len(test.positive)} to test, {len(names) - 1} words",
        flush=True,
    )
    outcomes = {d: run(options, d, train, test, names) for d in options.dimensions}
    print("\n".join(report(outcomes)))
    return outcomes


if __name__ == "__main__":
    main()
