"""An answer that depends on its batch is counted, and none is left out."""

from collections.abc import Sequence
from typing import Any

from benchmarks.equality import batches, differing, digests


class Model:
    def __init__(self, dependent: str = "") -> None:
        self.dependent = dependent

    def classify(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        return [
            {"index": i, "text": text, "with": len(texts) if text == self.dependent else 0}
            for i, text in enumerate(texts)
        ]


def test_answer_that_depends_on_its_batch_is_counted() -> None:
    texts = [str(i) for i in range(300)]
    for dependent, count in (("", 0), ("7", 1)):
        model: Any = Model(dependent)
        alone = [digest for text in texts for digest in digests(model, [text])]
        assert differing(model, texts, alone, seed=1) == count


def test_batches_hold_every_text_once() -> None:
    assert sorted(i for batch in batches(1000, seed=3) for i in batch) == list(range(1000))
