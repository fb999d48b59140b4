"""Weights to bundle: what is stored is what is served, and a folder that does not fit is refused."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bundles import PLACES, plane_weights, random_weights, write_sentiment

from model_export.bundle import write_bundle
from model_export.export import export, read_trained
from model_export.loops import settle
from model_export.model import Weights
from model_export.rows import store
from model_export.sentiment import to_onnx
from model_export.tokens import tokenizer_of
from model_export.verify import stored_weights, verify
from service.bundle import read_bundle
from service.errors import InvalidInput, MalformedInput, NotFound
from service.runtime import Runtime

META = {
    "name": "small",
    "description": "For tests.",
    "labels": ["negative", "positive"],
    "figures": {"texts": 3},
}


def write_trained(folder: Path, weights: Weights, vocabulary: list[str], meta: dict[str, Any] = META) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    weights.save(folder / "weights.npz")
    (folder / "tokenizer.json").write_text(tokenizer_of(vocabulary).to_str())
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


def test_export_writes_a_bundle_that_says_what_it_holds(tmp_path: Path) -> None:
    folder = write_trained(tmp_path / "run", plane_weights(pseudo_weight=2.0), list(PLACES))
    bundle = export(folder, tmp_path / "models")
    card = read_bundle(tmp_path / "models" / "small").card
    assert card == bundle.card
    facts = {
        key: card[key] for key in ("kind", "alpha", "layers", "dimension", "vocabulary", "pseudo_weight")
    }
    assert facts == {
        "kind": "sentiment",
        "alpha": 1.0,
        "layers": 2,
        "dimension": 2,
        "vocabulary": 14,
        "pseudo_weight": 2.0,
    }
    assert card["readout"] == {"vector": [1.0, 0.0], "bias": 0.5}
    assert card["figures"] == {"texts": 3}
    assert card["versions"]["onnx"] == onnx.__version__


@pytest.mark.parametrize("dimension", [2, 16])
def test_export_keeps_the_weights_it_says_it_serves(tmp_path: Path, dimension: int) -> None:
    weights = random_weights(40, dimension)
    served = store(weights).apply(weights)
    held = stored_weights(write_sentiment(tmp_path, weights, [f"w{i:02}" for i in range(38)]))
    np.testing.assert_array_equal(held.embedding, served.embedding)
    np.testing.assert_array_equal(held.word_weights, served.word_weights)
    np.testing.assert_array_equal(held.readout, weights.readout)
    largest = np.abs(weights.embedding[1:]).max(axis=1, keepdims=True)
    assert np.all(
        np.abs(held.embedding[1:] - weights.embedding[1:]) <= (largest / 127 if dimension > 8 else 0)
    )


def test_export_names_the_attention_functions_in_the_graph(tmp_path: Path) -> None:
    graph = onnx.load_model_from_string(write_sentiment(tmp_path).model)
    assert {function.name for function in graph.functions} >= {"Sums", "Layers", "ArgmaxSets", "ReadOut"}
    assert {function.domain for function in graph.functions} == {"hardmax"}


@pytest.mark.parametrize("spoil", ["missing", "json", "sizes"])
def test_export_refuses_a_folder_that_does_not_fit(tmp_path: Path, spoil: str) -> None:
    folder = write_trained(tmp_path, plane_weights(), list(PLACES))
    if spoil == "missing":
        (folder / "meta.json").unlink()
        with pytest.raises(NotFound, match=r"meta\.json"):
            read_trained(folder)
    elif spoil == "json":
        (folder / "meta.json").write_text("{")
        with pytest.raises(MalformedInput):
            read_trained(folder)
    else:
        write_trained(folder, plane_weights(), ["superb"])
        with pytest.raises(InvalidInput, match="14 embeddings for 3 tokens"):
            read_trained(folder)


@pytest.mark.parametrize(
    ("row", "problem"),
    [((4, 0), "same embedding"), ((0, 0), "is zero"), ((np.nan, 1), "not finite")],
)
def test_rows_refuse_tokens_that_the_theory_excludes(row: tuple[float, float], problem: str) -> None:
    weights = plane_weights()
    weights.embedding[5] = row
    with pytest.raises(InvalidInput, match=problem):
        store(weights)


def test_rows_refuse_a_weight_that_is_not_positive() -> None:
    weights = plane_weights()
    weights.word_weights[3] = 0
    with pytest.raises(InvalidInput, match="not positive"):
        store(weights)


def test_verify_finds_all_three_implementations_agreed(tmp_path: Path) -> None:
    names = [f"{a}{b}" for a in "abcdefgh" for b in "abcdefgh"]
    bundle = write_sentiment(tmp_path, random_weights(len(names) + 2, 12, seed=3), names)
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice([*names, "zz"], size=size)) for size in rng.integers(1, 90, size=60)]
    found = verify(bundle, texts)
    assert found.holds
    assert found.texts == 60
    assert found.undecidable < found.sets / 100
    assert found.different_sets == found.different_labels == 0


def grid_weights(words: int, dimension: int, layers: int) -> Weights:
    """Tokens on a grid of integers: scores tie by the dozen, and float32 is exact."""
    rng = np.random.default_rng(dimension)
    side = 5 if dimension > 2 else 17
    every = np.array(list(itertools.product(range(-side, side + 1), repeat=dimension)), np.float32)
    chosen = rng.permutation(every[np.abs(every).max(axis=1) > 0])[:words]
    weights = random_weights(words + 2, dimension, alpha=1.0, layers=layers)
    weights.embedding[2:] = chosen
    return weights


@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("kind", ["grid 2", "grid 3", "random 2", "random 12"])
def test_long_texts_attend_to_the_tokens_that_the_definition_names(
    tmp_path: Path, kind: str, layers: int
) -> None:
    dimension = int(kind.split()[1])
    if kind.startswith("grid"):
        weights = grid_weights(1000, dimension, layers)
    else:
        weights = random_weights(1002, dimension, layers=layers)
    names = ["".join(letters) for letters in itertools.product("abcdefghij", repeat=3)]
    session = Runtime("cpu", 1).open(write_sentiment(tmp_path, weights, names).model)
    rng = np.random.default_rng(1)
    tokens, counts = np.zeros((4, 700), np.int64), np.zeros((4, 700), np.float32)
    for row, size in enumerate((700, 431, 97, 3)):
        tokens[row, :size] = np.sort(rng.choice(np.arange(2, 1002), size, replace=False))
        counts[row, :size] = rng.integers(1, 4, size)
    feeds = {"tokens": tokens, "counts": counts, "detail": np.array(True)}
    target, size, end, trajectory, members = session.run(
        feeds, ("target", "size", "end", "trajectory", "members")
    )
    real = counts > 0
    np.testing.assert_array_equal(size[real], members.sum(axis=2)[real])
    single = real & (size == 1)
    np.testing.assert_array_equal(target[single], members.argmax(axis=2)[single])
    several = np.nonzero(real & (size > 1))
    np.testing.assert_array_equal(target[several], several[1])
    assert several[0].size or kind != "grid 3"
    np.testing.assert_allclose(end[real], trajectory[-1][real], atol=2e-6 * np.abs(end).max())


def test_verify_notices_a_graph_that_computes_something_else(tmp_path: Path) -> None:
    bundle = write_sentiment(tmp_path)
    graph = onnx.load_model_from_string(bundle.model)
    (pseudo,) = (node for node in graph.functions if node.name == "Shrink")
    for node in pseudo.node:
        if node.op_type == "Neg":
            node.op_type = "Identity"  # layers then push away from what they should go to
    spoilt = dataclasses.replace(bundle, model=graph.SerializeToString())
    found = verify(spoilt, ["good superb the film", "not good, awful"])
    assert not found.holds


def test_bundle_replaces_an_older_one(tmp_path: Path) -> None:
    write_sentiment(tmp_path, description="first")
    write_sentiment(tmp_path, description="second")
    assert read_bundle(tmp_path / "tiny").card["description"] == "second"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny"]


@pytest.mark.parametrize("name", ["", "a/b", ".."])
def test_bundle_refuses_a_name_that_is_no_folder(tmp_path: Path, name: str) -> None:
    weights = plane_weights()
    with pytest.raises(InvalidInput, match="name"):
        write_bundle(tmp_path, "sentiment", {"name": name}, to_onnx(weights, store(weights)), "{}")


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_export_does_not_depend_on_the_hash_seed(seed: str) -> None:
    """onnxscript lists what a loop carries in the order of a set; `settle` makes it one order again."""
    program = (
        "from model_export.loops import settle\n"
        "from model_export.sentiment import Sentiment\n"
        "proto = settle(Sentiment.to_model_proto(ir_version=10))\n"
        "loops = [n for f in proto.functions for n in f.node if n.op_type == 'Loop']\n"
        "print([[name.rsplit('_', 1)[0] for name in loop.output] for loop in loops if len(loop.output) > 4])"
    )
    root = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[['Z', 'layer', 'left', 'since', 'size', 'target']]"


def test_loops_that_cannot_be_told_apart_are_an_error() -> None:
    state = [onnx.ValueInfoProto(name=name) for name in ("i", "go", "x_1", "y_1")]
    body = onnx.helper.make_graph([], "body", state, state[1:])
    loop = onnx.helper.make_node("Loop", ["", "go", "x", "y"], ["x_2", "z_2"], body=body)
    graph = onnx.helper.make_graph([loop], "graph", [], [])
    with pytest.raises(ValueError, match="cannot be put in order"):
        settle(onnx.helper.make_model(graph))
