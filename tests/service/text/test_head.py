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
from hypothesis import given
from hypothesis import strategies as st
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
PROPORTIONAL = DecisionRule(("negative", "neutral", "positive"), neutral_threshold=1.5)
NEVER_NEUTRAL = DecisionRule(("negative", "neutral", "positive"), neutral_threshold=0.0)


@given(
    rule=st.sampled_from([BINARY, MULTICLASS, PROPORTIONAL, NEVER_NEUTRAL, MULTI_LABEL]),
    logits=st.lists(st.one_of(st.floats(-9, 9), st.floats(-1e3, 1e3), st.floats(-1e-6, 1e-6)), min_size=3,
                    max_size=3),
)  # fmt: skip
def test_probabilities_as_printed_sum_to_one_in_the_order_of_the_logits(
    rule: DecisionRule, logits: list[float]
) -> None:
    """Rounding once took the whole remainder from the largest. Several labels at once are independent."""
    logits = logits[: rule.n_logits]
    probs = label_probabilities(rule, logits)
    assert tuple(probs) == rule.labels
    if rule is MULTI_LABEL:
        assert all(abs(p - 1 / (1 + math.exp(-min(x, 99)))) < 1e-6 if x > -99 else p == 0
                   for p, x in zip(probs.values(), logits, strict=True))  # fmt: skip
        return
    assert sum(Decimal(repr(p)) for p in probs.values()) == 1
    ends = logits if len(logits) > 1 else [-logits[0], logits[0]]
    names = [name for name in probs if name != "neutral"]
    assert all(
        probs[a] >= probs[b]
        for a, x in zip(names, ends, strict=True) for b, y in zip(names, ends, strict=True) if x > y
    )  # fmt: skip
    assert rule is not NEVER_NEUTRAL or probs["neutral"] == 0
    answer = {"label": names[0], "score": probs[names[0]], "probs": probs, "abstain_reason": LOW_CONFIDENCE}
    assert sum(Decimal(repr(p)) for p in abstain_as_neutral(answer)["probs"].values()) == 1


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
