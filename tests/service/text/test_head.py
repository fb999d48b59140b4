"""Labels and label_probabilities, what is abstain_reason, and what protocols hear that know only labels."""

import math
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bundles import FakeGpuRuntime, load_encoder, load_head, write_head
from graphs import change_graph, negate_contributions
from onnx import numpy_helper

from service.errors import BundleError, InferenceError
from service.runtime.bundle import read_bundle
from service.runtime.session import Runtime
from service.text.decision import (
    LOW_CONFIDENCE,
    NO_KNOWN_WORDS,
    DecisionRule,
    abstain_as_neutral,
    abstain_reason,
    describe_labels,
    label_probabilities,
    read_decision_rule,
)
from service.text.head import Head
from service.text.pipeline import ClassifyOptions, classify_all, make_tasks

TWO = DecisionRule(("negative", "positive"), 0.15, 0.5, None)
THREE = DecisionRule(("a", "b", "c"), 0.1, 0.5, None)
SEVERAL = DecisionRule(("a", "b", "c"), 0.1, 0.5, (0.5, 0.2, 0.9))


@pytest.mark.parametrize("logits", [[0.0], [3.3], [-800.0], [800.0], [1e-9]])
def test_probabilities_of_two_labels_sum_to_one_as_printed(logits: list[float]) -> None:
    found = label_probabilities(TWO, logits)
    assert round(sum(found.values()), 12) == 1
    assert (found["positive"] > found["negative"]) == (logits[0] > 1e-7)


def test_probabilities_of_labels_that_exclude_each_other_sum_to_one() -> None:
    assert round(sum(label_probabilities(THREE, [1 / 3, 1e3, -1e3]).values()), 12) == 1
    assert label_probabilities(THREE, [0.0, 0.0, 0.0]) == {"a": 0.3333334, "b": 0.3333333, "c": 0.3333333}


def test_labels_that_do_not_exclude_each_other_are_told_one_by_one() -> None:
    assert label_probabilities(SEVERAL, [0.0, 100.0, -100.0]) == {"a": 0.5, "b": 1.0, "c": 0.0}


@pytest.mark.parametrize(
    ("rule", "probs", "known", "words", "why"),
    [
        (TWO, {"negative": 0.1, "positive": 0.9}, 5, 5, None),
        (TWO, {"negative": 0.1, "positive": 0.9}, 2, 4, None),
        (TWO, {"negative": 0.1, "positive": 0.9}, 1, 4, NO_KNOWN_WORDS),
        (TWO, {"negative": 0.1, "positive": 0.9}, 0, 0, NO_KNOWN_WORDS),
        (TWO, {"negative": 0.36, "positive": 0.64}, 5, 5, LOW_CONFIDENCE),
        (TWO, {"negative": 0.34, "positive": 0.66}, 5, 5, None),
        (THREE, {"a": 0.45, "b": 0.4, "c": 0.15}, 5, 5, LOW_CONFIDENCE),
        (SEVERAL, {"a": 0.5, "b": 0.5, "c": 0.5}, 5, 5, None),
    ],
)
def test_verdict_is_undecided_where_little_is_known_or_labels_are_even(
    rule: DecisionRule, probs: dict[str, float], known: int, words: int, why: str | None
) -> None:
    assert abstain_reason(rule, probs, known, words) == why


def test_undecided_verdict_becomes_neutral_with_what_it_lacks_of_a_lead() -> None:
    probs = {"negative": 0.4, "positive": 0.6}
    even = abstain_as_neutral(
        {"label": "positive", "score": 0.6, "probs": probs, "abstain_reason": LOW_CONFIDENCE}
    )
    assert (even["label"], even["score"]) == ("neutral", 0.8)
    assert even["probs"] == {"negative": 0.08, "positive": 0.12, "neutral": 0.8}
    nothing = abstain_as_neutral(
        {"label": "positive", "score": 0.6, "probs": probs, "abstain_reason": NO_KNOWN_WORDS}
    )
    assert (nothing["score"], nothing["probs"]["positive"]) == (1.0, 0.0)
    sure = {"label": "positive", "score": 0.6, "probs": probs, "abstain_reason": None}
    assert abstain_as_neutral(sure) is sure


def test_neutral_and_the_other_labels_sum_to_one_as_printed() -> None:
    for probs in (
        {"a": 0.3461746, "b": 0.3623123, "c": 0.2915131},
        {"a": 0.3461746, "neutral": 0.3623123, "c": 0.2915131},
    ):
        found = abstain_as_neutral(
            {"label": "a", "score": 0.3461746, "probs": probs, "abstain_reason": LOW_CONFIDENCE}
        )
        assert sum(Decimal(repr(p)) for p in found["probs"].values()) == 1


