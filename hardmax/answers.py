"""The results of the clients: answers with their text or cloud, and a display in notebooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any, SupportsIndex, overload
from uuid import uuid4

from pydantic import ConfigDict, Field

from hardmax import notebook
from hardmax.dataframe import MIN_CONTRIBUTION, RESULT_COLUMNS, add_columns, as_frame
from hardmax.errors import HardmaxError, UnexpectedAnswer
from hardmax.formatting import format_signed, pluralize, printable, shorten
from hardmax.models.clouds import DynamicsResult
from hardmax.models.document import parse_document, with_plain_signature
from hardmax.models.texts import Classification, OffsetUnit, Usage, number_of
from hardmax.shap_export import explain_as_shap

EMPTY = "empty"  # the abstain_reason of a text that is blank or missing
EMPTY_ANSWER: dict[str, Any] = {
    "label": "", "score": float("nan"), "probs": {}, "logit": float("nan"), "bias": float("nan"),
    "n_words": 0, "truncated": False,
}  # fmt: skip


@with_plain_signature
class Answer(Classification):
    """The answer to one text. In a notebook it displays its reason.

    With several models it is the answer of the first one, and `answers` has all of them.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, defer_build=False)  # for its signature

    text: str = Field("", exclude=True)
    model: str = Field("", exclude=True)
    error: HardmaxError | None = Field(None, exclude=True)
    """Why there is no answer, with `errors="keep"`. The label is then empty, and every number is nan."""
    answers: dict[str, Answer] = Field(default_factory=dict, exclude=True)
    """The answer of each model by its name; empty for a request to one model."""
    offset_unit: OffsetUnit = Field("codepoints", exclude=True)
    """The unit of its offsets."""

    @classmethod
    def of(
        cls, document: Any, text: str, index: int, model: str, offset_unit: OffsetUnit = "codepoints"
    ) -> Answer:
        """Return the answer of a document, with its index in the whole list."""
        documents = document.get("answers") if isinstance(document, dict) else None
        if not isinstance(documents, dict) or not documents:
            fields = {"text": text, "index": index, "model": model, "offset_unit": offset_unit}
            answer = parse_document(cls, document, **fields, error=None, answers={})
            if not all(0.0 <= number <= 1.0 for number in (answer.score, *answer.probs.values())):
                raise UnexpectedAnswer("not a response of hardmax: a probability is not from 0 to 1")
            return answer
        answers = {name: cls.of(part, text, index, name, offset_unit) for name, part in documents.items()}
        return next(iter(answers.values())).model_copy(update={"answers": answers})

    @classmethod
    def of_error(cls, error: HardmaxError, text: Any, index: int) -> Answer:
        """Return the answer to a text that was refused."""
        return cls(index=index, text=text if isinstance(text, str) else "", error=error, **EMPTY_ANSWER)

    @classmethod
    def of_empty(cls, text: Any, index: int) -> Answer:
        """Return the answer to a blank text or a missing value, which is not sent."""
        fields = EMPTY_ANSWER | {"score": 0.0, "logit": 0.0, "bias": 0.0, "abstain_reason": EMPTY}
        return cls(index=index, text=text if isinstance(text, str) else "", **fields)

    @cached_property
    def document(self) -> dict[str, Any]:
        """The complete document as received, with fields of later versions."""
        if not self.answers:
            return super().document
        return {"index": self.index, "answers": {name: part.document for name, part in self.answers.items()}}

    @property
    def verdict(self) -> str:
        """The label with its probability and, if the model abstains, the reason; or the error."""
        if self.error:
            return f"no answer: {self.row['hardmax_error']}"
        if self.abstain_reason == EMPTY:
            return "no label (abstains: empty)"
        labels = self._applicable_labels
        verdict = "none of its labels" if labels is None else f"{labels} {self.score:.1%}"
        return f"{verdict} (abstains: {self.abstain_reason})" if self.abstain_reason else verdict

    @property
    def _applicable_labels(self) -> str | None:
        """The label, or all labels of a multi-label model that apply; None if none does."""
        if self.abstain_reason == EMPTY:
            return None
        first = next(iter(self.answers.values()), self)  # the answer of one model
        if "labels" in first.model_fields_set and not first.labels:
            return None
        return ", ".join(self.labels) or self.label

    @property
    def reason(self) -> str:
        """The three clusters of largest contribution, by their leaders."""
        pairs = [(number_of(cluster.contribution, self.label), cluster.leaders) for cluster in self.clusters]
        largest = sorted(pairs, key=lambda pair: -abs(pair[0]))[:3]
        return ", ".join(f"{' = '.join(leaders)} {format_signed(amount)}" for amount, leaders in largest)

    @property
    def row(self) -> dict[str, Any]:
        """The answer as columns of a table.

        A model that abstains has a label, a score and an `abstain_reason`. Label and score are empty if the
        text is, or if no label of a multi-label model applies. Leaders have their contributions; small ones
        are left out.
        """
        if self.error:
            message = self.error.message.removeprefix(f"{self.error.param}: ")
            return dict.fromkeys(RESULT_COLUMNS) | {"hardmax_error": message}
        label = self._applicable_labels
        leaders = [(leader.word, number_of(leader.contribution, self.label)) for leader in self.leaders]
        return {
            "label": label,
            "score": None if label is None else self.score,
            "abstain_reason": self.abstain_reason,
            "truncated": self.truncated,
            "leaders": [f"{word} {x:+.2f}" for word, x in leaders if abs(x) >= MIN_CONTRIBUTION],
            "hardmax_error": None,
        }

    def to_shap(self, label: str | None = None) -> Any:
        """Return the contributions as a SHAP explanation, for `shap.plots.waterfall` and the others.

        The features are the words with `explain="full"`, and the clusters with "leaders". Unlike SHAP values
        they are exact: base value and contributions add up to the logit.

        Args:
            label: The label whose logit is explained, for models with one logit per label; by default the
                label of the answer.

        Returns:
            A `shap.Explanation` if shap is installed, otherwise an object with the same `values`,
            `base_values`, `data` and `feature_names`.

        Raises:
            InvalidInput: The answer has no contributions, or there is no such label.
        """
        return explain_as_shap(self, label or self.label)

    def __repr__(self) -> str:
        reason = f", {self.reason}" if self.reason else ""
        text = shorten(self.text, 60)
        return printable(f"<{type(self).__name__} {self.verdict}{reason}: {text!r}>")

    def _repr_html_(self) -> str:
        return notebook.render_answer(self.text, self.verdict, self, self.offset_unit)


