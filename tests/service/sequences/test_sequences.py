"""Classifying sequences with a constructed model: batches, margins, leaders and refusals."""

import dataclasses
from types import MappingProxyType

import numpy as np
import pytest

from model_export.exact.command import build_classifier, write_verified
from model_export.exact.data import make_examples
from service.errors import BundleError, InvalidInput
from service.runtime.bundle import Bundle, read_bundle
from service.runtime.session import Runtime
from service.sequences import SequenceClassifier
from service.settings import PRETRAINED_FOLDER

RUNTIME = Runtime("cpu")
VINE, FLOWER, SEA = (0.0, 0.0), (1.0, 0.0), (0.0, 1.0)
SCENES = [
    {"sequence": [VINE], "label": "wine"},
    {"sequence": [VINE, FLOWER], "label": "garden"},
    {"sequence": [VINE, FLOWER, SEA], "label": "coast"},
    {"sequence": [SEA, SEA, SEA, VINE], "label": "coast"},
    {"sequence": [SEA, VINE], "label": "garden"},
]


def bundle_of(rows, folder, dtype="float64") -> Bundle:
    built = build_classifier(make_examples(rows, dtype=dtype), dtype=dtype)
    write_verified(built, folder, description="a test", license="none")
    return read_bundle(folder)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return bundle_of(SCENES, tmp_path_factory.mktemp("models") / "scenes")


@pytest.fixture(scope="module")
def scenes(bundle):
    return SequenceClassifier.load(bundle, RUNTIME)


def labels_of(answers):
    return [answer["label"] for answer in answers]


def test_sequences_are_answered_the_same_alone_and_in_a_batch(scenes):
    rng = np.random.default_rng(0)
    sequences = [rng.normal(size=(rng.integers(1, 60), 2)) for _ in range(300)]
    together = scenes.classify(sequences)
    assert together == [scenes.classify([tokens])[0] for tokens in sequences]


def test_sequences_of_any_number_are_batched(scenes):
    """These sequences have more tokens than one run takes."""
    long = np.tile(np.array([VINE, FLOWER]), (20_000, 1))
    assert labels_of(scenes.classify([long, np.array([VINE]), long])) == ["garden", "wine", "garden"]
    assert scenes.classify([]) == []


def test_sequences_margin_holds_for_unseen_sequences_too(scenes):
    rng = np.random.default_rng(1)
    n_checked = 0
    for _ in range(200):
        tokens = rng.normal(0.3, 0.7, size=(rng.integers(1, 6), 2))
        before = scenes.classify([tokens])[0]
        if before["margin"] > 0:
            step = rng.normal(size=tokens.shape)
            step *= 0.999 * before["margin"] / np.linalg.norm(step, axis=1, keepdims=True)
            assert scenes.classify([tokens + step])[0]["label"] == before["label"]
            n_checked += 1
    assert n_checked > 50


def test_sequences_margin_is_no_larger_than_a_move_that_changes_the_label(scenes):
    """The label changes on the path from one scene to another: no margin on it reaches beyond that."""
    start, end = np.array([VINE, FLOWER]), np.array([VINE, VINE])
    answers = scenes.classify([start + share * (end - start) for share in np.linspace(0, 1, 101)])
    assert {answer["label"] for answer in answers} >= {"garden", "wine"}
    for i, answer in enumerate(answers):
        changed = [abs(i - j) / 100 for j, other in enumerate(answers) if other["label"] != answer["label"]]
        assert answer["margin"] <= min(changed)


def test_sequences_leader_is_the_token_that_all_others_reach(scenes):
    tokens = np.random.default_rng(2).permutation(np.array([VINE, FLOWER, SEA, SEA]))
    answer = scenes.classify([tokens])[0]
    swapped = scenes.classify([tokens[::-1]])[0]
    assert np.array_equal(tokens[answer["leader"]], tokens[::-1][swapped["leader"]])


def test_sequences_have_no_margin_where_nothing_can_change(tmp_path):
    model = SequenceClassifier.load(
        bundle_of([{"sequence": [[1.0]], "label": "only"}], tmp_path / "one"), RUNTIME
    )
    assert model.classify([np.array([[5.0]])]) == [{"label": "only", "margin": None, "leader": 0}]


@pytest.mark.parametrize("x", [1e9, -1e200, 1.7e308])
def test_sequences_far_from_the_examples_get_an_answer(scenes, x):
    answer = scenes.classify([np.array([[x, -x], [0.0, x]])])[0]
    assert answer["label"] in scenes.labels
    assert answer["margin"] is None or np.isfinite(answer["margin"])


def test_sequences_refuse_what_float32_cannot_hold(tmp_path):
    model = SequenceClassifier.load(bundle_of(SCENES, tmp_path / "small", dtype="float32"), RUNTIME)
    assert labels_of(model.classify([np.array([VINE, SEA])])) == ["garden"]
    with pytest.raises(InvalidInput, match="not finite"):
        model.classify([np.array([[1e300, 0.0]])])


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"labels": "wine"}, "labels"),
        ({"outputs": None}, "outputs"),
        ({"outputs": {"width": 2}}, "outputs"),
        ({}, "model.onnx"),  # a graph of another kind
    ],
)
def test_sequences_refuse_a_bundle_that_breaks_the_contract(bundle, changes, param):
    graph = bundle.model if changes else (PRETRAINED_FOLDER / "dynamics" / "model.onnx").read_bytes()
    card = MappingProxyType({**bundle.card, **changes})
    with pytest.raises(BundleError) as exc_info:
        SequenceClassifier.load(dataclasses.replace(bundle, card=card, model=graph), RUNTIME)
    assert exc_info.value.param == param
    assert changes or "not tokens and mask" in exc_info.value.message
