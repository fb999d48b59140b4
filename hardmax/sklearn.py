"""A model of hardmax as a scikit-learn classifier of texts. Needs scikit-learn."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from hardmax.answers import EMPTY, Answers
from hardmax.api import Api
from hardmax.client import Client
from hardmax.errors import InvalidInput
from hardmax.transport import DEFAULT_URL

NEUTRAL = "neutral"
Abstain = Literal["label", "neutral", "raise"]


class HardmaxClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Classifies texts with a model that is trained already; `fit` only checks the labels.

    Use it for the metrics and plots of scikit-learn, or to compare with other classifiers.

    Args:
        model: The name of the model; the server's default model if None.
        url: The address of the server.
        api_key: The API key, if the server needs one.
        client: A `Client` or `Local` to use instead of the server at `url`.
        abstain: What `predict` answers where the model abstains: "label" is its most probable label,
            "neutral" the label neutral; "raise" is an error. A blank text or missing value has no label, and
            is neutral in the first case too.

    Attributes:
        classes_: The labels of the model, sorted.
        abstentions_: The number of texts on which the model abstained in the last call, by reason.

    Examples:
        >>> from hardmax import Local
        >>> from hardmax.sklearn import HardmaxClassifier
        >>> HardmaxClassifier(client=Local()).predict(["A superb film."]).tolist()
        ['positive']
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        url: str = DEFAULT_URL,
        api_key: str | None = None,
        client: Api | None = None,
        abstain: Abstain = "label",
    ) -> None:
        self.model = model
        self.url = url
        self.api_key = api_key
        self.client = client
        self.abstain = abstain

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Check that the model has the labels in `y`; nothing is trained.

        Args:
            X: Ignored.
            y: The labels, or None.

        Raises:
            InvalidInput: The model lacks a label.
        """
        unknown = set() if y is None else {str(label) for label in y} - set(self.classes_)
        if unknown:
            labels = ", ".join(self.classes_)
            raise InvalidInput(f"the model has no label {min(unknown)!r}; it has {labels}", param="y")
        return self

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels of the model, sorted."""
        model = (self.model, self.url, self.client)  # set_params may change them
        if vars(self).get("_model") != model:
            self._labels = sorted(self._classify(["a text"])[0].probs)
            self._model = model
        return np.array(self._labels)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label of each text.

        Args:
            X: Texts: a list, an array or a column of a table.

        Returns:
            An array of shape (n,).

        Raises:
            InvalidInput: The model abstains on a text, and `abstain` is "raise".
        """
        if self.abstain not in get_args(Abstain):
            raise InvalidInput(f"abstain is one of {', '.join(get_args(Abstain))}", param="abstain")
        labels = []
        for answer in self._classify(X):
            if answer.abstain_reason and self.abstain == "raise":
                problem = f"the model abstains on text {answer.index}: {answer.abstain_reason}"
                raise InvalidInput(problem, param=f"X[{answer.index}]")
            is_neutral = answer.abstain_reason and (self.abstain == NEUTRAL or answer.abstain_reason == EMPTY)
            labels.append(NEUTRAL if is_neutral else answer.label)
        return np.array(labels, dtype=str)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each label for each text.

        Args:
            X: Texts: a list, an array or a column of a table.

        Returns:
            An array of shape (n, number of labels), in the order of `classes_`. To a blank text or missing
            value all labels are equally probable.
        """
        classes = [str(label) for label in self.classes_]
        unknown = dict.fromkeys(classes, 1 / len(classes))
        answers = [answer.probs or unknown for answer in self._classify(X)]
        rows = [[probs[label] for label in classes] for probs in answers]
        return np.array(rows, dtype=np.float64).reshape(-1, len(classes))

    def _classify(self, texts: Any) -> Answers:
        if isinstance(texts, str):
            raise InvalidInput("expected many texts, not one: put it into a list", param="X")
        with nullcontext(self.client) if self.client else Client(self.url, api_key=self.api_key) as client:
            answers: Answers = client.classify(texts, model=self.model, explain="none")
        reasons = [answer.abstain_reason for answer in answers if answer.abstain_reason]
        self.abstentions_ = dict(Counter(reasons))
        return answers

    def __sklearn_clone__(self) -> Self:
        """Return an equal classifier that shares the client: connections cannot be copied."""
        return type(self)(**self.get_params(deep=False))

    def __sklearn_is_fitted__(self) -> bool:
        return True
