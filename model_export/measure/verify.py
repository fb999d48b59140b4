"""`hardmax-export verify`: compare the graphs of a head and its encoder with what their operators give.

onnx's evaluator runs each graph in numpy (model_export/referee.py). ONNX Runtime must return the same bits on
the same batches of texts, and so must the graphs for GPUs: on the CPU or, with `--provider cuda`, on a GPU.
There is no tolerance, because everything is computed on integers. The export of a graph
compares it with torch.

For one random token of each chunk, tokens that it has not read are left out: once all of them, once a single
one. Its hidden state must not change (theory.md, section 7).
"""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import onnx

from evaluation.tables.columns import find_column
from evaluation.tables.reading import read_table
from model_export.data import corpora
from model_export.encoder.quantization import Array
from model_export.referee import Arrays, Referee
from service.errors import InvalidInput, NotFound
from service.runtime.batcher import group_by_length
from service.runtime.bundle import Bundle, find_served, kind_of, read_bundle
from service.runtime.card import ENCODER, HEAD
from service.runtime.session import Runtime
from service.settings import PRETRAINED_FOLDER
from service.text.encoder import (
    TOKENS_PER_RUN,
    EncodedText,
    Encoder,
    EncoderOutput,
    assemble_chunks,
)
from service.text.head import MAX_WORD_PAIRS, assemble_feeds
from service.text.tokenizer import Chunk

TEXTS_PER_BATCH = 32  # their chunks are encoded together
PROGRESS_LINE_S = 30.0  # between two lines of progress


@dataclass
class Parity:
    """Counts of what was compared and of what differs."""

    texts: int = 0
    chunks: int = 0
    tokens: int = 0
    ablations: int = 0  # chunks without tokens that one of their tokens had not read
    different: Counter[str] = field(default_factory=Counter)  # runs of a graph, by graph and output

    @property
    def differences(self) -> int:
        """The number of differences."""
        return self.different.total()


class GraphPair:
    """The graph of a bundle for CPUs, and that for GPUs if it has one, with the referee of both."""

    def __init__(self, bundle: Bundle, cpu: Runtime, gpu: Runtime) -> None:
        session = cpu.open(bundle.model, optimized=bundle.kind != HEAD)  # as it is served
        graph = onnx.load_from_string(bundle.model).graph
        stored = {tensor.name for tensor in graph.initializer}
        self._sessions = [(f"{bundle.kind} model.onnx", session)]
        self._outputs = [spec.name for spec in session.outputs if spec.name not in stored]
        if bundle.float_model is None:
            self._referee = Referee(bundle.model)
            return
        # numpy multiplies floats a hundred times as fast as integers
        self._referee = Referee(bundle.float_model, bundle.model)
        session = gpu.open(bundle.float_model, bundle.model)
        self._sessions.append((f"{bundle.kind} model.float.onnx", session))

    def compare(self, feeds: Arrays) -> Counter[str]:
        """Return the outputs of each graph that differ from those of the referee."""
        expected, different = self._referee.run(feeds, self._outputs), Counter[str]()
        for graph, session in self._sessions:
            for name, actual in zip(self._outputs, session.run(feeds, self._outputs), strict=True):
                different[f"{graph}: {name}"] += not np.array_equal(actual, expected[name])
        return +different


class Verifier:
    """A head and its encoder: the graphs that are served, those for GPUs, and their referee.

    `provider` is where the graphs for GPUs run.
    """

    def __init__(
        self, head: Bundle, encoder: Bundle, provider: Literal["cpu", "cuda"] = "cpu", threads: int = 1
    ) -> None:
        cpu, gpu = Runtime("cpu", threads), Runtime(provider, threads)
        self._encoder = Encoder.load(encoder, cpu)
        self._encoder_graphs, self._head_graphs = (GraphPair(bundle, cpu, gpu) for bundle in (encoder, head))
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
                self._compare_chunks(chunks, parity)
                self._compare_ablated(chunks, outputs, parity)
                remaining = iter(outputs)
                encoded = [EncodedText(text, [next(remaining) for _ in text.chunks()]) for text in tokenized]
                self._compare_heads(encoded, parity)
            yield parity

    def _compare_chunks(self, chunks: Sequence[Chunk], parity: Parity) -> None:
        lengths = [len(token_ids) for token_ids, _ in chunks]
        for group in group_by_length(lengths, TOKENS_PER_RUN["cpu"]):
            feeds = assemble_chunks([chunks[i] for i in group])
            parity.different += self._encoder_graphs.compare(feeds)
        parity.chunks += len(chunks)
        parity.tokens += sum(lengths)

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
        parity.different["ablated states"] += sum(
            not np.array_equal(output.hidden_states[row], state)
            for output, (row, state) in zip(ablated, expected, strict=True)
        )

    def _compare_heads(self, texts: Sequence[EncodedText], parity: Parity) -> None:
        """Run the head on texts of similar length together."""
        lengths = [len(text.tokenized) for text in texts]
        for group in group_by_length(lengths, MAX_WORD_PAIRS["cpu"], power=2):
            parity.different += self._head_graphs.compare(assemble_feeds([texts[i] for i in group]).arrays)
        parity.texts += len(texts)


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
