"""A small convolutional reader, one of the teacher's views: the only one that sees words in their order.

Word vectors come from which words stand near which (positive pointwise mutual information, factorised), over
all texts, labelled or not; windows of two to four words are then compared with learnt patterns (Kim 2014).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.extmath import randomized_svd
from torch import Tensor, nn
from tqdm import tqdm

from model_export.tokens import Ids, WordIds

KNOWN_WORDS = 30_000  # the most frequent; the others are read as unknown
NEAR = 5  # words
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Reading:
    """How the reader is shaped and trained."""

    epochs: int
    dropout: float = 0.5
    width: int = 200  # of a word vector, and patterns a window length
    windows: tuple[int, ...] = (2, 3, 4)
    longest: int = 400  # words: a longer text is read at its beginning and its end
    batch: int = 50
    rate: float = 1e-3
    seed: int = 0


def word_vectors(words: WordIds, width: int, seed: int = 0) -> Floats:
    """[KNOWN_WORDS, width] with unit variance; the rows of padding and unknown are zero."""
    size = min(KNOWN_WORDS, int(words.ids.max()) + 1)
    text = words.text
    parts = []
    for gap in range(1, NEAR + 1):
        left, right = words.ids[:-gap], words.ids[gap:]
        use = (text[:-gap] == text[gap:]) & (left > 1) & (right > 1) & (left < size) & (right < size)
        pair, count = np.unique(left[use] * size + right[use], return_counts=True)
        value = (count / gap**0.5).astype(np.float32)
        parts.append(sparse.csr_matrix((value, (pair // size, pair % size)), shape=(size, size)))
    near = sum(parts[1:], parts[0])
    both = (near + near.T).tocoo()
    total = np.asarray(near.sum(0) + near.sum(1).T).ravel() + 1.0
    context = total**0.75 / (total**0.75).sum()
    value = np.log(both.data / (total[both.row] * context[both.col]))
    told = value > 0
    ppmi = sparse.csr_matrix((value[told], (both.row[told], both.col[told])), shape=(size, size))
    left_vectors, strength, _ = randomized_svd(ppmi, min(width, size - 1), n_iter=3, random_state=seed)
    vectors = (left_vectors * np.sqrt(strength)).astype(np.float32)
    vectors[:2] = 0.0  # padding and unknown
    return np.asarray(vectors / (vectors.std() + 1e-9), dtype=np.float32)


class Reader(nn.Module):
    """Word vectors -> windows -> strongest and average response -> logit."""

    def __init__(self, vectors: Floats, reading: Reading) -> None:
        super().__init__()
        self.reading = reading
        self.E = nn.Embedding(
            len(vectors), vectors.shape[1], padding_idx=0, _weight=torch.from_numpy(vectors) * 0.5
        )
        self.windows = nn.ModuleList(
            nn.Conv1d(vectors.shape[1], reading.width, size, padding=size - 1) for size in reading.windows
        )
        self.readout = nn.Linear(2 * reading.width * len(reading.windows), 1)

    def forward(self, ids: Tensor) -> Tensor:
        """ids [B, N], 0 = padding -> logit [B]."""
        x = self.E(ids)  # [B, N, width]
        if self.training:
            seen = torch.rand(ids.shape) > 0.1
            x = nn.functional.dropout(x * seen[..., None], 0.2)
        length = (ids > 0).sum(1, keepdim=True).clamp_min(1)
        features: list[Tensor] = []
        for window in self.windows:
            response = torch.relu(window(x.transpose(1, 2))).float()  # [B, width, N + size - 1]
            features += [response.amax(-1), 4.0 * response.sum(-1) / length]
        together = nn.functional.dropout(torch.cat(features, 1), self.reading.dropout, self.training)
        logit: Tensor = self.readout(together)[:, 0]
        return logit


def read(words: WordIds, vectors: Floats, target: Floats, rows: Ids, reading: Reading, title: str) -> Floats:
    """Train on `rows` towards the probabilities `target`; the logit of every text."""
    torch.manual_seed(reading.seed)
    rng = np.random.default_rng(reading.seed)
    reader = Reader(vectors, reading)
    optimiser = torch.optim.Adam(reader.parameters(), lr=reading.rate)
    total = reading.epochs * len(rows)
    with tqdm(total=total, desc=title, unit="text") as bar:
        for _ in range(reading.epochs):
            for some in _batches(words, rows, reading, rng):
                warm, left = 20 * (reading.batch + bar.n) / total, 1.0 - bar.n / total
                optimiser.param_groups[0]["lr"] = reading.rate * min(warm, 1.0) * max(left, 0.03)
                loss = _loss(reader, words, some, target)
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                bar.update(len(some))
                bar.set_postfix(loss=f"{float(loss.detach()):.3f}", refresh=False)
    return _logits(reader, words)


def _loss(reader: Reader, words: WordIds, rows: Ids, target: Floats) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        logit = reader(torch.from_numpy(_padded(words, rows, reader.reading.longest)))
    return nn.functional.binary_cross_entropy_with_logits(logit.float(), torch.from_numpy(target[rows]))


@torch.no_grad()
def _logits(reader: Reader, words: WordIds) -> Floats:
    reader.eval()
    logit = np.zeros(len(words), dtype=np.float32)
    for some in _batches(words, np.arange(len(words)), reader.reading):
        with torch.autocast("cpu", torch.bfloat16):
            logit[some] = (
                reader(torch.from_numpy(_padded(words, some, reader.reading.longest))).float().numpy()
            )
    return logit


def _batches(
    words: WordIds, rows: Ids, reading: Reading, rng: np.random.Generator | None = None
) -> Iterator[Ids]:
    """Texts of similar length together."""
    size, batch = np.minimum(np.diff(words.start), reading.longest), reading.batch
    if rng is not None:
        rows = rng.permutation(rows)
    parts: list[Ids] = []
    for at in range(0, len(rows), 40 * batch):
        near = rows[at : at + 40 * batch]
        near = near[np.argsort(size[near], kind="stable")]
        parts += [near[i : i + batch] for i in range(0, len(near), batch)]
    order = range(len(parts)) if rng is None else rng.permutation(len(parts))
    return (parts[i] for i in order)


def _padded(words: WordIds, rows: Ids, longest: int) -> Ids:
    texts = [words.ids[words.start[i] : words.start[i + 1]] for i in rows]
    half = longest // 2
    texts = [t if len(t) <= longest else np.concatenate([t[:half], t[-(longest - half) :]]) for t in texts]
    ids = np.zeros((len(rows), max(8, *map(len, texts))), dtype=np.int64)
    for line, text in zip(ids, texts, strict=True):
        line[: len(text)] = np.where(text < KNOWN_WORDS, text, 1)
    return ids
