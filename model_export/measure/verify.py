"""`hardmax-export verify`: compare a head and its encoder, as the service runs them, with their definition.

Texts are encoded in batches, as in the service; the definition in numpy encodes every chunk alone. Hidden
states, input embeddings and attention counts must be equal, and so must the positions, leaders and
contributions of every text. The same holds for the graphs for GPUs, if a bundle has them; they run on the CPU
or, with `--provider cuda`, on a GPU. There is no tolerance, because everything is computed on integers.

For one random token of each chunk, tokens that it has not read are left out: once all of them, once a single
one. Its hidden state must not change (docs/theory.md, section 7).
"""

import argparse
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
from onnx import numpy_helper

from evaluation.tables.columns import find_column
from evaluation.tables.reading import read_table
from model_export.data import corpora
from model_export.encoder import quantized as encoder_quantized
from model_export.encoder.quantized import ZERO, Array, Weights
from model_export.head.graph import read_weights
from model_export.head.verification import expected_outputs, mismatched_outputs
from service.errors import InvalidInput, NotFound
from service.runtime.batcher import group_by_length
from service.runtime.bundle import Bundle, find_served, kind_of, read_bundle
from service.runtime.card import ENCODER, HEAD
from service.runtime.graph import split_weights
from service.runtime.session import Runtime, Session
from service.settings import PRETRAINED_FOLDER
from service.text.encoder import EncodedText, Encoder, EncoderOutput
from service.text.head import MAX_WORD_PAIRS
from service.text.tokenizer import Chunk

TEXTS_PER_BATCH = 32  # their chunks are encoded together
PROGRESS_LINE_S = 30.0  # between two lines of progress


@dataclass
class Parity:
    """Counts of what was compared and of what differs."""

    texts: int = 0
    chunks: int = 0
    attention_choices: int = 0  # argmax sets of a head for a token
    different_states: int = 0
    different_float: int = 0  # chunks and texts for which a graph for GPUs gives another number
    different_choices: int = 0
    different_leaders: int = 0
    different_contributions: int = 0
    different_ood: int = 0
    ablations: int = 0  # chunks without tokens that one of their tokens had not read
    different_ablated: int = 0  # ablations in which the hidden state of that token differs

    @property
    def differences(self) -> int:
        """The number of differences."""
        return sum(count for name, count in asdict(self).items() if name.startswith("different_"))


class FloatGraphRuntime(Runtime):
    """Opens the graphs for GPUs on the CPU."""

    def __init__(self, threads: int) -> None:
        super().__init__("cpu", threads)
        self.provider = "cuda"

    def open(self, model: bytes, weights: bytes | None = None) -> Session:
        """Open a graph on the CPU."""
        return Runtime("cpu", self.intra_op_threads).open(model, weights)


def encoder_weights(model: bytes) -> Weights:
    """Return the weights from which `to_onnx` made a graph; graphs of 0.3 do not contain `limit`."""
    graph = onnx.load_from_string(model).graph
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    null_keys = (stored["nobody"].astype(np.int16) - ZERO).astype(np.int8)
    return {
        "limit": np.float32(200), "clip": any(node.op_type == "ClippedNorm" for node in graph.node), **stored,
        "positions": stored["of_place"], "null_keys": null_keys, "heads": stored["split_keys"][3],
    }  # fmt: skip


