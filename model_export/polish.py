"""A last touch after training: rare phrases that turn an opinion round learn from the written lessons alone.

In reviews "bad at all" stands in bad company, whatever comes before it. Only the rows of such phrases are
moved, so a text that holds none of them is answered exactly as before.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from model_export.lessons import BAD, GOOD, lessons
from model_export.model import HardmaxTransformer, Weights
from model_export.tokens import Vocabulary

STEPS, RATE = 100, 0.01
JUDGING = {*GOOD, *BAD}
TURNING = {"at", "far"}  # "bad at all", "far from bad": too rare in reviews to have been learnt there


def polish(weights: Weights, vocabulary: Vocabulary) -> Weights:
    """The same weights but for the rows of the named phrases."""
    known = set(vocabulary.names)
    written = [lesson for lesson in lessons() if lesson.phrase is None or lesson.phrase in known]
    phrase = np.array([_turns(name.split(" ")) for name in vocabulary.names])
    bags = vocabulary.bags([lesson.text for lesson in written])
    tokens, counts = map(torch.from_numpy, bags.padded(np.arange(len(bags))))
    used = np.unique(bags.tokens)
    named = torch.from_numpy(used[phrase[used]])
    if not len(named):
        return weights
    target = torch.tensor([lesson.probability for lesson in written])
    model = HardmaxTransformer.of(weights)
    optimiser: torch.optim.Optimizer = torch.optim.SparseAdam([model.E, model.u], lr=RATE)
    for _ in range(STEPS):
        loss = nn.functional.binary_cross_entropy_with_logits(model(tokens, counts), target)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        model.E.grad, model.u.grad = _only(model.E.grad, named), _only(model.u.grad, named)
        optimiser.step()
    polished = model.weights()
    return replace(weights, embedding=polished.embedding, word_weights=polished.word_weights)


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