def test_several_labels_may_hold(folder: Path, head: Head) -> None:
    card = {"labels": ["a", "b"], "multi_label": {"thresholds": [0.0, 1.0]}}
    several = load_head(folder, "several", encoder=head.encoder, **card)
    ((found,),) = classify_all(make_tasks(["a superb film"], ClassifyOptions((several,))))
    assert (found["labels"], set(found["logit"])) == (["a"], {"a", "b"})


PROPORTIONAL = DecisionRule(("negative", "neutral", "positive"), neutral_threshold=1.5)


@pytest.mark.parametrize(
    ("logit", "probs"),
    [
        (0.0, {"negative": 0.1824255, "neutral": 0.635149, "positive": 0.1824255}),
        (1.5, {"negative": 0.0474259, "neutral": 0.4525741, "positive": 0.5}),
        (-4.0, {"negative": 0.9241418, "neutral": 0.0717881, "positive": 0.0040701}),
    ],
)
def test_three_labels_come_from_one_logit(logit: float, probs: dict[str, float]) -> None:
    """Proportional odds: P(positive) = s(logit - t), P(negative) = s(-logit - t), neutral the rest."""
    assert label_probabilities(PROPORTIONAL, [logit]) == probs
    assert sum(Decimal(repr(p)) for p in probs.values()) == 1


def test_labels_of_a_card_are_those_of_its_answers_by_index() -> None:
    described = describe_labels({"labels": ["negative", "positive"], "neutral_threshold": 1.0})
    assert described["labels"] == ["negative", "neutral", "positive"]
    assert described["id2label"] == {"0": "negative", "1": "neutral", "2": "positive"}
    assert describe_labels({"labels": ["b", "a"]}) == {"labels": ["b", "a"], "id2label": {"0": "b", "1": "a"}}


def test_threshold_of_zero_leaves_nothing_to_neutral() -> None:
    rule = DecisionRule(("negative", "neutral", "positive"), neutral_threshold=0.0)
    for logit in np.linspace(-9, 9, 999).tolist():
        probs = label_probabilities(rule, [logit])
        assert (probs["neutral"], round(probs["negative"] + probs["positive"], 7)) == (0.0, 1.0)


def test_card_with_a_neutral_threshold_answers_three_labels_and_has_no_band(tmp_path: Path) -> None:
    sure, even = load_head(tmp_path, neutral_threshold=0.5, even=0.3), load_head(tmp_path / "two", even=0.3)
    ((answer,),) = classify_all(make_tasks(["the film"], ClassifyOptions((sure,))))
    ((before,),) = classify_all(make_tasks(["the film"], ClassifyOptions((even,))))
    assert list(answer["probs"]) == ["negative", "neutral", "positive"]
    assert (answer["logit"], answer["bias"], answer["leaders"]) == (
        before["logit"],
        before["bias"],
        before["leaders"],
    )
    assert answer["label"] == max(answer["probs"], key=answer["probs"].__getitem__)
    assert (answer["abstain_reason"], sure.rule.n_logits) == (None, 1)


@pytest.mark.parametrize(
    "card",
    [
        {"neutral_threshold": -1},
        {"neutral_threshold": "1"},
        {"neutral_threshold": float("1e9")},
        {"neutral_threshold": 1, "labels": ["a", "b", "c"]},
    ],
)
def test_neutral_threshold_that_makes_no_sense_is_refused(card: dict[str, Any]) -> None:
    with pytest.raises(BundleError) as refused:
        read_decision_rule({"labels": ["negative", "positive"], **card})
    assert refused.value.param == "neutral_threshold"


@pytest.mark.parametrize("labels", [[f"label {i}" for i in range(1_001)], ["a", "b" * 201]])
def test_labels_are_bounded_in_number_and_length(labels: list[str]) -> None:
    with pytest.raises(BundleError) as refused:
        read_decision_rule({"labels": labels})
    assert refused.value.param == "labels"


def change_weight(folder: Path, name: str, value: float) -> None:
    def change(model: onnx.ModelProto) -> None:
        (weight,) = [each for each in model.graph.initializer if each.name == name]
        weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * 0 + value, name))

    change_graph(folder, change)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300])
