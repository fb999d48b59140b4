"""What the clients give back: documents that know their text or cloud, say themselves in a line, and draw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from hardmax import display
from hardmax.columns import COLUMNS
from hardmax.documents import Classification, DynamicsResult, Spans, Usage, number_of
from hardmax.errors import HardmaxError, UnexpectedAnswer
from hardmax.reading import read

NO_ANSWER: dict[str, Any] = {
    "label": "", "score": float("nan"), "probs": {}, "logit": float("nan"), "bias": float("nan"),
    "tokens": 0, "truncated": False,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, repr=False)
class Answer(Classification):
    """The answer to one text. In a notebook it shows its reason.

    Where several models were asked, it is the answer of the first, and `answers` has them all.
    """

    text: str = ""
    model: str = ""
    error: HardmaxError | None = None
    """Why there is none: with `errors="keep"` alone. Then there is no label, and every number is nan."""
    answers: dict[str, Answer] = field(default_factory=dict)
    """What each model answered, by its name; empty where one was asked."""
    spans: Spans = "codepoints"
    """What its offsets count, as it was asked."""

    @classmethod
    def of(cls, document: Any, text: str, index: int, model: str, spans: Spans = "codepoints") -> Answer:
        """The answer as it came, at its place in the whole list."""
        several = document.get("answers") if isinstance(document, dict) else None
        if not isinstance(several, dict) or not several:
            known = {"text": text, "index": index, "model": model, "spans": spans}
            return read(cls, document, **known, error=None, answers={})
        answers = {name: cls.of(each, text, index, name, spans) for name, each in several.items()}
        first = next(iter(answers.values()))
        made = replace(first, answers=answers)
        made.__dict__["document"] = document
        return made

    @classmethod
    def refused(cls, error: HardmaxError, text: Any, index: int) -> Answer:
        return cls(index=index, text=text if isinstance(text, str) else "", error=error, **NO_ANSWER)

    @property
    def verdict(self) -> str:
        """The label with its probability; or why there is none that should be acted upon."""
        if self.error:
            return f"no answer: {self.row['hardmax_error']}"
        if self.undecided:
            return f"undecided: {self.undecided}"
        return "none of its labels" if self._holding is None else f"{self._holding} {self.score:.1%}"

    @property
    def _holding(self) -> str | None:
        """The label, or all that hold; None where labels do not exclude each other and none does."""
        first = next(iter(self.answers.values()), self)  # which has the document of one model
        return None if first.document.get("labels") == [] else ", ".join(self.labels) or self.label

    @property
    def reason(self) -> str:
        """What weighs most: three clusters at most by the words that lead them, with what each adds."""
        weights = [(number_of(each.contribution, self.label), each.leaders) for each in self.clusters]
        heaviest = sorted(weights, key=lambda weight: -abs(weight[0]))[:3]
        return ", ".join(f"{' = '.join(leaders)} {display.signed(amount)}" for amount, leaders in heaviest)

    @property
    def row(self) -> dict[str, Any]:
        """Its columns in a table. Label and score are empty where the verdict should not be acted upon, and
        where none of its labels holds.
        """
        if self.error:
            message = self.error.message.removeprefix(f"{self.error.param}: ")
            return dict.fromkeys(COLUMNS) | {"hardmax_error": message}
        label = None if self.undecided else self._holding
        return {
            "label": label,
            "score": None if label is None else self.score,
            "undecided": self.undecided,
            "truncated": self.truncated,
            "leaders": [leader.word for leader in self.leaders],
            "hardmax_error": None,
        }

    def __repr__(self) -> str:
        reason = f", {self.reason}" if self.reason else ""
        text = display.shortened(self.text, 60)
        return display.printable(f"<{type(self).__name__} {self.verdict}{reason}: {text!r}>")

    def _repr_html_(self) -> str:
        return display.answer(self.text, self.verdict, self, self.spans)


@dataclass(frozen=True, kw_only=True, repr=False)
class CloudRun(DynamicsResult):
    """What became of a cloud, which it keeps. In a notebook it shows leaders, limits and the way there."""

    points: Any = field(default=None, compare=False)  # arrays have no single yes or no

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {display.summary(self)}>"

    def _repr_html_(self) -> str:
        return display.cloud(self.points, self)


class Answers(list[Answer]):
    """One answer a text, in the order of the texts, by one model."""

    def __init__(self, model: str = "", spans: Spans = "codepoints") -> None:
        super().__init__()
        self._spans = spans
        self.id = uuid4().hex
        self.model = model

    def add(self, document: Any, texts: Sequence[str]) -> None:
        """The answers to the texts that come next."""
        data = document.get("data") if isinstance(document, dict) else None
        if not isinstance(data, list) or len(data) != len(texts):
            raise UnexpectedAnswer(f"this is no answer of hardmax: data should have {len(texts)} entries")
        model = document.get("model", self.model)
        self.id = str(document.get("id", self.id))
        self.model = ", ".join(map(str, model)) if isinstance(model, list) else str(model)
        for text, entry in zip(texts, data, strict=True):
            self.append(Answer.of(entry, text, len(self), self.model, self._spans))

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row for each text. What is undecided has no label there."""
        try:
            import pandas
        except ImportError:
            raise ImportError("to_frame() needs pandas: pip install pandas") from None
        rows = [
            {"text": each.text, **each.row, **{f"p({label})": p for label, p in each.probs.items()}}
            for each in self
        ]
        return pandas.DataFrame(rows)

    def __repr__(self) -> str:
        found = Counter(each.row["label"] or each.verdict.partition(":")[0] for each in self)
        told = ", ".join(f"{number:,} {name}" for name, number in found.most_common(8))
        by = f" by {self.model}" if self.model else ""
        return f"<{display.counted(len(self), 'answer')}{by}{': ' if told else ''}{told}>"

    def _repr_html_(self) -> str:
        if len(self) == 1:
            return self[0]._repr_html_()
        shown = [(each.text, each.verdict, each.reason) for each in self[: display.ROWS]]
        return display.answers(shown, len(self))

    @property
    def usage(self) -> Usage:
        return Usage(texts=len(self), tokens=sum(answer.tokens for answer in self))
