"""How many sentences a second one core prepares and explains, without the inference: what a GPU waits for.

    python -m benchmarks.processing

The time is that of the thread, less what it spends in ONNX Runtime: tokenizing, assembling batches, receptive
fields, probabilities, leaders, words. Texts are the sentences of 16 to 28 words of `reviews`, 64 in a run.
Garbage is collected as rarely as in the service.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from benchmarks.record import MODELS, PRETRAINED, Record, Table, arguments
from benchmarks.reviews import reviews
from hardmax.models import Explain
from service.runtime.bundle import read_bundle
from service.runtime.session import Arrays, Runtime, Session
from service.state import freeze_gc
from service.text.encoder import Encoder
from service.text.head import Head
from service.text.pipeline import ClassifyOptions, classify_all, make_tasks

BATCH = 64
MODES: tuple[Explain, ...] = ("none", "leaders", "full")


class Stopwatch:
    """The thread's time inside of ONNX Runtime."""

    def __init__(self) -> None:
        self.inference_s = 0.0

    def watch(self, session: Session) -> None:
        """Count the time of a session from now on."""
        run = session.run

        def timed(feeds: Arrays, outputs: Sequence[str]) -> Any:
            began = time.thread_time()
            try:
                return run(feeds, outputs)
            finally:
                self.inference_s += time.thread_time() - began

        session.run = timed  # type: ignore[method-assign]


def measure(table: Table, sentences: int, repeats: int) -> None:
    """Add a row for tokenizing, and one for each kind of explanation."""
    runtime, stopwatch = Runtime("cpu", 1), Stopwatch()
    encoder = Encoder.load(read_bundle(MODELS / PRETRAINED[0]), runtime)
    head = Head.load(read_bundle(MODELS / PRETRAINED[1]), runtime, encoder)
    for session in (encoder._session, head.session):
        stopwatch.watch(session)
    texts = [text for words in range(16, 29) for text in reviews(words, -(-sentences // 13))][:sentences]
    freeze_gc()
    for text in texts:
        encoder.tokenize(text)  # words that were seen before are looked up, as in a service that runs
    table.add("ours", {"step": "tokenize"}, [rate(lambda: [*map(encoder.tokenize, texts)], texts, stopwatch)
                                             for _ in range(repeats)])  # fmt: skip
    for mode in MODES:
        options = ClassifyOptions((head,), mode)

        def run(options: ClassifyOptions = options) -> None:
            for begin in range(0, len(texts), BATCH):
                classify_all(make_tasks(texts[begin : begin + BATCH], options))

        samples = [rate(run, texts, stopwatch) for _ in range(repeats)]
        table.add("ours", {"step": f"all but inference, explain {mode}"}, samples)


def rate(run: Any, texts: Sequence[str], stopwatch: Stopwatch) -> float:
    """Return the texts per second of the thread's time without inference."""
    began, inference_s = time.thread_time(), stopwatch.inference_s
    run()
    return len(texts) / (time.thread_time() - began - (stopwatch.inference_s - inference_s))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sentences", type=int, default=1_024)
    options = parser.parse_args()
    record = Record("processing", "Tokenizing and explaining", packages=["numpy"], models=PRETRAINED)
    table = record.table("processing", "Sentences on one core", unit="sentences/s", better="higher")
    measure(table, 64 if options.quick else options.sentences, 1 if options.quick else 5)
    for row in table.rows:
        print(f"{row.case['step']}: {row.median:,.0f} sentences/s")
    print(record.write())


if __name__ == "__main__":
    main()
