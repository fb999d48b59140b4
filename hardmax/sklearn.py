"""A model of hardmax as a scikit-learn classifier of texts. Needs scikit-learn."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from hardmax.answers import Answers
from hardmax.api import Api
from hardmax.client import Client
from hardmax.errors import InvalidInput
from hardmax.transport import DEFAULT_URL


class HardmaxClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Classifies texts with a model that is trained already; `fit` only checks the labels.

    Use it for the metrics and plots of scikit-learn, or to compare with other classifiers.

    Args:
        model: The name of the model; the server's default model if None.
        url: The address of the server.
        api_key: The API key, if the server needs one.
        client: A `Client` or `Local` to use instead of the server at `url`.

    Attributes:
        classes_: The labels of the model, sorted.

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
    ) -> None:
        self.model = model
        self.url = url
        self.api_key = api_key
        self.client = client

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
        """
        return np.array([answer.label for answer in self._classify(X)], dtype=str)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each label for each text.

        Args:
            X: Texts: a list, an array or a column of a table.

        Returns:
            An array of shape (n, number of labels), in the order of `classes_`.
        """
        classes = [str(label) for label in self.classes_]
        rows = [[answer.probs[label] for label in classes] for answer in self._classify(X)]
        return np.array(rows, dtype=np.float64).reshape(-1, len(classes))

    def _classify(self, texts: Any) -> Answers:
        if isinstance(texts, str):
            raise InvalidInput("expected many texts, not one: put it into a list", param="X")
        with nullcontext(self.client) if self.client else Client(self.url, api_key=self.api_key) as client:
            answers: Answers = client.classify(texts, model=self.model, explain="none")
        return answers

    def __sklearn_clone__(self) -> Self:
        """Return an equal classifier that shares the client: connections cannot be copied."""
        return type(self)(self.model, url=self.url, api_key=self.api_key, client=self.client)

    def __sklearn_is_fitted__(self) -> bool:
        return True
