"""Weights to bundle: what is stored is what is served, and a folder that does not fit is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bundles import plane_weights, random_weights, write_sentiment
from paths import ROOT

from model_export.cli import main
from model_export.measure.verify import stored_weights, verify
from model_export.sentiment.export import read_weights, words_of, write_sentiment_bundle
from model_export.sentiment.graph import to_onnx
from model_export.sentiment.model import Weights
from model_export.sentiment.reference import answer
from model_export.sentiment.rows import Codes, store
from service.engine.bundle import read_bundle
from service.errors import InvalidInput, MalformedInput, NotFound
from service.texts.reader import Lists

META = {"name": "small", "description": "For tests.", "labels": ["negative", "positive"], "even": 0.1}
WORDS = [f"w{a}{b}" for a in "abcdefgh" for b in "abcdefgh"]


def write_weights(folder: Path, weights: Weights, meta: dict[str, Any] = META) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    weights.save(folder / "weights.npz")
    lists = Lists(weights.words, {"paris"}, set(), set())
    (folder / "words.json").write_text(json.dumps(words_of(lists)))
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


def test_export_writes_a_bundle_that_says_what_it_holds(tmp_path: Path) -> None:
    folder = write_weights(tmp_path / "run", plane_weights())
    bundle = write_sentiment_bundle(tmp_path / "models", *read_weights(folder))
    card = read_bundle(tmp_path / "models" / "small").card
    assert card == bundle.card
    facts = ("kind", "alpha", "layers", "dimension", "vocabulary", "window", "readout", "even")
    assert [card[fact] for fact in facts] == [
        "sentiment",
        1.0,
        2,
        2,
        len(plane_weights().words),
        [-2, 2],
        {"vector": [1.0, 0.0], "bias": 0.5},
        0.1,
    ]


def test_export_tells_the_readout_of_every_label(tmp_path: Path) -> None:
    weights = random_weights(WORDS, outputs=3)
    card = write_sentiment(tmp_path, weights, labels=["a", "b", "c"]).card
    assert card["readout"]["biases"] == dict(zip("abc", weights.bias.tolist(), strict=True))
    assert card["readout"]["vectors"] == dict(zip("abc", weights.readout.tolist(), strict=True))
    with pytest.raises(InvalidInput, match="3 logits for 2 labels"):
        write_sentiment(tmp_path, weights)


def test_stored_numbers_are_within_half_a_step_and_few_are_cut() -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((50_000, 2)) * [1, 100]
    codes = Codes.of(values)
    error = np.abs(codes.values - values) / codes.scale
    assert np.mean(error > 0.51) < 2e-4
    assert codes.codes.dtype == np.int8
    zeros = np.zeros((3, 4))
    np.testing.assert_array_equal(Codes.of(zeros).values, zeros)


@pytest.mark.parametrize("shape", [{}, {"outputs": 3}, {"dimension": 3}], ids=str)
def test_graph_holds_the_stored_weights(tmp_path: Path, shape: dict[str, Any]) -> None:
    labels = ["a", "b", "c"][: max(2, shape.get("outputs", 2))]
    weights = random_weights(WORDS, seed=1, **shape)
    held = stored_weights(write_sentiment(tmp_path, weights, labels=labels))
    served = store(weights).weights
    ids = np.random.default_rng(2).integers(1, len(weights.words), 40)
    one, other = answer(held, ids), answer(served, ids)
    np.testing.assert_allclose(one.logit, other.logit, atol=1e-5)
    np.testing.assert_allclose(one.states, other.states, atol=1e-5)
    # eight bits a number cost a little
    np.testing.assert_allclose(other.states[0], answer(weights, ids).states[0], atol=0.2)


@pytest.mark.parametrize("shape", [{}, {"outputs": 3}, {"dimension": 3}], ids=str)
def test_torch_numpy_and_the_graph_agree(tmp_path: Path, shape: dict[str, Any]) -> None:
    labels = ["a", "b", "c"][: max(2, shape.get("outputs", 2))]
    bundle = write_sentiment(tmp_path, random_weights(WORDS, seed=3, **shape), labels=labels)
    rng = np.random.default_rng(4)
    texts = [" ".join(rng.choice(WORDS, size)) for size in rng.integers(1, 200, 40)]
    texts += ["waa wbb " * 60, "waa", "waa waa waa"]  # twins
    found = verify(bundle, texts)
    assert found.holds, found.lines()
    assert (found.texts, found.undecidable < 20) == (len(texts), True)


def test_verify_sees_a_graph_that_attends_to_others(tmp_path: Path) -> None:
    weights = random_weights(WORDS, seed=5)
    bundle = write_sentiment(tmp_path, weights)
    other = to_onnx(store(replace(weights, alpha=weights.alpha * 1.01)))
    found = verify(replace(bundle, model=_with_gamma(other, weights)), [" ".join(WORDS)])
    assert not found.holds


def _with_gamma(model: onnx.ModelProto, weights: Weights) -> bytes:
    """The graph computes with its own gamma, and says that it is that of `weights`."""
    gamma = next(tensor for tensor in model.graph.initializer if tensor.name == "gamma")
    used = onnx.TensorProto()
    used.CopyFrom(gamma)
    used.name = "other"
    model.graph.initializer.append(used)
    for node in model.graph.node:
        node.input[:] = ["other" if name == "gamma" else name for name in node.input]
    value = np.array(weights.alpha / (1 + weights.alpha), np.float32)
    gamma.CopyFrom(onnx.numpy_helper.from_array(value, "gamma"))
    return bytes(model.SerializeToString())


def test_only_sentiment_can_be_verified(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="kind dynamics"):
        verify(read_bundle(ROOT / "service" / "models" / "dynamics"), ["good"])


def test_attention_is_visible_by_name(tmp_path: Path) -> None:
    model = onnx.load_from_string(write_sentiment(tmp_path).model)
    onnx.checker.check_model(model, full_check=True)
    called = [node.op_type for node in model.graph.node if node.domain == "hardmax"]
    assert called == [
        "Widen",
        "Negators",
        "Conceded",
        "Window",
        "Hidden",
        "Phrases",
        "Places",
        "Layer",
        "Layer",
        "ReadOut",
    ]
    within = {f.name: {node.op_type for node in f.node if node.domain == "hardmax"} for f in model.functions}
    assert "HardmaxAttention" in within["Layer"]


CHANGES: dict[str, Callable[[Weights], Weights]] = {
    "reach": lambda w: replace(w, reach=np.zeros_like(w.reach)),
    "own": lambda w: replace(w, own=w.own * np.float32(np.nan)),
    "pairs": lambda w: replace(w, pairs=w.pairs[:-1]),
    "offsets": lambda w: replace(w, offsets=(-3, -1, 0, 1, 2)),
    "words": lambda w: replace(w, words=w.words[:-1]),
}


@pytest.mark.parametrize("field", CHANGES)
def test_weights_that_cannot_be_served_are_refused(tmp_path: Path, field: str) -> None:
    weights = plane_weights()
    lists = Lists(weights.words, set(), set(), set())
    with pytest.raises(InvalidInput) as caught:
        write_sentiment_bundle(tmp_path, CHANGES[field](weights), lists, META)
    assert caught.value.param == field


def test_a_folder_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_weights(tmp_path)
    folder = write_weights(tmp_path / "run", plane_weights())
    (folder / "words.json").write_text("{}")
    with pytest.raises(MalformedInput):
        read_weights(folder)


def test_export_is_the_same_to_the_byte_whatever_the_hash_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, whose seed is another at every start, and in one whose seed is 1."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    folder = write_weights(tmp_path / "run", plane_weights())
    main(["export", str(folder), "--out", str(tmp_path / "here")])
    code = "import sys; from model_export.cli import main; main(sys.argv[1:])"
    there = ["export", str(folder), "--out", str(tmp_path / "there")]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    subprocess.run([sys.executable, "-c", code, *there], check=True, env=environment, cwd=ROOT)
    for name in ("model.onnx", "words.json", "card.json"):
        here = (tmp_path / "here" / "small" / name).read_bytes()
        assert here == (tmp_path / "there" / "small" / name).read_bytes()
