"""Sentences per second that one core tokenizes and explains, without inference: the work around a GPU.

    python -m benchmarks.processing

The time is that of the thread: tokenizing, assembling batches, receptive fields, probabilities, leaders and
words. The outputs of ONNX Runtime are recorded in a first pass and returned again in the measured ones: its
runs would use the processor's caches, which those on a GPU do not. Texts are the sentences of 16 to 28 words
of `reviews`, 64 in a run. Garbage is collected as rarely as in the service.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from benchmarks.peers.sentiment import Classifier
from benchmarks.record import PRETRAINED, Record, Table, argument_parser
from benchmarks.reviews import reviews
from hardmax.models.texts import Explain
from service.memory import freeze_gc
from service.runtime.session import Arrays, Session
from service.text.pipeline import ClassifyOptions, classify_all, make_tasks

BATCH = 64
MODES: tuple[Explain, ...] = ("none", "leaders", "full")


class Recording:
    """Outputs of sessions, recorded once and returned again in the same order."""

    def __init__(self, *sessions: Session) -> None:
        self._arrays: list[Any] = []
        self._position = 0
        for session in sessions:
            session.run = partial(self._return, session.run)  # type: ignore[method-assign]

    def rewind(self, *, erase: bool = False) -> None:
        """Start again with the first output; record anew if `erase`."""
        self._position = 0
        if erase:
            self._arrays.clear()

    def _return(self, run: Any, feeds: Arrays, outputs: Sequence[str]) -> Any:
        if self._position == len(self._arrays):
            self._arrays.append(run(feeds, outputs))
        self._position += 1
        return self._arrays[self._position - 1]


def measure(table: Table, sentences: int, repeats: int) -> None:
    """Add a row for tokenizing, and one for each kind of explanation."""
    model = Classifier()
    encoder, head = model.encoder, model.head
    recording = Recording(encoder._session, head.session)
    texts = [text for words in range(16, 29) for text in reviews(words, -(-sentences // 13))][:sentences]
    freeze_gc()
    for text in texts:
        encoder.tokenize(text)  # fills its cache of words, as in a running service
    samples = [rate(lambda: [*map(encoder.tokenize, texts)], texts) for _ in range(repeats)]
    table.add("ours", {"step": "tokenize"}, samples)
    for mode in MODES:
        options = ClassifyOptions((head,), mode)

        def run(options: ClassifyOptions = options) -> None:
            recording.rewind()
            for begin in range(0, len(texts), BATCH):
                classify_all(make_tasks(texts[begin : begin + BATCH], options))

        recording.rewind(erase=True)
        run()
        samples = [rate(run, texts) for _ in range(repeats)]
        table.add("ours", {"step": f"all but inference, explain {mode}"}, samples)


def rate(run: Callable[[], object], texts: Sequence[str]) -> float:
    """Return the texts per second of CPU time of this thread."""
    start_s = time.thread_time()
    run()
    return len(texts) / (time.thread_time() - start_s)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--sentences", type=int, default=1_024)
    options = parser.parse_args()
    record = Record("processing", "Tokenizing and explaining", packages=["numpy"], models=PRETRAINED)
    table = record.table("Sentences on one core", unit="sentences/s", better="higher")
    measure(table, 64 if options.quick else options.sentences, 1 if options.quick else 5)
    for row in table.rows:
        print(f"{row.case['step']}: {row.median:,.0f} sentences/s")
    record.write(quick=options.quick)


if __name__ == "__main__":
    main()
