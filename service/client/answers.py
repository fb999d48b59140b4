"""What both clients, `remote` and `local`, take and give back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, TypedDict
from uuid import uuid4

from pydantic import Field

from service.client import display
from service.errors import needs
from service.schemas.clouds import DynamicsResponse, Include, Stop
from service.schemas.texts import Classification, ClassifyResponse, Usage


class DynamicsOptions(TypedDict, total=False):
    """How a cloud is run, as in the API."""

    alpha: float
    A: Any  # a symmetric positive definite matrix
    max_layers: int
    stop: Stop
    tolerance: float
    tie_tolerance: float
    include: Sequence[Include]
    trajectory_every: int


class Answer(Classification):
    """The answer to one text, which it keeps. In a notebook it shows its reason."""

    text: str = Field("", exclude=True)

    @classmethod
    def to(cls, text: str, answer: Classification, index: int) -> Self:
        """The answer as it came, at its place in the whole list."""
        return cls.model_construct(**{**dict(answer), "index": index, "text": text})

    def _repr_html_(self) -> str:
        return display.classification(self.text, self)


class CloudRun(DynamicsResponse):
    """What became of a cloud, which it keeps. In a notebook it shows leaders, limits and the way there."""

    points: Any = Field(None, exclude=True, repr=False)

    def _repr_html_(self) -> str:
        return display.cloud(self.points, self)


class Answers(list[Answer]):
    """One answer a text, in the order of the texts, by one model."""

    def __init__(self, model: str = "") -> None:
        super().__init__()
        self.id = uuid4().hex
        self.model = model

    def add(self, response: ClassifyResponse, texts: Sequence[str]) -> None:
        """The answers to the texts that come next."""
        self.id, self.model = response.id, response.model
        for text, answer in zip(texts, response.data, strict=True):
            self.append(Answer.to(text, answer, len(self)))

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row for each text: label, score, probabilities, and who leads."""
        try:
            import pandas
        except ImportError:
            raise ImportError(needs("to_frame()", "pandas", "notebook")) from None
        rows = [
            {
                "text": answer.text,
                "label": answer.label,
                "score": answer.score,
                **{f"p({label})": p for label, p in answer.probs.items()},
                "undecided": answer.undecided,
                "tokens": answer.tokens,
                "leaders": [leader.word for leader in answer.leaders or []],
            }
            for answer in self
        ]
        return pandas.DataFrame(rows)

    def _repr_html_(self) -> str:
        return display.classifications([(answer.text, answer) for answer in self])

    @property
    def usage(self) -> Usage:
        return Usage(texts=len(self), tokens=sum(answer.tokens for answer in self))
