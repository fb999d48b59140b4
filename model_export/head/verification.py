"""Compare the graph of a head with its definition in numpy, to the bit."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

import numpy as np
import onnx

from model_export.encoder.quantized import Array, Weights
from model_export.head import quantized
from model_export.head.encoded import EncodedTexts
from service.runtime.session import Runtime, Session
from service.text.encoder import EncodedText, EncoderOutput
from service.text.head import assemble_feeds

COMPARED_OUTPUTS = ("bias", "contribution", "target", "since", "plane")
Outputs = Mapping[str, Array]


def count_mismatches(model: onnx.ModelProto, weights: Weights, texts: EncodedTexts) -> int:
    """Return the number of texts for which some output of the graph differs."""
    session, mismatches = Runtime("cpu", 1).open(model.SerializeToString()), 0
    for tokenized, states in zip(texts.tokenized, texts.states, strict=True):
        output = EncoderOutput(np.ascontiguousarray(states[:, 0]), np.ascontiguousarray(states[:, 1]))
        text = EncodedText(tokenized, [output])
        mismatches += any(mismatched_outputs(session, [expected_outputs(weights, text)], [text]))
    return mismatches


def expected_outputs(weights: Weights, text: EncodedText) -> Outputs:
    """Return the outputs of the definition for one text, by the names of the graph's outputs."""
    hidden = np.concatenate([output.hidden_states for output in text.outputs])
    embedding = np.concatenate([output.input_embeddings for output in text.outputs])
    members = [range(start, end) for start, end in pairwise(text.tokenized.bounds.tolist())]
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
    """Run a head's graph on a batch of texts; return the names of the outputs that differ for each text.

    `fed_weights` are the weights that the session's graph does not contain.
    """
    names = tuple(expected[0])
    feeds = assemble_feeds(texts)
    values = dict(zip(names, session.run({**feeds.arrays, **fed_weights}, names), strict=True))
    mismatches = []
    for b, (text, outputs) in enumerate(zip(texts, expected, strict=True)):
        actual = _outputs_of_text(values, b, feeds.is_word.shape, len(text.tokenized))
        mismatches.append({name for name in names if not np.array_equal(actual[name], outputs[name])})
    return mismatches


def _outputs_of_text(values: Outputs, b: int, shape: tuple[int, ...], n: int) -> Outputs:
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
