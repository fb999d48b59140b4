"""Compare the graph of a head with its definition in numpy, to the bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

import numpy as np
import onnx

from model_export.encoder.quantized import Array, Stored
from model_export.head import quantized
from model_export.head.encoded import EncodedTexts
from service.runtime.session import Runtime, Session
from service.text.encoder import EncodedText, EncoderOutput
from service.text.head import assemble_feeds

COMPARED_OUTPUTS = ("bias", "contribution", "target", "since", "plane")
Outputs = Mapping[str, Array]


def count_mismatches(model: onnx.ModelProto, weights: Stored, texts: EncodedTexts) -> int:
    """Return the number of texts for which some output of the graph differs."""
    session, wrong = Runtime("cpu", 1).open(model.SerializeToString()), 0
    for tokenized, both in zip(texts.tokenized, texts.states, strict=True):
        output = EncoderOutput(np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1]))
        text = EncodedText(tokenized, [output])
        wrong += any(mismatched_outputs(session, [expected_outputs(weights, text)], [text]))
    return wrong


def expected_outputs(weights: Stored, text: EncodedText) -> Outputs:
    """Return the outputs of the definition for one text, by the names of the graph's outputs."""
    hidden = np.concatenate([each.hidden_states for each in text.outputs])
    embedding = np.concatenate([each.input_embeddings for each in text.outputs])
    members = [range(*each) for each in pairwise(text.tokenized.bounds.tolist())]
    result = quantized.run(weights, hidden, embedding, members)
    expected = {name: np.asarray(getattr(result, name)) for name in COMPARED_OUTPUTS}
    if "near" in weights:
        expected["unlike"] = np.asarray(quantized.ood_score(weights, hidden, embedding, members))
    return expected


def mismatched_outputs(
    session: Session,
    expected: Sequence[Outputs],
    texts: Sequence[EncodedText],
    fed_weights: Mapping[str, Array] = MappingProxyType({}),
) -> list[set[str]]:
    """Run a head's graph on texts together; return for each the names of the outputs that differ.

    `fed_weights` are those that the session's graph has no values for.
    """
    names = tuple(expected[0])
    feeds = assemble_feeds(texts)
    values = dict(zip(names, session.run({**feeds.arrays, **fed_weights}, names), strict=True))
    found = []
    for b, (text, wanted) in enumerate(zip(texts, expected, strict=True)):
        given = _cut_out(values, b, feeds.is_word.shape, len(text.tokenized))
        found.append({name for name in names if not np.array_equal(given[name], wanted[name])})
    return found


def _cut_out(values: Outputs, b: int, shape: tuple[int, ...], n: int) -> Outputs:
    """Return the outputs for text b of B, which has n words and was padded to N."""
    B, N = shape
    plane = values["plane"]
    return {
        "bias": values["bias"].reshape(B, -1)[b],
        "contribution": values["contribution"].reshape(B, -1, N)[b, :, :n],
        "target": values["target"].reshape(B, N)[b, :n],
        "since": values["since"].reshape(B, N)[b, :n],
        "plane": plane.reshape(len(plane), B, N, -1)[:, b, :n],
        **({"unlike": values["unlike"].reshape(B)[b]} if "unlike" in values else {}),
    }
