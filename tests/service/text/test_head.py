"""Heads: labels and their probabilities, abstention, weights that are not finite, and shared graphs."""

import math
from collections.abc import Sequence
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
from service.runtime.session import Arrays, Runtime, Session
from service.runtime.watchdog import Watchdog
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

BINARY = DecisionRule(("negative", "positive"), 0.15, 0.5, None)
MULTICLASS = DecisionRule(("a", "b", "c"), 0.1, 0.5, None)
MULTI_LABEL = DecisionRule(("a", "b", "c"), 0.1, 0.5, (0.5, 0.2, 0.9))


@pytest.mark.parametrize("logits", [[0.0], [3.3], [-800.0], [800.0], [1e-9]])
def test_probabilities_of_two_labels_sum_to_one_as_printed(logits: list[float]) -> None:
    probs = label_probabilities(BINARY, logits)
    assert round(sum(probs.values()), 12) == 1
    assert (probs["positive"] > probs["negative"]) == (logits[0] > 1e-7)


def test_probabilities_of_labels_that_exclude_each_other_sum_to_one() -> None:
    assert round(sum(label_probabilities(MULTICLASS, [1 / 3, 1e3, -1e3]).values()), 12) == 1
    assert label_probabilities(MULTICLASS, [0.0] * 3) == {"a": 0.3333334, "b": 0.3333333, "c": 0.3333333}


def test_rounding_keeps_the_order_of_labels() -> None:
    """Half units added up, and the whole remainder was once taken from the largest."""
    probs = label_probabilities(MULTICLASS, [4e-7, 3e-7, 0.0])
    assert max(probs, key=probs.__getitem__) == "a"
    assert round(sum(probs.values()), 12) == 1


def test_multi_label_probabilities_are_independent() -> None:
    assert label_probabilities(MULTI_LABEL, [0.0, 100.0, -100.0]) == {"a": 0.5, "b": 1.0, "c": 0.0}


@pytest.mark.parametrize(
    ("rule", "probs", "n_known", "n_words", "reason"),
    [
        (BINARY, {"negative": 0.1, "positive": 0.9}, 5, 5, None),
        (BINARY, {"negative": 0.1, "positive": 0.9}, 2, 4, None),
        (BINARY, {"negative": 0.1, "positive": 0.9}, 1, 4, NO_KNOWN_WORDS),
        (BINARY, {"negative": 0.1, "positive": 0.9}, 0, 0, NO_KNOWN_WORDS),
        (BINARY, {"negative": 0.36, "positive": 0.64}, 5, 5, LOW_CONFIDENCE),
        (BINARY, {"negative": 0.34, "positive": 0.66}, 5, 5, None),
        (MULTICLASS, {"a": 0.45, "b": 0.4, "c": 0.15}, 5, 5, LOW_CONFIDENCE),
        (MULTI_LABEL, {"a": 0.5, "b": 0.5, "c": 0.5}, 5, 5, None),
    ],
)
def test_abstain_reason_is_given_where_few_words_are_known_or_labels_are_close(
    rule: DecisionRule, probs: dict[str, float], n_known: int, n_words: int, reason: str | None
) -> None:
    assert abstain_reason(rule, probs, n_known, n_words) == reason


def test_abstention_becomes_neutral_with_the_share_of_the_margin_that_is_missing() -> None:
    answer: dict[str, Any] = {"label": "positive", "score": 0.6, "probs": {"negative": 0.4, "positive": 0.6}}
    close = abstain_as_neutral(answer | {"abstain_reason": LOW_CONFIDENCE})
    assert (close["label"], close["score"]) == ("neutral", 0.8)
    assert close["probs"] == {"negative": 0.08, "positive": 0.12, "neutral": 0.8}
    unknown = abstain_as_neutral(answer | {"abstain_reason": NO_KNOWN_WORDS})
    assert (unknown["score"], unknown["probs"]["positive"]) == (1.0, 0.0)
    confident = answer | {"abstain_reason": None}
    assert abstain_as_neutral(confident) is confident


def test_neutral_and_the_other_labels_sum_to_one_as_printed() -> None:
    for probs in (
        {"a": 0.3461746, "b": 0.3623123, "c": 0.2915131},
        {"a": 0.3461746, "neutral": 0.3623123, "c": 0.2915131},
    ):
        answer = abstain_as_neutral(
            {"label": "a", "score": 0.3461746, "probs": probs, "abstain_reason": LOW_CONFIDENCE}
        )
        assert sum(Decimal(repr(p)) for p in answer["probs"].values()) == 1


def test_multi_label_answer_lists_the_labels_over_their_thresholds(folder: Path, head: Head) -> None:
    card = {"labels": ["a", "b"], "multi_label": {"thresholds": [0.0, 1.0]}}
    multi_label = load_head(folder, "several", encoder=head.encoder, **card)
    ((answer,),) = classify_all(make_tasks(["a superb film"], ClassifyOptions((multi_label,))))
    assert (answer["labels"], set(answer["logit"])) == (["a"], {"a", "b"})


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


def test_threshold_of_zero_gives_neutral_no_probability() -> None:
    rule = DecisionRule(("negative", "neutral", "positive"), neutral_threshold=0.0)
    for logit in np.linspace(-9, 9, 999).tolist():
        probs = label_probabilities(rule, [logit])
        assert (probs["neutral"], round(probs["negative"] + probs["positive"], 7)) == (0.0, 1.0)


