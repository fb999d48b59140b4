"""A model as a classifier of scikit-learn."""

import json
from collections.abc import Iterator

import httpx
import numpy as np
import pandas
import pytest
from sklearn.base import clone, is_classifier
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from hardmax import Client, InvalidInput
from hardmax.sklearn import HardmaxClassifier

ENTRY = {"logit": 0.0, "bias": 0.0, "n_words": 1, "truncated": False}


def by_length(request: httpx.Request) -> httpx.Response:
    """Classify texts of four letters and more as long, with a probability that grows with the length."""
    data = []
    for index, text in enumerate(json.loads(request.content)["input"]):
        long = len(text) / (len(text) + 3.5)
        label = "long" if long > 0.5 else "brief"
        probs = {"long": long, "brief": 1 - long}
        data.append({**ENTRY, "index": index, "label": label, "score": probs[label], "probs": probs})
    return httpx.Response(200, json={"id": "r", "model": "m", "data": data})


@pytest.fixture
def classifier() -> Iterator[HardmaxClassifier]:
    with Client("http://test", transport=httpx.MockTransport(by_length)) as client:
        yield HardmaxClassifier(client=client)


def test_classifier_predicts_labels_and_their_probabilities(classifier: HardmaxClassifier) -> None:
    texts = np.array(["abcdefg", "a"])
    assert classifier.classes_.tolist() == ["brief", "long"]
    assert classifier.predict(texts).tolist() == ["long", "brief"]
    expected = [[3.5 / 10.5, 7 / 10.5], [3.5 / 4.5, 1 / 4.5]]
    assert classifier.predict_proba(texts) == pytest.approx(np.array(expected))
    assert classifier.predict_proba([]).shape == (0, 2)
    assert classifier.predict([]).shape == (0,)


def test_classifier_works_with_the_tools_of_scikit_learn(classifier: HardmaxClassifier) -> None:
    texts, labels = ["abcdefg", "a", "abcdef", "ab"] * 3, ["long", "brief", "long", "long"] * 3
    assert is_classifier(classifier)
    assert clone(classifier).get_params() == classifier.get_params()
    assert accuracy_score(labels, classifier.predict(texts)) == 0.75
    assert cross_val_score(classifier, texts, labels, cv=3).mean() == 0.75
    assert make_pipeline(classifier).fit(texts, labels).score(texts, labels) == 0.75
    proba = classifier.predict_proba(texts)
    assert log_loss(labels, proba, labels=classifier.classes_) == pytest.approx(
        -np.log([p[list(classifier.classes_).index(y)] for p, y in zip(proba, labels, strict=True)]).mean()
    )


def test_classifier_refuses_labels_that_the_model_lacks(classifier: HardmaxClassifier) -> None:
    with pytest.raises(InvalidInput, match="no label 'other'; it has brief, long"):
        classifier.fit(["a"], ["other"])
    assert classifier.fit(["a"], ["long"]) is classifier


def test_classifier_refuses_what_is_no_list_of_texts(classifier: HardmaxClassifier) -> None:
    for texts in ("Superb", pandas.DataFrame({"review": ["a"]})):
        with pytest.raises(InvalidInput):
            classifier.predict(texts)


def test_classifier_has_the_labels_of_the_model_that_was_set_last() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        label = json.loads(request.content)["model"]
        entry = {**ENTRY, "index": 0, "label": label, "score": 1.0, "probs": {label: 1.0}}
        return httpx.Response(200, json={"id": "r", "model": label, "data": [entry]})

    with Client("http://test", transport=httpx.MockTransport(answer)) as client:
        classifier = HardmaxClassifier("joy", client=client)
        assert classifier.classes_.tolist() == ["joy"]
        classifier.set_params(model="anticipation")
        assert classifier.classes_.tolist() == ["anticipation"]
        assert classifier.predict(["a"]).tolist() == ["anticipation"]
        assert classifier.predict_proba(["a"]).tolist() == [[1.0]]


def abstaining(request: httpx.Request) -> httpx.Response:
    """Abstain on texts with a question mark."""
    probs = {"positive": 0.6, "negative": 0.4}
    data = [
        {**ENTRY, "index": i, "label": "positive", "score": 0.6, "probs": probs,
         "abstain_reason": "low_confidence" if "?" in text else None}
        for i, text in enumerate(json.loads(request.content)["input"])
    ]  # fmt: skip
    return httpx.Response(200, json={"id": "r", "model": "m", "data": data})


def test_classifier_predicts_what_it_is_told_where_the_model_abstains() -> None:
    texts = pandas.Series(["good", "good?", "", None])
    with Client("http://test", transport=httpx.MockTransport(abstaining)) as client:
        labels = HardmaxClassifier(client=client)
        neutral = HardmaxClassifier(client=client, abstain="neutral")
        assert labels.predict(texts).tolist() == ["positive", "positive", "neutral", "neutral"]
        assert neutral.predict(texts).tolist() == ["positive", "neutral", "neutral", "neutral"]
        assert neutral.abstentions_ == {"low_confidence": 1, "empty": 2}
        assert labels.predict_proba(texts).tolist() == [[0.4, 0.6]] * 2 + [[0.5, 0.5]] * 2
        with pytest.raises(InvalidInput, match="the model abstains on text 1: low_confidence"):
            clone(labels).set_params(abstain="raise").predict(texts)
        with pytest.raises(InvalidInput, match="abstain is one of label, neutral, raise"):
            HardmaxClassifier(client=client, abstain="never").predict(texts)  # type: ignore[arg-type]
