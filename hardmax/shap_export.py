"""Contributions of words and clusters in the shape of SHAP values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import InvalidInput
from hardmax.models.texts import Classification, number_of


@dataclass(frozen=True)
class ShapExplanation:
    """The fields of `shap.Explanation` for one text, if shap is not installed."""

    values: NDArray[np.float64]
    base_values: float
    data: NDArray[Any]
    feature_names: list[str]


def explain_as_shap(answer: Classification, label: str) -> Any:
    """Return the contributions to the logit of a label as `shap.Explanation` or ShapExplanation."""
    if label not in answer.probs:
        raise InvalidInput(f"there is no label {label!r}; there are {', '.join(answer.probs)}", param="label")
    if answer.words:
        kind, texts = "word", [word.word for word in answer.words]
        contributions = [word.contribution for word in answer.words]
    elif answer.clusters:
        kind, texts = "cluster", [", ".join(cluster.leaders) for cluster in answer.clusters]
        contributions = [cluster.contribution for cluster in answer.clusters]
    else:
        raise InvalidInput('there are no contributions: classify with explain="leaders" or "full"')
    fields: dict[str, Any] = {
        "values": np.array([number_of(contribution, label) for contribution in contributions]),
        "base_values": number_of(answer.bias, label),
        "data": np.array(texts, dtype=object),
        "feature_names": [f"{kind} {number}" for number in range(1, len(texts) + 1)],
    }
    try:
        from shap import Explanation
    except ImportError:
        return ShapExplanation(**fields)
    return Explanation(**fields)
