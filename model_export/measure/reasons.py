"""Why the torch model says what it says: leaders, the evidence of their clusters, the leaders alone.

For measuring; the service reads the same from its graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from model_export.sentiment.model import HardmaxTransformer, attend
from model_export.train.material import Ints, Texts

AROUND = 2  # words on either side of a leader that are kept with it
SHARE = 0.9


@dataclass(frozen=True)
class Reason:
    """Of one text: `leader[i]` is whom place i follows at last, `evidence[j]` what the cluster of j adds."""

    logit: float
    leader: Ints
    evidence: NDArray[np.float64]

    @property
    def heaviest(self) -> Ints:
        """Leaders, heaviest cluster first."""
        leaders = np.unique(self.leader)
        return leaders[np.argsort(-np.abs(self.evidence[leaders]), kind="stable")]

    def carriers(self, share: float = SHARE) -> Ints:
        """The leaders of the fewest clusters that carry `share` of all evidence."""
        order = self.heaviest
        carried = np.cumsum(np.abs(self.evidence[order]))
        return order[: int(np.searchsorted(carried, share * carried[-1])) + 1]

    def kept(self, around: int = AROUND) -> Ints:
        """Places of the carriers, with so many words around each."""
        places = np.concatenate([np.arange(j - around, j + around + 1) for j in self.carriers()])
        return np.unique(np.clip(places, 0, len(self.leader) - 1))


@torch.no_grad()
def reasons(model: HardmaxTransformer, texts: Texts, rows: Ints) -> list[Reason]:
    """In the order of `rows`; one logit only."""
    model.eval()
    found: dict[int, Reason] = {}
    for part in texts.batches(rows, 16_384):
        x = texts.padded(part)
        z, w = model.places(x)
        leader = torch.arange(x.shape[1]).expand_as(x)
        for _ in range(model.shape.layers):
            leader, z = attend(z), model.layer(z)
        share = w / (model.shape.pseudo_weight + w.sum(1, keepdim=True))
        adds = (share * (z @ model.v[0])).double().numpy()
        logit = model.b.item() + adds.sum(1)
        for b, row in enumerate(part):
            n = int(texts.lengths[row])
            own = leader[b, :n].numpy()
            found[int(row)] = Reason(
                float(logit[b]), own, np.bincount(own, adds[b, :n], minlength=n).astype(np.float64)
            )
    return [found[int(row)] for row in rows]


def alone(model: HardmaxTransformer, texts: Texts) -> Texts:
    """Each text cut down to its carriers and the words around them."""
    rows = np.arange(len(texts))
    cut = [
        [int(word) for word in texts.ids[texts.starts[row] + reason.kept()]]
        for row, reason in zip(rows, reasons(model, texts, rows), strict=True)
    ]
    return Texts.of(cut, texts.targets, 1_000)
