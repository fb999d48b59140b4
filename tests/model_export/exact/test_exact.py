"""The exact construction from data to bundle: the served graph classifies every sequence."""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from paths import ROOT

from benchmarks.exact import FAMILIES, labelled, overlapping, random, same_support
from model_export.cli import main
from model_export.exact.blocks import build_transformer
from model_export.exact.command import build_classifier, describe, write_verified
from model_export.exact.data import ImpossibleData, compute_measures, make_examples, read_examples
from model_export.exact.graph import to_onnx
from model_export.exact.layout import build_layout
from service.errors import InputError
from service.runtime.bundle import read_bundle
from service.runtime.session import Runtime
from service.sequences import SequenceClassifier

EXAMPLES = ROOT / "examples"
PARAMETERS = ("U", "b", "W", "eta", "rho", "v", "w", "q", "k")


def very_different_lengths(rng, N, d):
    tokens = rng.normal(size=(50, d))
    return [tokens[rng.integers(0, 50, n)] for n in (1, 1, 2, 5, 100, 1000, 3000)]


@pytest.fixture
def build(tmp_path):
    """Return a function of rows: the classifier, its verification and the served model."""

    def build(rows, dtype="float64", positions=False):
        built = build_classifier(make_examples(rows, dtype=dtype), dtype=dtype, positions=positions)
        verified = write_verified(built, tmp_path / "model", description="a test", license="none")
        return built, verified, SequenceClassifier.load(read_bundle(tmp_path / "model"), Runtime("cpu"))

    return build


def labels_of(answers):
    return [answer["label"] for answer in answers]


def with_outputs(sequences, field, outputs):
    return [{"sequence": tokens, field: output} for tokens, output in zip(sequences, outputs, strict=True)]


