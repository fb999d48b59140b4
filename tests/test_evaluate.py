"""Evaluation through the served classifier, and what the bundled models promise about short texts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from model_export.cli import main
from model_export.corpus import Corpus
from model_export.evaluate import Counts, describe, evaluate
from service.bundle import read_bundle
from service.errors import InvalidInput
from service.runtime import Runtime
from service.sentiment import Sentiment

MODELS = Path(__file__).parent.parent / "service" / "models"
TEXTS = (
    "A superb film, moving and funny. I loved every minute of it.",
    "A complete waste of time: dull, badly acted and far too long.",
    "Wonderful performances and a great story; highly recommended.",
    "The worst movie I have seen, boring and stupid from the start.",
)


@pytest.fixture
def reviews() -> Corpus:
    return Corpus(TEXTS, np.array([1, 0, 1, 0], dtype=np.int8), np.arange(4), "written")


def test_report_is_of_the_served_answers(reviews):
    report = evaluate(MODELS / "sentiment", reviews)
    assert report.scores.accuracy == 1.0
    assert report.scores.confusion == ((2, 0), (0, 2))
    assert report.mistakes == ()
    assert 1 <= report.clusters.least <= report.clusters.average <= report.tokens.average
    assert report.cluster_share == pytest.approx(report.clusters.average / report.tokens.average)
    assert "accuracy 100.00 %" in describe(report)


def test_worst_mistakes_come_surest_first(reviews):
    wrong = Corpus(TEXTS, 1 - reviews.labels, reviews.blocks, "turned round")
    report = evaluate(MODELS / "sentiment", wrong, mistakes=3)
    regret = [m.probability if m.truth == 0 else 1 - m.probability for m in report.mistakes]
    assert len(regret) == 3
    assert regret == sorted(regret, reverse=True)


def test_only_sentiment_can_be_evaluated(reviews):
    with pytest.raises(InvalidInput, match="kind dynamics, not sentiment"):
        evaluate(MODELS / "dynamics", reviews)


def test_counts_summarise():
    assert Counts.of(np.array([1, 3])) == Counts(average=2.0, deviation=1.0, least=1, most=3)


def test_the_command_prints_json(tmp_path, capsys):
    rows = [json.dumps({"text": t, "label": y}) for t, y in zip(TEXTS, (1, 0, 1, 0), strict=True)]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    assert (
        main(["evaluate", str(MODELS / "sentiment-2d"), "--data", str(tmp_path / "a.jsonl"), "--json"]) == 0
    )
    (report,) = json.loads(capsys.readouterr().out)
    assert (report["model"], report["scores"]["texts"]) == ("sentiment-2d", 4)


BUNDLED = pytest.mark.parametrize("name", ["sentiment", "sentiment-2d", "sentiment-16d"])


def _positive(texts: tuple[str, ...], name: str = "sentiment") -> list[float]:
    model = Sentiment.load(read_bundle(MODELS / name), Runtime("cpu"))
    answers = model.classify(model.tokenise_many(texts), "none")
    return [answer["probs"]["positive"] for answer in answers]


@BUNDLED
def test_bundled_models_understand_negation_they_were_not_shown(name):
    not_good, wanted, not_bad = _positive(
        ("not good", "I wanted to love this but could not", "not bad at all"), name
    )
    assert not_good < 0.5
    assert wanted < 0.5
    assert not_bad > 0.5


@BUNDLED
def test_bundled_models_turn_an_opinion_round(name):
    assert (
        min(_positive(("never boring", "It was never dull.", "hardly disappointing", "not awful"), name))
        > 0.5
    )
    assert max(_positive(("never funny", "not great", "The film is never interesting."), name)) < 0.5


@BUNDLED
def test_bundled_models_know_single_words(name):
    assert min(_positive(("good", "great", "excellent", "wonderful", "very good"), name)) > 0.5
    assert max(_positive(("bad", "awful", "terrible", "boring", "poor", "very bad"), name)) < 0.45


@BUNDLED
def test_bundled_models_are_unsure_of_what_they_cannot_know(name):
    for p in _positive(("qwxz vbnmk zzyx", "the", "I watched it on Tuesday with my sister."), name):
        assert 0.4 < p < 0.6


@BUNDLED
def test_bundled_models_really_cluster(name):
    card = read_bundle(MODELS / name).card
    assert card["alpha"] >= 0.5
    assert card["figures"]["validation"]["share"] <= 0.25
