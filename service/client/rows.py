"""Many texts, one at a time: each gets its answer or its own error, and none is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from service.errors import HardmaxError, InvalidInput, TooLarge
from service.schemas.texts import Classification, Explain, number_of

if TYPE_CHECKING:
    from service.client.local import Local
    from service.client.remote import Client

BATCH = 256
# The columns that an answer has in a table, and what is in them.
COLUMNS = {
    "hardmax_label": "string",
    "hardmax_score": "number",
    "hardmax_logit": "number",
    "hardmax_undecided": "string",
    "hardmax_leaders": "strings",
    "hardmax_error": "string",
}


class Answering:
    """Iterates over the answer to each text, or why it has none, in the order of the texts."""

    def __init__(
        self,
        classifier: Client | Local,
        texts: Sequence[Any],
        *,
        model: str | None = None,
        explain: Explain = "leaders",
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self.model = model or ""  # that answered: known once something was answered
        self.refused = 0
        self._classifier = classifier
        self._texts = texts
        self._explain: Explain = explain
        self._on_progress = on_progress

    def __iter__(self) -> Iterator[Classification | HardmaxError]:
        for first in range(0, len(self._texts), BATCH):
            batch = self._texts[first : first + BATCH]
            reasons = [_why_blank(text) for text in batch]
            asked = self._ask([text for text, reason in zip(batch, reasons, strict=True) if not reason])
            answers = iter(asked)
            for index, reason in enumerate(reasons, first):
                answer = InvalidInput(reason) if reason else next(answers)
                if isinstance(answer, Classification):
                    yield answer.model_copy(update={"index": index})
                else:
                    self.refused += 1
                    yield answer
            self._on_progress(first + len(batch), len(self._texts))

    def _ask(self, texts: Sequence[str]) -> list[Classification | HardmaxError]:
        if not texts:
            return []
        try:
            answers = self._classifier.classify(texts, model=self.model or None, explain=self._explain)
        except HardmaxError as refused:
            at = refused.index
            if at is not None:  # one text is at fault: the others are asked again
                return [*self._ask(texts[:at]), refused, *self._ask(texts[at + 1 :])]
            if len(texts) > 1 and (isinstance(refused, TooLarge) or getattr(refused, "status", 0) == 413):
                half = len(texts) // 2
                return [*self._ask(texts[:half]), *self._ask(texts[half:])]
            raise
        self.model = answers.model
        return list(answers)


def _why_blank(text: Any) -> str | None:
    """Blank rows are common in files: they are not worth a refused request each."""
    if not isinstance(text, str):
        return "there is no text" if text is None else f"this is no text but {type(text).__name__}"
    return None if text.strip() else "the text is empty"


def beside(table: Any, rows: Iterable[dict[str, Any]]) -> Any:
    """A table of pyarrow with its rows' answers as further columns, in place of those with such names."""
    import pyarrow as pa

    types = {"string": pa.string(), "number": pa.float64(), "strings": pa.list_(pa.string())}
    schema = pa.schema({name: types[kind] for name, kind in COLUMNS.items()})
    found = pa.Table.from_pylist(list(rows), schema=schema)
    table = table.select([name for name in table.column_names if name not in COLUMNS])
    for name in COLUMNS:
        table = table.append_column(name, found.column(name))
    return table


def to_row(answer: Classification | HardmaxError) -> dict[str, Any]:
    """An answer as the columns of a table."""
    if isinstance(answer, HardmaxError):
        message = answer.message.removeprefix(f"{answer.param}: ")
        return dict.fromkeys(COLUMNS) | {"hardmax_error": message}
    return {
        "hardmax_label": answer.label,
        "hardmax_score": answer.score,
        "hardmax_logit": number_of(answer.logit, answer.label),
        "hardmax_undecided": answer.undecided,
        "hardmax_leaders": [leader.word for leader in answer.leaders or ()],
        "hardmax_error": None,
    }
