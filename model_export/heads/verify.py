"""Whether the graph of a head computes, to the bit, what the definition in numpy does."""

from __future__ import annotations

import numpy as np
import onnx

from model_export.heads import stored
from model_export.heads.states import States
from model_export.reader.stored import Stored
from service.engine.runtime import Runtime
from service.texts.heads import assemble
from service.texts.reader import Read, Seen

OUTPUTS = ("bias", "contribution", "target", "since", "certified")


def differing(model: onnx.ModelProto, weights: Stored, states: States) -> int:
    """How many texts get other numbers."""
    session = Runtime("cpu", 1).open(model.SerializeToString())
    names = (*OUTPUTS, *(("unlike",) if "near" in weights else ()))
    wrong = 0
    for i, (reading, both) in enumerate(zip(states.readings, states.found, strict=True)):
        feeds, _, _ = assemble(
            [Read(reading, [Seen(np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1]))])]
        )
        found = dict(zip(names, session.run(feeds, names), strict=True))
        told = stored.run(weights, both[:, 0], both[:, 1], states.members(i))
        same = all(np.array_equal(found[name][0, 0], getattr(told, name)) for name in OUTPUTS)
        if "near" in weights:
            same = same and found["unlike"][0, 0] == stored.unlike(
                weights, both[:, 0], both[:, 1], states.members(i)
            )
        wrong += not same
    return wrong