def test_card_with_a_neutral_threshold_answers_three_labels_and_never_abstains(tmp_path: Path) -> None:
    three = load_head(tmp_path, neutral_threshold=0.5, abstain_margin=0.3)
    two = load_head(tmp_path / "two", abstain_margin=0.3)
    ((answer,),) = classify_all(make_tasks(["the film"], ClassifyOptions((three,))))
    ((binary,),) = classify_all(make_tasks(["the film"], ClassifyOptions((two,))))
    assert list(answer["probs"]) == ["negative", "neutral", "positive"]
    assert all(answer[name] == binary[name] for name in ("logit", "bias", "leaders"))
    assert answer["label"] == max(answer["probs"], key=answer["probs"].__getitem__)
    assert (answer["abstain_reason"], three.rule.n_logits) == (None, 1)


@pytest.mark.parametrize(
    ("card", "param"),
    [
        *(({"neutral_threshold": value}, "neutral_threshold") for value in (-1, "1", 1e9)),
        ({"neutral_threshold": 1, "labels": ["a", "b", "c"]}, "neutral_threshold"),
        ({"labels": [f"label {i}" for i in range(1_001)]}, "labels"),
        ({"labels": ["a", "b" * 201]}, "labels"),
        ({"labels": ["one"]}, "labels"),
        ({"labels": ["a", "a"]}, "labels"),
        ({"labels": ["a", 7]}, "labels"),
        ({"abstain_margin": -1}, "abstain_margin"),
        ({"abstain_margin": True}, "abstain_margin"),
        ({"min_known_share": 2}, "min_known_share"),
        ({"labels": ["a", "b", "c"], "multi_label": {}}, "multi_label"),
        ({"labels": ["a", "b", "c"], "multi_label": {"thresholds": [0.5]}}, "multi_label"),
    ],
)
def test_card_with_an_invalid_threshold_or_labels_is_refused(card: dict[str, Any], param: str) -> None:
    with pytest.raises(BundleError) as exc_info:
        read_decision_rule({"labels": ["negative", "positive"], **card})
    assert exc_info.value.param == param


def change_weight(folder: Path, name: str, value: float) -> None:
    def change(model: onnx.ModelProto) -> None:
        (weight,) = [weight for weight in model.graph.initializer if weight.name == name]
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


class Infinite(Session):
    """A session whose numbers are infinite."""

    def run(self, feeds: Arrays, outputs: Sequence[str]) -> list[Any]:
        return [array + np.inf for array in super().run(feeds, outputs)]


def test_number_that_becomes_infinite_at_run_time_is_an_error_by_name(folder: Path, head: Head) -> None:
    infinite = load_head(folder, "infinite", encoder=head.encoder)
    infinite.session = Infinite(infinite.session._session, "infinite", Watchdog())
    with pytest.raises(InferenceError, match="infinite: its graph returned numbers that are not finite"):
        classify_all(make_tasks(["a superb film"], ClassifyOptions((infinite,))))


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
    assert on_gpu.opened == [read_bundle(tmp_path / name).float_model for name in names]


def test_gpu_runs_the_cpu_graph_of_a_head_whose_float_graph_is_old(tmp_path: Path, head: Head) -> None:
    """Until 0.5 weights were fed to that graph."""
    bundle, runtime = write_head(tmp_path), FakeGpuRuntime()
    floats = onnx.load_from_string(bundle.float_model or b"")
    floats.graph.input.append(onnx.helper.make_tensor_value_info("a_weight", onnx.TensorProto.FLOAT, [1]))
    Head.load(replace(bundle, float_model=floats.SerializeToString()), runtime, head.encoder)
    assert runtime.opened[1:] == [bundle.model]


def test_head_whose_card_does_not_say_how_it_reads_names_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="fold_names is true or false"):
        load_head(tmp_path, fold_names="no")


@pytest.mark.parametrize("location", ["/etc/passwd", "../../secret", "model.onnx"])
def test_head_that_names_a_file_is_refused(tmp_path: Path, head: Head, location: str) -> None:
    def name_a_file(model: onnx.ModelProto) -> None:
        (tensor,) = [tensor for tensor in model.graph.initializer if tensor.name == "quarter_turn"]
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)

    write_head(tmp_path)
    change_graph(tmp_path / "tiny", name_a_file)
    with pytest.raises(BundleError, match="not a graph ONNX Runtime can load"):
        Head.load(read_bundle(tmp_path / "tiny"), Runtime("cpu", 1), head.encoder)


def save_again(model: onnx.ModelProto) -> None:
    """Change only what the file says about its producer, as a tool does that saves the same graph."""
    model.producer_name, model.doc_string = "another tool", "optimized"
    model.graph.node[0].doc_string = "first"


@pytest.mark.parametrize("change", [negate_contributions, save_again])
@pytest.mark.parametrize("order", [("stranger", "mine"), ("mine", "stranger")])
def test_bundle_never_changes_the_answers_of_another(
    tmp_path: Path, head: Head, change: Any, order: Any
) -> None:
    """Whether heads share a graph was once decided by its metadata."""
    texts = ["a superb film", "an awful film", "the film was good"]
    expected = classify_all(make_tasks(texts, ClassifyOptions((head,))))
    encoder, runtime = head.encoder, Runtime("cpu", 1)
    for name in ("mine", "stranger"):
        write_head(tmp_path, name)
    change_graph(tmp_path / "stranger", change)
    heads = {name: Head.load(read_bundle(tmp_path / name), runtime, encoder) for name in order}
    assert classify_all(make_tasks(texts, ClassifyOptions((heads["mine"],)))) == expected
    together = classify_all(make_tasks(texts, ClassifyOptions((heads["mine"], heads["stranger"]))))
    assert [[answer] for answer, _ in together] == expected
    if change is negate_contributions:
        logits = [stranger["logit"] - stranger["bias"] for _, stranger in together]
        assert np.allclose(logits, [answer["bias"] - answer["logit"] for (answer,) in expected])