@pytest.mark.parametrize("weight", ["b", "v"])
def test_head_with_numbers_that_are_not_finite_is_refused_by_name(
    tmp_path: Path, head: Head, weight: str, value: float
) -> None:
    write_head(tmp_path)
    change_weight(tmp_path / "tiny", weight, value)
    with pytest.raises(BundleError, match=r"tiny: .*not finite"):
        Head.load(read_bundle(tmp_path / "tiny"), Runtime("cpu", 1), head.encoder)


def test_number_that_becomes_infinite_at_run_time_is_an_error_by_name(folder: Path, head: Head) -> None:
    bad = load_head(folder, "bad", encoder=head.encoder)
    bad.weights["b"] = bad.weights["b"] + np.inf
    with pytest.raises(InferenceError, match="bad: its graph returned numbers that are not finite"):
        classify_all(make_tasks(["a superb film"], ClassifyOptions((bad,))))


def test_gpu_runs_heads_on_their_float_graph_with_the_answers_of_the_cpu(tmp_path: Path) -> None:
    texts = ["a superb film", "an awful film", "the film was good " * 40]
    encoder = load_encoder(tmp_path)
    names = ("one", "other", "several")
    for name in names:
        write_head(tmp_path, name, seed=len(name), **({"labels": list("abc")} if name == "several" else {}))
    on_gpu = FakeGpuRuntime()
    answers = []
    for runtime in (Runtime("cpu", 1), on_gpu):
        heads = tuple(Head.load(read_bundle(tmp_path / name), runtime, encoder) for name in names)
        answers.append(classify_all(make_tasks(texts, ClassifyOptions(heads, "full"))))
    assert answers[0] == answers[1]
    assert len(on_gpu.opened) == 1  # heads of one family share the session
    assert on_gpu.opened[0] == read_bundle(tmp_path / "one").float_model


def test_float_graph_of_a_head_with_values_of_its_own_for_weights_is_refused(tmp_path: Path) -> None:
    """Its answers would not be those of model.onnx."""
    encoder, bundle = load_encoder(tmp_path), write_head(tmp_path)
    with pytest.raises(BundleError, match="its graph has"):
        Head.load(replace(bundle, float_model=bundle.model + b"\x12\x00"), FakeGpuRuntime(), encoder)


@pytest.mark.parametrize("location", ["/etc/passwd", "../../secret", "model.onnx"])
def test_head_that_names_a_file_is_refused(tmp_path: Path, location: str) -> None:
    def name_a_file(model: onnx.ModelProto) -> None:
        (tensor,) = [each for each in model.graph.initializer if each.name == "turn"]
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)

    write_head(tmp_path)
    change_graph(tmp_path / "tiny", name_a_file)
    with pytest.raises(BundleError, match="names files"):
        Head.load(read_bundle(tmp_path / "tiny"), Runtime("cpu", 1), load_encoder(tmp_path))


def save_again(model: onnx.ModelProto) -> None:
    """Another tool writes the same graph: nothing changes but what the file says about its maker."""
    model.producer_name, model.doc_string = "another tool", "optimized"
    model.graph.node[0].doc_string = "first"


@pytest.mark.parametrize("change", [negate_contributions, save_again])
@pytest.mark.parametrize("first", [True, False])
def test_bundle_never_changes_the_answers_of_another(tmp_path: Path, change: Any, first: bool) -> None:
    """Sharing a graph was decided by what its metadata said."""
    texts = ["a superb film", "an awful film", "the film was good"]
    alone = classify_all(make_tasks(texts, ClassifyOptions((load_head(tmp_path / "alone"),))))
    encoder, runtime = load_encoder(tmp_path), Runtime("cpu", 1)
    for name in ("mine", "stranger"):
        write_head(tmp_path, name)
    change_graph(tmp_path / "stranger", change)
    order = ("stranger", "mine") if first else ("mine", "stranger")
    heads = {name: Head.load(read_bundle(tmp_path / name), runtime, encoder) for name in order}
    assert classify_all(make_tasks(texts, ClassifyOptions((heads["mine"],)))) == alone
    both = classify_all(make_tasks(texts, ClassifyOptions((heads["mine"], heads["stranger"]))))
    assert [[answer] for answer, _ in both] == alone
    if change is negate_contributions:
        logits = [stranger["logit"] - stranger["bias"] for _, stranger in both]
        assert np.allclose(logits, [answer["bias"] - answer["logit"] for (answer,) in alone])


def test_heads_with_the_same_graph_share_a_session(tmp_path: Path) -> None:
    encoder = load_encoder(tmp_path)
    one, two = (load_head(tmp_path, name, encoder=encoder, seed=i) for i, name in enumerate(("one", "two")))
    assert one.session is two.session
    assert not np.array_equal(one.weights["first"], two.weights["first"])