class Verifier:
    """A head and its encoder: the graphs that are served, those for GPUs, and the stored weights.

    `provider` is where the graphs for GPUs run.
    """

    def __init__(
        self, head: Bundle, encoder: Bundle, provider: Literal["cpu", "cuda"] = "cpu", threads: int = 1
    ) -> None:
        runtime = Runtime("cpu", threads)
        float_runtime = FloatGraphRuntime(threads) if provider == "cpu" else Runtime(provider, threads)
        self._encoder = Encoder.load(encoder, runtime)
        self._float_encoder: Encoder | None = None
        if encoder.float_model is not None:
            self._float_encoder = Encoder.load(encoder, float_runtime)
        self._heads: list[tuple[Session, Mapping[str, Array]]] = [(runtime.open(head.model), {})]
        if head.float_model is not None:
            self._heads.append((float_runtime.open(head.float_model), split_weights(head.model)[1]))
        self._encoder_weights = encoder_quantized.to_float(encoder_weights(encoder.model))
        self._head_weights = read_weights(onnx.load_from_string(head.model))
        self._rng = random.Random(0)

    def compare(self, texts: Sequence[str]) -> Iterator[Parity]:
        """Compare texts; yield the counts so far after each batch of texts."""
        parity = Parity()
        for start in range(0, len(texts), TEXTS_PER_BATCH):
            batch = map(self._encoder.tokenize, texts[start : start + TEXTS_PER_BATCH])
            tokenized = [text for text in batch if len(text)]
            chunks = [chunk for text in tokenized for chunk in text.chunks()]
            if chunks:
                outputs = self._encoder.encode(chunks, output_attentions=True)
                self._compare_chunks(chunks, outputs, parity)
                self._compare_ablated(chunks, outputs, parity)
                remaining = iter(outputs)
                encoded = [EncodedText(text, [next(remaining) for _ in text.chunks()]) for text in tokenized]
                self._compare_heads(encoded, parity)
            yield parity

    def _compare_chunks(
        self, chunks: Sequence[Chunk], outputs: Sequence[EncoderOutput], parity: Parity
    ) -> None:
        heads = int(self._encoder_weights["heads"])
        for (token_ids, position_ids), output in zip(chunks, outputs, strict=True):
            states, embeddings, counts = encoder_quantized.run(self._encoder_weights, token_ids, position_ids)
            assert output.attention_counts is not None
            parity.chunks += 1
            parity.attention_choices += counts.shape[0] * counts.shape[1] * heads
            equal = np.array_equal(states, output.hidden_states)
            parity.different_states += not (equal and np.array_equal(embeddings, output.input_embeddings))
            parity.different_choices += int((counts != output.attention_counts).sum())
        if self._float_encoder is not None:
            float_outputs = self._float_encoder.encode(chunks, output_attentions=True)
            parity.different_float += _count_different(outputs, float_outputs)

    def _compare_ablated(
        self, chunks: Sequence[Chunk], outputs: Sequence[EncoderOutput], parity: Parity
    ) -> None:
        """Encode each chunk without tokens that a random one has not read, and compare its hidden state."""
        reduced: list[Chunk] = []
        expected: list[tuple[int, Array]] = []  # the row of the token, and its state
        for (token_ids, position_ids), output in zip(chunks, outputs, strict=True):
            assert output.receptive_fields is not None
            i = self._rng.randrange(len(token_ids))
            read = int(output.receptive_fields[-1][i])
            unread = [j for j in range(len(token_ids)) if not read >> j & 1]
            for left_out in (unread, [self._rng.choice(unread)]) if unread else ():
                kept_tokens = np.setdiff1d(np.arange(len(token_ids)), left_out)
                reduced.append((token_ids[kept_tokens], position_ids[kept_tokens]))
                expected.append((int(kept_tokens.searchsorted(i)), output.hidden_states[i]))
        ablated = self._encoder.encode(reduced, output_attentions=False)
        parity.ablations += len(ablated)
        parity.different_ablated += sum(
            not np.array_equal(output.hidden_states[row], state)
            for output, (row, state) in zip(ablated, expected, strict=True)
        )

    def _compare_heads(self, texts: Sequence[EncodedText], parity: Parity) -> None:
        """Run the head on texts of similar length together, and compare it with the definition of each."""
        expected = [expected_outputs(self._head_weights, text) for text in texts]
        lengths = [len(text.tokenized) for text in texts]
        for group in group_by_length(lengths, MAX_WORD_PAIRS["cpu"], power=2):
            batch, outputs = [texts[i] for i in group], [expected[i] for i in group]
            served, *on_gpu = (
                mismatched_outputs(session, outputs, batch, weights) for session, weights in self._heads
            )
            parity.different_float += sum(any(names) for names in zip(*on_gpu, strict=True))
            parity.different_leaders += sum(bool(names & {"target", "since"}) for names in served)
            parity.different_contributions += sum(
                bool(names & {"bias", "contribution", "plane"}) for names in served
            )
            parity.different_ood += sum("unlike" in names for names in served)
        parity.texts += len(texts)


