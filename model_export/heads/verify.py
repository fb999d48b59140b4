"""Whether the graph of a head computes, to the bit, what the definition in numpy does."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import onnx

from model_export.heads import stored
from model_export.heads.states import States
from model_export.reader.stored import Stored
from service.runtime.session import Runtime
from service.text.encoder import Read, Seen
from service.text.head import assemble
from service.text.tokenizer import Reading

OUTPUTS = ("bias", "contribution", "target", "since", "plane")


def differing(model: onnx.ModelProto, weights: Stored, states: States) -> int:
    """How many texts get other numbers."""
    session, wrong = Runtime("cpu", 1).open(model.SerializeToString()), 0
    for reading, both in zip(states.readings, states.found, strict=True):
        seen = Seen(np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1]))
        wrong += bool(compared(session, weights, reading, [seen]))
    return wrong


def compared(session: Any, weights: Stored, reading: Reading, seen: Sequence[Seen]) -> set[str]:
    """Which outputs differ from the definition's for one text."""
    feeds, _, _ = assemble([Read(reading, seen)])
    names = (*OUTPUTS, *(("unlike",) if "near" in weights else ()))
    found = dict(zip(names, session.run(feeds, names), strict=True))
    states, words = (np.concatenate([getattr(each, name) for each in seen]) for name in ("states", "words"))
    members = [range(*each) for each in pairwise(reading.bounds.tolist())]
    told = stored.run(weights, states, words, members)
    wanted = {name: np.asarray(getattr(told, name)) for name in OUTPUTS}
    if "near" in weights:
        wanted["unlike"] = np.asarray(stored.unlike(weights, states, words, members))
    return {
        name for name in names if not np.array_equal(found[name].reshape(wanted[name].shape), wanted[name])
    }
