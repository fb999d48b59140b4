"""A encoder in torch, numpy and ONNX Runtime: the same whole numbers, whatever else is in the batch."""

import numpy as np
import pytest
import torch
from encoders import RELATIVE, TINY, random_encoder

from model_export.attention.straight_through import straight_through
from model_export.encoder.graph import to_onnx
from model_export.encoder.layer import EncoderConfig, Linear
from model_export.encoder.quantized import normalize, quantize, run, to_float
from service.runtime.session import Runtime

LENGTHS = (9, 1, 6, 64, 3, 9)
OUTPUTS = ("states", "words", "follows")


def draw(lengths, seed=0, pieces=400):
    rng = np.random.default_rng(seed)
    return [(rng.integers(1, pieces, n), np.arange(n)) for n in lengths]


def feeds(passages):
    T, N = sum(len(pieces) for pieces, _ in passages), max(len(pieces) for pieces, _ in passages)
    rows, at = np.full((len(passages), N), T), 0
    for row, (pieces, _) in zip(rows, passages, strict=True):
        row[: len(pieces)] = np.arange(at, at + len(pieces))
        at += len(pieces)
    pieces, places = (np.concatenate(part) for part in zip(*passages, strict=True))
    return {"pieces": pieces, "places": places, "rows": rows}


def answers(session, passages):
    """The outputs of each passage."""
    states, words, follows = session.run(feeds(passages), OUTPUTS)
    found, at = [], 0
    for b, (pieces, _) in enumerate(passages):
        n = len(pieces)
        found.append((states[at : at + n], words[at : at + n], follows[:, b, :n, :n]))
        assert not follows[:, b, n:].any()
        assert not follows[:, b, :, n:].any()
        at += n
    return found


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


def equal(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_what_passes_a_gradient_is_its_value_to_the_bit():
    """Else a head that follows two, whose values have a mean of .5, reads the wrong whole number."""
    value, gradient = torch.arange(-255, 256) / 2, torch.linspace(0.1, 0.9, 511).requires_grad_()
    passed = straight_through(value, gradient)
    assert torch.equal(passed, value)
    passed.sum().backward()
    assert gradient.grad is not None
    assert torch.equal(gradient.grad, torch.ones(511))


def test_graph_gives_the_numbers_of_the_definition(encoder, session):
    """To the bit, whatever else is in the batch."""
    weights, passages = quantize(encoder), draw(LENGTHS)
    for company in (passages, passages[::-1], *([passage] for passage in passages)):
        for passage, found in zip(company, answers(session, company), strict=True):
            assert equal(found, run(weights, *passage))
            assert equal(found, run(to_float(weights), *passage))


def test_weights_are_float32_only_where_every_sum_is_exact():
    columns = {rows: np.full((rows, 1), 127, np.int8) for rows in (518, 519)}  # 519 * 127 * 255 > 2^24
    floats = to_float({"0.up": columns[518], "0.down": columns[519], "table": columns[518]})
    assert {name: str(each.dtype) for name, each in floats.items()} == {
        "0.up": "float32",
        "0.down": "float64",
        "table": "int8",
    }


def test_float_products_give_the_numbers_of_integer_products(encoder, session):
    """The graph for GPUs, with the same initializers."""
    graph = to_onnx(quantize(encoder), products="float")
    same = to_onnx(quantize(encoder)).graph.initializer
    assert [each.SerializeToString() for each in graph.graph.initializer] == [
        each.SerializeToString() for each in same
    ]
    float_session = Runtime("cpu", 1).open(graph.SerializeToString())
    for seed in range(5):
        chunks = draw(LENGTHS, seed)
        for one, other in zip(answers(float_session, chunks), answers(session, chunks), strict=True):
            assert equal(one, other)


def test_torch_gives_the_numbers_of_the_definition(encoder):
    weights = quantize(encoder)
    for pieces, places in draw(LENGTHS, seed=1):
        with torch.no_grad():
            states, words, attention = encoder.quantized(torch.from_numpy(pieces)[None])
        counts = torch.stack(attention.counts)[:, 0]
        theirs = [states[0] + 128, words[0] + 128, counts]
        assert equal([x.numpy().astype(np.uint8) for x in theirs], run(weights, pieces, places))


def test_torch_norms_states_as_the_definition_does():
    """Of a thousand states two hundred were off by a bit, and now and then one ended a step away."""
    states = np.random.default_rng(0).normal(0, 40, (1_000, 32)).astype(np.float32)
    norm = random_encoder().norm
    with torch.no_grad():
        theirs = norm.grid * norm.quantized(torch.from_numpy(states))
    weights = {
        "limit": np.float32(200),
        "clip": False,
        "norm.gain": norm.grid * norm.gain.detach().numpy(),
        "norm.shift": norm.grid * norm.shift.detach().numpy(),
    }
    assert np.array_equal(theirs.numpy(), normalize(states, weights, "norm"))


def test_some_heads_tie_where_scores_are_small():
    weights = quantize(random_encoder(follows=0.002))
    _, _, follows = run(weights, *draw([30])[0])
    assert follows.sum(-1).max() > 4  # more followed than there are heads: a tie


def left_out(session, passages, gone_of):
    """Whether the state of a piece is what it was, wherever `gone_of` leaves out pieces for it."""
    for pieces, places in passages:
        ((states, _, follows),) = answers(session, [(pieces, places)])
        for i, read in enumerate(read_by(follows)):
            for gone in gone_of(i, read):
                kept = np.setdiff1d(np.arange(len(pieces)), gone)
                ((less, _, _),) = answers(session, [(pieces[kept], places[kept])])
                yield np.array_equal(less[np.flatnonzero(kept == i)[0]], states[i])


@pytest.mark.parametrize("config", [TINY, RELATIVE], ids=["absolute positions", "relative positions"])
def test_leaving_out_what_was_not_read_changes_nothing(config):
    """One piece, and all of them at once, to the bit: keys are static (docs/theory.md, section 7)."""
    session = Runtime("cpu", 1).open(to_onnx(quantize(random_encoder(config))).SerializeToString())

    def unread(i, read):
        unread = np.flatnonzero(~read)
        return [*unread[:3, None], unread] if len(unread) else []

    stayed = list(left_out(session, draw([12] * 12, seed=3), unread))
    assert len(stayed) > 100
    assert all(stayed)


def test_leaving_out_what_was_read_changes_states(session):
    """The other half: what a piece has read did enter its state."""

    def another(i, read):
        return [j for j in np.flatnonzero(read) if j != i][:1]

    stayed = list(left_out(session, draw([12] * 12, seed=4), another))
    assert sum(stayed) < 0.1 * len(stayed)


def read_by(follows):
    """[N, N] what each piece has read: R^l(i) = R^(l-1)(i) and what those have read whom it follows."""
    read = np.eye(follows.shape[1], dtype=bool)
    for layer in follows:
        read |= (layer > 0) @ read
    return read


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
