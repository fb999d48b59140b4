"""Compare the graph of a head with its definition in numpy, to the bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx

from model_export.encoder.quantized import Array, Stored
from model_export.head import quantized
from model_export.head.encoded import EncodedTexts
from service.runtime.session import Runtime
from service.text.encoder import EncodedText, EncoderOutput
from service.text.head import assemble_feeds
from service.text.tokenizer import TokenizedText

COMPARED_OUTPUTS = ("bias", "contribution", "target", "since", "plane")


def count_mismatches(model: onnx.ModelProto, weights: Stored, texts: EncodedTexts) -> int:
    """Return the number of texts for which some output of the graph differs."""
    session, wrong = Runtime("cpu", 1).open(model.SerializeToString()), 0
    for tokenized, both in zip(texts.tokenized, texts.states, strict=True):
        seen = EncoderOutput(np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1]))
        wrong += bool(mismatched_outputs(session, weights, tokenized, [seen]))
    return wrong


def mismatched_outputs(
    session: Any,
    weights: Stored,
    reading: TokenizedText,
    chunks: Sequence[EncoderOutput],
    fed_weights: Mapping[str, Array] = MappingProxyType({}),
) -> set[str]:
    """Return the names of the outputs that differ from the definition for one text.

    `fed_weights` are those that the session's graph has no values for.
    """
    feeds = {**assemble_feeds([EncodedText(reading, chunks)]).arrays, **fed_weights}
    names = (*COMPARED_OUTPUTS, *(("unlike",) if "near" in weights else ()))
    outputs = dict(zip(names, session.run(feeds, names), strict=True))
    hidden, embedding = (
        np.concatenate([getattr(each, name) for each in chunks])
        for name in ("hidden_states", "input_embeddings")
    )
    members = [range(*each) for each in pairwise(reading.bounds.tolist())]
    result = quantized.run(weights, hidden, embedding, members)
    expected = {name: np.asarray(getattr(result, name)) for name in COMPARED_OUTPUTS}
    if "near" in weights:
        expected["unlike"] = np.asarray(quantized.ood_score(weights, hidden, embedding, members))
    return {
        name
        for name in names
        if not np.array_equal(outputs[name].reshape(expected[name].shape), expected[name])
    }
