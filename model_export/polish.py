"""A last touch after training: phrases that turn an opinion round learn from the written lessons alone.

Reviews say "never boring" too rarely for it to be learnt there, and in them "bad at all" stands in bad
company, whatever comes before it. So the model is given the phrases that it lacks, and only the rows of such
phrases are moved: a text that holds none of them is answered exactly as before.

subtle: a phrase may weigh what it must but be no longer than the longest of its words. A longer one would
lead where they did not, and a whole review would follow it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from model_export.lessons import BAD, GOOD, lessons, turned
from model_export.model import HardmaxTransformer, Weights
from model_export.tokens import SPECIAL, Vocabulary

STEPS, RATE = 200, 0.04
SPREAD, WEIGHT = 0.2, 0.3  # where a phrase that the model lacked starts
APART = 0.05  # of its length
JUDGING = {*GOOD, *BAD}
TURNING = {"at", "far"}  # "bad at all", "far from bad": too rare in reviews to have been learnt there


def polish(weights: Weights, vocabulary: Vocabulary) -> tuple[Weights, Vocabulary]:
    """The same model but for the rows of the named phrases, those it lacked among them."""
    before = len(vocabulary)
    weights, vocabulary = _add(weights, vocabulary)
    known, phrases = set(vocabulary.names), set(turned())
    written = [lesson for lesson in lessons() if lesson.phrase is None or lesson.phrase in known]
    bags = vocabulary.bags([lesson.text for lesson in written])
    tokens, counts = map(torch.from_numpy, bags.padded(np.arange(len(bags))))
    named = np.array([name in phrases or _turns(name.split(" ")) for name in vocabulary.names])
    used = np.unique(bags.tokens)
    rows = torch.from_numpy(used[named[used]])
    if not len(rows):
        return weights, vocabulary
    target = torch.tensor([lesson.probability for lesson in written])
    longest = torch.from_numpy(_longest(weights, vocabulary, rows.numpy(), before))
    model = HardmaxTransformer.of(weights)
    optimiser: torch.optim.Optimizer = torch.optim.SparseAdam([model.E, model.u], lr=RATE)
    for step in range(STEPS):
        optimiser.param_groups[0]["lr"] = RATE * (1 - step / STEPS)
        loss = nn.functional.binary_cross_entropy_with_logits(model(tokens, counts), target)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        model.E.grad, model.u.grad = _only(model.E.grad, rows), _only(model.u.grad, rows)
        optimiser.step()
        with torch.no_grad():
            moved = model.E[rows]
            model.E[rows] = moved * (longest / moved.norm(dim=1)).clamp(max=1.0)[:, None]
    polished = model.weights()
    polished.embedding[rows] = _apart(polished.embedding[rows], longest.numpy())
    word_weights = weights.word_weights.copy()  # the others' would change by a rounding
    word_weights[rows] = polished.word_weights[rows]
    return replace(weights, embedding=polished.embedding, word_weights=word_weights), vocabulary


def _add(weights: Weights, vocabulary: Vocabulary) -> tuple[Weights, Vocabulary]:
    """Rows for the phrases of lessons that are no tokens yet although their words are."""
    known = set(vocabulary.names)
    missing = [p for p in turned() if p not in known and known.issuperset(p.split(" "))]
    if not missing:
        return weights, vocabulary
    d = weights.embedding.shape[1]
    rows = np.random.default_rng(0).standard_normal((len(missing), d)) * SPREAD / d**0.5
    wider = replace(
        weights,
        embedding=np.concatenate([weights.embedding, rows.astype(np.float32)]),
        word_weights=np.append(weights.word_weights, np.full(len(missing), WEIGHT, np.float32)),
    )
    return wider, Vocabulary.of([*vocabulary.names[len(SPECIAL) :], *missing])


def _longest(
    weights: Weights, vocabulary: Vocabulary, rows: NDArray[np.int64], before: int
) -> NDArray[np.float32]:
    """How long the row of each phrase may be: as long as its words are, or as training has made it."""
    length = np.linalg.norm(weights.embedding, axis=1)
    place = {name: i for i, name in enumerate(vocabulary.names)}
    words = [[place[word] for word in vocabulary.names[row].split(" ")] for row in rows]
    return np.array(
        [
            max(length[[*some, row]] if row < before else length[some])
            for some, row in zip(words, rows, strict=True)
        ],
        dtype=np.float32,
    )


def _apart(rows: NDArray[np.float32], longest: NDArray[np.float32]) -> NDArray[np.float32]:
    """Nearly the same rows, but no two alike: phrases of one meaning end in one place, and tokens may not."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    noise = np.random.default_rng(1).standard_normal(rows.shape) * APART / rows.shape[1] ** 0.5
    near: NDArray[np.float32] = (rows + length * noise).astype(np.float32)
    too_long = np.linalg.norm(near, axis=1, keepdims=True) / longest[:, None]
    near /= np.maximum(1.0, too_long)
    return near


def _turns(words: list[str]) -> bool:
    """Whether it is a phrase of a judgement and something that may turn it round."""
    return not JUDGING.isdisjoint(words) and not TURNING.isdisjoint(words)


def _only(gradient: torch.Tensor | None, rows: torch.Tensor) -> torch.Tensor:
    """The sparse gradient of these rows."""
    assert gradient is not None
    gradient = gradient.coalesce()
    kept = torch.isin(gradient.indices()[0], rows)
    return torch.sparse_coo_tensor(
        gradient.indices()[:, kept], gradient.values()[kept], gradient.shape, check_invariants=True
    )
