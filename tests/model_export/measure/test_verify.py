"""The graphs of the pretrained encoders and heads give what their operators give, to the bit."""

from dataclasses import replace

import onnx
import pytest
from onnx import numpy_helper

from model_export.measure.verify import Verifier
from service.runtime.bundle import read_bundle
from service.settings import PRETRAINED_FOLDER

TEXTS = [
    "The soup was cold, the bread was stale and nobody came to ask whether we wanted anything else.",
    "I expected to hate it, but I loved every minute.",
    "They were back the same day with the missing part and fitted it without a word about money.",
    "Jonah's sister bought 3 of them at https://example.com; two broke within a week. The third one still "
    "works! She says that it is quieter than the one before, and cheaper. I'd not buy it again.",
    "no no no no no no",
    "Inflation fell to two percent in March, and the bank left its rate where it was.",
]
ENDS = ("two weeks and then the screen went dark.", "what we paid, as far as I can tell.", "us waiting.")
LONG = " ".join(TEXTS)  # several chunks
SHORT = [  # whose tokens have not read all others
    f"{subject} {verb} {end}"
    for subject in ("The lamp", "Our waiter", "This film", "My old phone")
    for verb in ("was not worth", "never gave")
    for end in ENDS
]


@pytest.mark.parametrize(
    ("names", "has_ablations"),  # whether tokens have read only a part of their chunk
    [(("sentiment-small", "encoder-small"), True), (("sentiment", "encoder"), False)],
)
def test_pretrained_graphs_give_what_their_operators_give(names, has_ablations):
    """States are floats between two roundings, which must be the same in ONNX Runtime."""
    head, encoder = (read_bundle(PRETRAINED_FOLDER / name) for name in names)
    texts = [*TEXTS, *(SHORT if has_ablations else ()), LONG]
    *_, parity = Verifier(head, encoder).compare(texts)
    assert not parity.differences, parity
    assert (parity.ablations > len(TEXTS)) == has_ablations
    assert parity.texts == len(texts)


def test_changed_number_in_a_graph_for_gpus_is_detected():
    head, encoder = (read_bundle(PRETRAINED_FOLDER / name) for name in ("sentiment", "encoder"))
    graph = onnx.load_from_string(encoder.float_model)
    (limit,) = (weights for weights in graph.graph.initializer if weights.name == "limit")
    limit.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(limit) / 4, "limit"))
    *_, parity = Verifier(head, replace(encoder, float_model=graph.SerializeToString())).compare(TEXTS[1:2])
    assert {name.split(":")[0] for name in parity.different} == {"encoder model.onnx"}