@with_plain_signature
class CloudRun(DynamicsResult):
    """The run of a cloud, with its points. In a notebook it displays leaders, limits and paths."""

    model_config = ConfigDict(defer_build=False)

    points: Any = Field(None, exclude=True)

    def plot(self) -> Any:
        """Draw the points, their paths and limits, by cluster; stars are leaders.

        With "trajectory" in include the paths go through every layer, with "softmax" its run is drawn too.

        Returns:
            A matplotlib `Figure`: `run.plot().savefig("run.png")`.

        Raises:
            ImportError: matplotlib is not installed.
            InvalidInput: The points have one number or more than three, or the run has no assignment.
        """
        from hardmax.plot import draw_dynamics

        return draw_dynamics(self, self.points)

    def __eq__(self, other: object) -> bool:
        """Compare the answers; arrays of points have no single truth value."""
        return isinstance(other, CloudRun) and self.document == other.document

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {notebook.summarize_run(self)}>"

    def _repr_html_(self) -> str:
        return notebook.render_cloud(self.points, self)


class Answers(list[Answer]):
    """The answers to many texts, in their order.

    Args:
        model: The name of the model.
        offset_unit: The unit of character offsets.
        series: The pandas Series that the texts came from.
    """

    def __init__(self, model: str = "", offset_unit: OffsetUnit = "codepoints", series: Any = None) -> None:
        super().__init__()
        self._offset_unit = offset_unit
        self._series = series
        self.id = uuid4().hex
        self.model = model

    @overload
    def __getitem__(self, key: SupportsIndex) -> Answer: ...

    @overload
    def __getitem__(self, key: slice) -> Answers: ...

    def __getitem__(self, key: SupportsIndex | slice) -> Answer | Answers:
        """Return an answer; of a slice `Answers`."""
        if not isinstance(key, slice):
            return super().__getitem__(key)
        series = None if self._series is None else self._series.iloc[key]
        part = Answers(self.model, self._offset_unit, series)
        part.extend(super().__getitem__(key))
        return part

    def add(self, document: Any, texts: Sequence[str]) -> None:
        """Append the answers to the next texts.

        Args:
            document: The JSON document of a response.
            texts: The texts of that request.

        Raises:
            UnexpectedAnswer: The document has not one answer for each text.
        """
        data = document.get("data") if isinstance(document, dict) else None
        if not isinstance(data, list) or len(data) != len(texts):
            raise UnexpectedAnswer(f"not a response of hardmax: data should have {len(texts)} entries")
        model = document.get("model", self.model)
        self.id = str(document.get("id", self.id))
        self.model = ", ".join(map(str, model)) if isinstance(model, list) else str(model)
        for text, entry in zip(texts, data, strict=True):
            self.append(Answer.of(entry, text, len(self), self.model, self._offset_unit))

    def insert_empty(self, texts: Sequence[Any], answered: Sequence[int]) -> None:
        """Insert an answer to each blank text; `answered` has the places of the others among all texts."""
        for answer, place in zip(self, answered, strict=True):
            if answer.error:
                answer.error.shift_index(place - answer.index)
        moved = {i: answer.model_copy(update={"index": i}) for i, answer in zip(answered, self, strict=True)}
        self[:] = [moved.get(i) or Answer.of_empty(text, i) for i, text in enumerate(texts)]

    def to_frame(self, *, text: bool | None = None) -> Any:
        """Return a pandas DataFrame with a row for each text; `add_to` adds its columns to your own table.

        It has the columns `label`, `score`, `abstain_reason`, `truncated`, `leaders`, `hardmax_error` and
        `p(label)` for each label. Answers to a pandas Series keep its index.

        Args:
            text: Add the texts as a column; by default unless they came from a Series.

        Raises:
            ImportError: pandas is not installed.
        """
        series = self._own_series
        with_text = series is None if text is None else text
        rows = [({"text": answer.text} if with_text else {}) | answer.row for answer in self]
        columns = [*(["text"] if with_text else []), *RESULT_COLUMNS]
        return as_frame(rows, [answer.probs for answer in self], columns, getattr(series, "index", None))

    def add_to(self, frame: Any, prefix: str = "hardmax_") -> Any:
        """Return a copy of a pandas DataFrame or Series with each answer next to its text.

        The new columns are those of `to_frame` with a prefix: `hardmax_label`, `hardmax_score`,
        `hardmax_p(positive)`, .. Columns of the same names are replaced, so that a second call is right too.
        Any index is kept, also one with repeated values. If the table was sorted or filtered after its texts
        were classified, rows are matched by the index, and their texts are compared.

        Args:
            frame: The table whose column was classified.
            prefix: The beginning of the new names.

        Raises:
            ImportError: pandas is not installed.
            InvalidInput: The table has other rows or texts than the answers.
        """
        return add_columns(frame, self.to_frame(text=False), self._own_series, prefix)

    @property
    def _own_series(self) -> Any:
        """The Series of the texts, if it has a value for each answer."""
        return self._series if self._series is not None and len(self._series) == len(self) else None

    @property
    def abstained(self) -> int:
        """The number of answers whose label should not be acted upon."""
        return sum(answer.abstain_reason is not None for answer in self)

    def __repr__(self) -> str:
        counts = Counter(answer.row["label"] or answer.verdict.partition(":")[0] for answer in self)
        summary = ", ".join(f"{number:,} {name}" for name, number in counts.most_common(8))
        model = f" by {self.model}" if self.model else ""
        abstained = f" ({self.abstained:,} abstained)" if self.abstained else ""
        count = pluralize(len(self), "answer")
        return printable(f"<{count}{model}{': ' if summary else ''}{summary}{abstained}>")

    def _repr_html_(self) -> str:
        if len(self) == 1:
            return self[0]._repr_html_()
        rows = [(row.text, row.verdict, row.reason) for row in self[: notebook.MAX_ROWS_SHOWN]]
        return notebook.render_answers(rows, len(self))

    @property
    def usage(self) -> Usage:
        """The number of texts and of subword tokens."""
        return Usage(texts=len(self), tokens=sum(answer.n_tokens for answer in self))
