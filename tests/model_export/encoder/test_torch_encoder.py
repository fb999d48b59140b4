"""The encoder in torch, its graphs in numpy and in ONNX Runtime: equal integers in every batch."""

import numpy as np
import pytest
import torch
from encoders import RELATIVE, TINY, random_encoder

from model_export.encoder.graph import read_weights, to_onnx
from model_export.encoder.layer import EncoderConfig, Linear
from model_export.encoder.quantization import quantize
from model_export.referee import Referee
from service.runtime.session import Runtime
from service.text.encoder import assemble_chunks

LENGTHS = (9, 1, 6, 64, 3, 9)
OUTPUTS = ("states", "words", "attends_to")


def draw(lengths, seed=0, n_tokens=400):
    rng = np.random.default_rng(seed)
    return [(rng.integers(1, n_tokens, n), np.arange(n)) for n in lengths]


def run_session(session, chunks):
    """Return the outputs of each chunk."""
    return split(session.run(assemble_chunks(chunks), OUTPUTS), chunks)


def split(values, chunks):
    states, words, attends_to = values
    outputs, begin = [], 0
    for b, (tokens, _) in enumerate(chunks):
        end, n = begin + len(tokens), len(tokens)
        outputs.append((states[begin:end], words[begin:end], attends_to[:, b, :n, :n]))
        assert not attends_to[:, b, n:].any()
        assert not attends_to[:, b, :, n:].any()
        begin = end
    return outputs


@pytest.fixture(
    scope="module",
    params=[(TINY, 0.3), (TINY, 0.002), (RELATIVE, 0.3), (RELATIVE, 0.002)],
    ids=["ordinary", "many ties", "relative positions", "relative positions, many ties"],
)
def encoder(request):
    return random_encoder(request.param[0], follows=request.param[1])


@pytest.fixture(scope="module")
def session(encoder):
    return Runtime("cpu", 1).open(to_onnx(quantize(encoder)).SerializeToString())


def are_equal(outputs, expected):
    return all(np.array_equal(a, b) for a, b in zip(outputs, expected, strict=True))


def run_torch(encoder, tokens):
    """Return the outputs of one chunk by the definition."""
    with torch.no_grad():
        states, words, attention = encoder.quantized(torch.from_numpy(tokens)[None])
    counts = torch.stack(attention.counts)[:, 0]
    return [x.numpy().astype(np.uint8) for x in (states[0] + 128, words[0] + 128, counts)]


def test_graph_gives_the_numbers_of_torch(encoder, session):
    """To the bit, in every batch."""
    chunks = draw(LENGTHS)
    for batch in (chunks, chunks[::-1], *([chunk] for chunk in chunks)):
        for (tokens, _), outputs in zip(batch, run_session(session, batch), strict=True):
            assert are_equal(outputs, run_torch(encoder, tokens))


@pytest.mark.parametrize("products", ["integer", "float"])
def test_operators_of_a_graph_give_the_numbers_of_torch(encoder, products):
    chunks = draw(LENGTHS, seed=1)
    referee = Referee(to_onnx(quantize(encoder), products).SerializeToString())
    values = referee.run(assemble_chunks(chunks), OUTPUTS).values()
    for (tokens, _), outputs in zip(chunks, split(values, chunks), strict=True):
        assert are_equal(outputs, run_torch(encoder, tokens))


def test_float_products_give_the_numbers_of_integer_products(encoder, session):
    """The graph for GPUs, with the same weights."""
    model = to_onnx(quantize(encoder), products="float")
    stored, expected = (read_weights(x.SerializeToString()) for x in (model, to_onnx(quantize(encoder))))
    assert all(np.array_equal(stored[name], expected[name]) for name in quantize(encoder))
    float_session = Runtime("cpu", 1).open(model.SerializeToString())
    for seed in range(5):
        chunks = draw(LENGTHS, seed)
        expected = run_session(session, chunks)
        assert all(map(are_equal, run_session(float_session, chunks), expected))


def test_some_heads_tie_where_scores_are_small():
    _, _, attention_counts = run_torch(random_encoder(follows=0.002), draw([30])[0][0])
    assert attention_counts.sum(-1).max() > 4  # more keys than heads: a tie


def test_sums_that_could_not_be_exact_get_a_larger_unit():
    """3,072 inputs up to 255 times weights up to 127 would pass 2^24, where float32 rounds."""
    linear = Linear(3_072, 2)
    with torch.no_grad():
        linear.weight[0], linear.weight[1, 0] = 0.1, 0.1
    codes, _, unit = linear.codes(torch.ones(3_072), 255.0)
    assert (codes.abs().sum(1) * 255 < 2**24).all()
    assert unit[0] > unit[1]
    assert torch.allclose(codes * unit[:, None], linear.weight, atol=float(unit[0]) / 2)


def test_width_whose_squares_are_not_exact_is_refused():
    with pytest.raises(ValueError, match="exactly"):
        EncoderConfig(width=768, max_units=200.0)
