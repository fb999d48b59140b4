"""An encoder and a head as the service loads them, measured without the service."""

from collections.abc import Callable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.models.texts import Explain
from model_export.measure.scores import neutral_band
from service.runtime.bundle import read_bundle
from service.runtime.session import Runtime
from service.text.decision import UNITS_PER_LOGIT
from service.text.encoder import EncodedText, Encoder
from service.text.head import Head, run_heads
from service.text.pipeline import ClassifyOptions, classify_all, make_tasks
from service.text.tokenizer import Ints, TokenizedText

TEXTS_PER_RUN = 256

Chunker = Callable[[TokenizedText], list[tuple[Ints, Ints]]]  # token_ids and position_ids of each chunk


class ServedModel:
    """A head and its encoder, loaded from a folder of bundles."""

    def __init__(self, models: Path, head: str, runtime: Runtime | None = None) -> None:
        runtime = runtime or Runtime("cpu", 2)
        bundle = read_bundle(models / head)
        self.encoder = Encoder.load(read_bundle(models / bundle.card["encoder"]["name"]), runtime)
        self.head = Head.load(bundle, runtime, self.encoder)
        threshold = bundle.card.get("neutral_threshold")
        if threshold is not None:
            self.neutral_margin = neutral_band(threshold)
        else:
            self.neutral_margin = float(bundle.card["abstain_margin"])

    def logits(self, texts: Sequence[str], chunker: Chunker = TokenizedText.chunks) -> NDArray[np.float64]:
        """Return the logit of each text."""
        return served_logits(self.encoder, self.head, texts, chunker)

    def classify(self, texts: Sequence[str], explain: Explain = "leaders") -> list[dict[str, Any]]:
        """Return the answer to each text; raise the error of the first that fails."""
        answers = []
        for result in classify_all(make_tasks(texts, ClassifyOptions((self.head,), explain))):
            if isinstance(result, Exception):
                raise result
            answers.append(result[0])
        return answers

    def encode(self, text: str) -> EncodedText:
        """Return a text with its states and receptive fields."""
        tokenized = self.encoder.tokenize(text)
        return EncodedText(tokenized, self.encoder.encode(tokenized.chunks(), output_attentions=True))


def served_logits(
    encoder: Encoder, head: Head, texts: Sequence[str], chunker: Chunker = TokenizedText.chunks
) -> NDArray[np.float64]:
    """Return the logit of each text, by a head with one logit."""
    logits = np.full(len(texts), head.bias[0, 0] / UNITS_PER_LOGIT)
    for start in range(0, len(texts), TEXTS_PER_RUN):
        tokenized = [encoder.tokenize(text) for text in texts[start : start + TEXTS_PER_RUN]]
        chunks = [chunker(text) for text in tokenized]
        states = iter(encoder.encode(list(chain.from_iterable(chunks)), output_attentions=False))
        encoded = [
            EncodedText(text, list(islice(states, len(of_text))))
            for text, of_text in zip(tokenized, chunks, strict=True)
        ]
        for _, indices, outputs in run_heads([head], encoded, explain=False):
            logits[start + np.array(indices)] = outputs.logit[0] / UNITS_PER_LOGIT
    return logits