def _count_different(outputs: Sequence[EncoderOutput], others: Sequence[EncoderOutput]) -> int:
    """Return the number of chunks that differ."""
    parts = ("hidden_states", "input_embeddings", "attention_counts")
    return sum(
        not all(np.array_equal(getattr(a, part), getattr(b, part)) for part in parts)
        for a, b in zip(outputs, others, strict=True)
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("bundle", type=Path, help="the folder of a head")
    texts = parser.add_mutually_exclusive_group(required=True)
    texts.add_argument("--file", help="rows of texts: csv, tsv, jsonl, json, parquet")
    texts.add_argument("--data", type=Path, help="the folder of the data sets")
    parser.add_argument("--column", help="the column of texts (default: found by its name or its content)")
    parser.add_argument(
        "--texts", type=int, default=500, help="number of texts of each data set (default: 500)"
    )
    parser.add_argument("--reviews", type=int, help="number of IMDb reviews (default: that of --texts)")
    parser.add_argument(
        "--encoders",
        type=Path,
        default=PRETRAINED_FOLDER,
        help="folder with its encoder, if that is not next to the head (default: the pretrained models)",
    )
    parser.add_argument(
        "--provider",
        choices=["cpu", "cuda"],
        default="cpu",
        help="where the graphs for GPUs run (default: cpu)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Compare and print; return 1 if something differs, else 0."""
    head = read_bundle(arguments.bundle)
    if head.kind != HEAD:
        raise InvalidInput(f"{arguments.bundle} is a bundle of kind {head.kind}; verify needs a head")
    sha256 = head.card["encoder"]["sha256"]
    folders = [arguments.bundle.absolute().parent, arguments.encoders]
    bundles = (read_bundle(path) for path in find_served(folders).values() if kind_of(path) == ENCODER)
    encoder = next((bundle for bundle in bundles if bundle.card["model_sha256"] == sha256), None)
    if encoder is None:
        raise NotFound(
            f"the encoder {sha256[:12]} of this head is not in {' or '.join(map(str, folders))}: "
            "name its folder with --encoders",
            param="encoders",
        )
    if arguments.provider == "cuda" and (head.float_model is None or encoder.float_model is None):
        raise InvalidInput(f"{arguments.bundle} or its encoder has no graph for GPUs", param="provider")
    verifier, differences = Verifier(head, encoder, arguments.provider), 0
    sets = _texts(arguments)
    for name, texts in sets.items():
        parity = _compare(verifier, name, texts)
        if not parity.texts:
            raise InvalidInput(f"{name}: nothing was compared: of {len(texts)} texts none has a word")
        differences += parity.differences
        print(name, asdict(parity), flush=True)
    if not sets:
        raise InvalidInput("nothing was compared: there is no text")
    return 1 if differences else 0


def _compare(verifier: Verifier, name: str, texts: Sequence[str]) -> Parity:
    """Compare the texts of one set; print progress to stderr."""
    parity, start_s, line_s = Parity(), time.monotonic(), PROGRESS_LINE_S
    for parity in verifier.compare(texts):
        if (elapsed_s := time.monotonic() - start_s) > line_s:
            progress = f"{parity.texts} of {len(texts)} texts, {parity.chunks} chunks"
            print(f"{name}: {progress}, {parity.differences} differences, {elapsed_s:.0f} s", file=sys.stderr)
            line_s = elapsed_s + PROGRESS_LINE_S
    return parity


def _texts(arguments: argparse.Namespace) -> dict[str, list[str]]:
    """Return the texts of a file, or of each data set, where texts of the test split come first."""
    if arguments.file:
        table = read_table(arguments.file, column=arguments.column)
        cells = map(str, table.values(find_column(table, arguments.column)))
        texts = [text for text in cells if text.strip()]
        return {arguments.file: texts[: arguments.texts]} if texts else {}
    sets = {}
    for name, rows in corpora.read_all(arguments.data).items():
        held_out_first = sorted(rows, key=lambda row: -corpora.SPLITS.index(row.split))
        n_texts = arguments.reviews if name == "reviews" and arguments.reviews else arguments.texts
        sets[name] = [row.text for row in held_out_first[:n_texts]]
    return sets