@pytest.mark.parametrize(
    ("family", "sizes", "d", "dtype"),
    [
        *product(FAMILIES, [(3, 30)], [2], ["float64"]),
        *product(FAMILIES, [(20,)], [3], ["float32"]),
        (random, (60,), 8, "float64"),
        (random, (30,), 1, "float64"),
        (very_different_lengths, (7,), 2, "float64"),
    ],
)
def test_exact_classifies_every_sequence(family, sizes, d, dtype, build):
    for N in sizes:
        rng = np.random.default_rng([d, N])
        rows = labelled(family(rng, N, d), rng, dtype)
        built, verified, model = build(rows, dtype)
        assert (verified.n_sequences, verified.n_errors, verified.max_error) == (N, 0, 0.0)
        assert len(built.model.blocks) <= 3 * N
        numbers = [getattr(block, name) for block in built.model.blocks for name in PARAMETERS]
        assert sum(map(np.size, numbers)) == built.model.n_parameters
        assert built.model.n_parameters == (10 * max(2, d) + 5) * len(built.model.blocks)

        shuffled = [rng.permutation(row["sequence"]) for row in rows]
        assert labels_of(model.classify(shuffled)) == [row["label"] for row in rows]

        if verified.radius is not None:  # None: all labels are the same
            # In float32 adding the noise rounds by as much as 1e-6.
            distance = max(0, 0.99 * verified.radius - (1e-6 if dtype == "float32" else 0))
            noise = [rng.normal(size=tokens.shape) for tokens in shuffled]
            steps = [distance * step / np.linalg.norm(step, axis=1, keepdims=True) for step in noise]
            moved = [tokens + step for tokens, step in zip(shuffled, steps, strict=True)]
            assert labels_of(model.classify(moved)) == [row["label"] for row in rows]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_exact_answers_do_not_depend_on_how_often_a_sequence_is_repeated(dtype, build):
    """The mean of many equal codes was rounded like their sum: margins changed, in float32 by 3e-4."""
    rng = np.random.default_rng(9)
    rows = labelled(same_support(rng, 25, 2), rng, dtype)
    _, _, model = build(rows, dtype)
    sequences = [row["sequence"] for row in rows]
    repeated = [np.tile(tokens, (3001 // len(tokens), 1)) for tokens in sequences]
    expected, answers = model.classify(sequences), model.classify(repeated)
    assert [answer["margin"] for answer in answers] == [answer["margin"] for answer in expected]
    assert labels_of(answers) == labels_of(expected)


def test_exact_codes_round_no_more_than_the_layout_says():
    """Nested frequency splits move a code by rounded shares, one after the other."""
    rng = np.random.default_rng(4)
    max_ratio = 0.0
    for family in (same_support, overlapping, random):
        examples = make_examples(labelled(family(rng, 40, 2), rng, "float32"), dtype="float32")
        measures = compute_measures(examples, examples.points)
        model, layout = build_transformer(examples, measures), build_layout(measures, 0, disjoint=False)
        splitting = [block for block in model.blocks[: model.read_out] if block.k[0] == 0]
        for points in examples.points:
            X = points.astype(np.float64)
            x = points
            for block in splitting:  # in both precisions, with the parameters as the graph holds them
                X, x = rounded(block, np.float64)(X), rounded(block, np.float32)(x)
            max_ratio = max(max_ratio, float(np.abs(X[:, 0] - x[:, 0]).max()) / layout.error)
    assert 0.01 < max_ratio < 1


def rounded(block, dtype):
    """Return the block with parameters in float32, to be computed in `dtype`."""
    return replace(block, **{name: dtype(np.float32(getattr(block, name))) for name in PARAMETERS})


def test_exact_distinguishes_true_from_1(build):
    """Both are equal in Python, and were the same label."""
    sequences = [np.array([[float(i)]]) for i in range(3)]
    _, _, model = build(with_outputs(sequences, "label", [1, True, "1"]))
    assert list(map(repr, labels_of(model.classify(sequences)))) == ["1", "True", "'1'"]


def test_exact_counts_order_only_with_positions(build):
    rows = [{"sequence": [[1.0], [2.0]], "label": "up"}, {"sequence": [[2.0], [1.0]], "label": "down"}]
    with pytest.raises(ImpossibleData, match=r"sequence 0 and sequence 1 .*--positions"):
        build(rows)
    _, verified, model = build(rows, positions=True)
    assert verified.n_errors == 0
    assert labels_of(model.classify([np.array([[1.0], [2.0]]), np.array([[2.0], [1.0]])])) == ["up", "down"]


@pytest.mark.parametrize(
    ("sequences", "field", "outputs", "message"),
    [
        (([[0.0], [1.0]], [[1.0], [0.0], [0.0], [1.0]]), "label", (0, 1),
         "same tokens in the same proportions"),
        (([[1.0, 0.0]], [[1.0 + 1e-16, 1e-300]], [[50.0, 3.0]]), "label", (0, 1, 0),
         "tell sequence 0 and sequence 1 apart are too close"),
        (([[0.0], [0.0]],), "targets", ([[1.0], [2.0]],), "has 1 distinct tokens and cannot have 2 outputs"),
    ],
)  # fmt: skip
def test_exact_refuses_what_no_model_of_its_digits_can_do(sequences, field, outputs, message):
    with pytest.raises(ImpossibleData, match=message):
        build_classifier(make_examples(with_outputs(sequences, field, outputs)))


@pytest.mark.parametrize(
    "shares",
    [[(2, 1, 1), (1, 2, 1), (1, 1, 2)], [(2, 1, 2, 1, 1), (1, 2, 1, 1, 2), (1, 1, 1, 2, 2)]],
    ids=["three points", "five points"],
)
def test_exact_never_joins_what_a_frequency_split_has_parted(shares, build):
    """The spreads that met another offset once looked best, and splitting did not end."""
    rows = [
        {"sequence": [(k, k * k) for k, count in enumerate(counts) for _ in range(count)], "label": label}
        for label, counts in enumerate(shares)
    ]
    for seed in range(4):
        built = build_classifier(make_examples(rows), seed=seed)
        assert len(built.model.blocks) <= built.bound == 9
    _, verified, model = build(rows)
    assert verified.n_errors == 0
    assert labels_of(model.classify([np.array(row["sequence"], float) for row in rows])) == [0, 1, 2]


def test_exact_takes_outputs_in_any_order(build):
    rows = [
        {"sequence": [[0, 0], [1, 1]], "targets": [[1.0], [2.0]]},
        {"sequence": [[1, 1], [0, 0]], "targets": [[2.0], [1.0]]},
    ]
    _, verified, model = build(rows)
    assert verified.n_errors == 0
    (answer,) = model.classify([np.array([[1.0, 1.0], [0.0, 0.0]])])
    assert sorted(row[0] for row in answer["output"]) == pytest.approx([1, 2])


@pytest.mark.parametrize(("d", "width"), [(1, 1), (2, 5), (4, 2)])
def test_exact_interpolates_vectors(d, width, build):
    rng = np.random.default_rng([d, width])
    sequences = [*random(rng, 15, d), *same_support(rng, 5, d)]
    rows = [{"sequence": tokens, "target": 100 * rng.normal(size=width)} for tokens in sequences]
    built, verified, model = build(rows)
    assert verified.n_errors == 0
    assert verified.max_error < 1e-6
    assert len(built.model.blocks) <= 60
    answer = model.classify([rows[0]["sequence"]])[0]
    assert answer["label"] is None
    assert answer["output"] == [pytest.approx(rows[0]["target"], rel=1e-9)]


def test_exact_sends_sequences_to_sequences(build):
    rng = np.random.default_rng(6)
    sequences = [*(rng.normal(size=(rng.integers(5, 12), 2)) for _ in range(20)), *same_support(rng, 4, 2)]
    rows = [{"sequence": tokens, "targets": rng.normal(size=(rng.integers(1, 5), 2))} for tokens in sequences]
    built, verified, model = build(rows)
    assert verified.n_errors == 0
    assert verified.max_error < 1e-6
    assert built.bound == 2 * 24 - 1 + sum(len(row["targets"]) for row in rows)
    assert len(built.model.blocks) <= built.bound
    answer = model.classify([rows[0]["sequence"]])[0]
    outputs = np.array(answer["output"])
    assert (answer["leader"], len(outputs)) == (None, len(rows[0]["sequence"]))
    distances = np.abs(outputs[:, None] - rows[0]["targets"][None]).max(axis=2)
    assert max(distances.min(axis=0).max(), distances.min(axis=1).max()) < 1e-6


@pytest.mark.parametrize(("dtype", "max_error"), [("float64", 0.0), ("float32", 1e-5)])
def test_exact_graph_gives_whole_numbers_for_labels(dtype, max_error):
    """Those of the definition, in float64 exactly; in float32 the read-out of frequency splits rounds."""
    for family in FAMILIES:
        rng = np.random.default_rng([3, 40])
        examples = make_examples(labelled(family(rng, 20, 3), rng, dtype), dtype=dtype)
        built = build_classifier(examples, dtype=dtype)
        session = Runtime("cpu").open(to_onnx(built.model, dtype, 3, positions=False).SerializeToString())
        for points, ((zero, code),) in zip(built.examples.points, built.examples.outputs, strict=True):
            feeds = {"tokens": points[None].astype(dtype), "mask": np.ones((1, len(points)), bool)}
            (output,) = session.run(feeds, ("output",))
            assert np.abs(output[0] - [zero, code, 0]).max() <= max_error
            assert np.abs(built.model.states(points)[-1] - [zero, code, 0]).max() <= max_error


def write_lines(path, rows):
    lines = [json.dumps({**row, "sequence": np.asarray(row["sequence"]).tolist()}) for row in rows]
    path.write_text("\n".join(lines) + "\n\n")
    return path


def test_exact_command_writes_a_bundle_and_prints_figures(tmp_path, capsys):
    rng = np.random.default_rng(10)
    data = write_lines(tmp_path / "data.jsonl", labelled(random(rng, 12, 2), rng))
    assert main(["exact", "--data", str(data), "--out", str(tmp_path / "twelve")]) == 0
    output = capsys.readouterr().out
    assert all(figure in output for figure in ("N = 12", "bound 3N = 36", "100 % (12 of 12")), output
    card = read_bundle(tmp_path / "twelve").card
    assert (card["kind"], card["labels"], card["dimension"]) == ("sequences", [7, "rose", "wine"], 2)
    assert card["figures"]["accuracy"] == 1.0
    assert card["figures"]["radius"] > 0


def test_exact_command_refuses_in_one_line_and_writes_nothing(tmp_path, capsys):
    rows = [{"sequence": [[0.0]], "label": "a"}, {"sequence": [[0.0]], "label": "b"}]
    data = write_lines(tmp_path / "data.jsonl", rows)
    assert main(["exact", "--data", str(data), "--out", str(tmp_path / "model")]) == 2
    assert "line 1 and line 2" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()


def test_exact_classifies_the_chords_of_the_example_in_any_voicing(tmp_path):
    """Other orders and doublings than in the file are other measures."""
    examples = read_examples(EXAMPLES / "chords.jsonl")
    built = build_classifier(examples)
    verified = write_verified(built, tmp_path / "chords", description="a test", license="none")
    model = SequenceClassifier.load(read_bundle(tmp_path / "chords"), Runtime("cpu"))
    assert (verified.n_sequences, verified.n_errors) == (48, 0)
    assert len(built.model.blocks) <= 144
    voicings = [np.concatenate([points[::-1], points[:1], points]) for points in examples.points]
    expected = [examples.labels[int(output[0, 1])] for output in examples.outputs]
    assert labels_of(model.classify(voicings)) == expected
    assert sorted(set(expected)) == ["augmented", "diminished", "major", "minor"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no sequences"),
        ("{", "line 1: is not JSON"),
        ("[]", "line 1 is not an object"),
        ("\udcff", "line 1: is not UTF-8"),
        ('{"sequence": [[1]]}', 'line 1 needs "sequence" and "label"'),
        ('{"sequence": [[1]], "label": null}', "a label is a string or a number, not null"),
        ('{"sequence": [[1], [1, 2]], "label": 0}', "line 1 is not a list of equally long lists"),
        ('{"sequence": [], "label": 0}', "line 1 is not a non-empty list"),
        ('{"sequence": [[NaN]], "label": 0}', "line 1 holds a number that is not finite"),
        ('{"sequence": [[1]], "label": 0}\n{"sequence": [[1, 2]], "label": 0}',
         "line 2: a token has 2 numbers where line 1 has 1"),
        ('{"sequence": [[1]], "target": [0]}\n{"sequence": [[1]], "target": [0, 1]}',
         "line 2: a target has 2 numbers where line 1 has 1"),
    ],
)  # fmt: skip
def test_exact_names_what_is_wrong_with_its_data(tmp_path, text, message):
    (tmp_path / "data.jsonl").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=message):
        read_examples(tmp_path / "data.jsonl")


def test_exact_refuses_to_write_a_model_that_is_wrong(tmp_path):
    """The examples are swapped after the construction."""
    rows = [{"sequence": [[0.0]], "label": "a"}, {"sequence": [[1.0]], "label": "b"}]
    built = build_classifier(make_examples(rows))
    built.examples.points.reverse()
    with pytest.raises(ImpossibleData, match="not written: wrong about sequence 0"):
        write_verified(built, tmp_path / "model", description="", license="")
    assert not (tmp_path / "model").exists()
    assert "bound 3N = 6" in describe(built)
