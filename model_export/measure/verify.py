"""`hardmax-export verify`: a head and its reader as the service runs them, against the definition in numpy.

Every passage is read alone by the definition and in batches by ONNX Runtime; states, first states and who
follows whom must be the same numbers. So must, for every text, places, leaders and contributions. There is no
tolerance: all is decided in whole numbers.

Of each passage one piece is drawn, and what it has not read is left out in place: all of it at once, and one
piece of it. Its state must stay where it is (docs/theory.md, section 7).
"""

from __future__ import annotations

import argparse
import random
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from evaluation.tables.reading import find_column, read_table
from model_export.data import corpora
from model_export.encoder import quantized as encoder_quantized
from model_export.encoder.quantized import ZERO, Array, Stored
from model_export.head.graph import weights_of
from model_export.head.verification import mismatched_outputs
from service.errors import InvalidInput, NotFound
from service.runtime.bundle import ENCODER, HEAD, Bundle, find_served, kind_of, read_bundle
from service.runtime.graph import split_weights
from service.runtime.session import Runtime, Session
from service.settings import PRETRAINED_FOLDER
from service.text.encoder import Encoder, EncoderOutput


@dataclass
class Parity:
    """What differs; all zeros: the bundle may be served."""

    texts: int = 0
    passages: int = 0
    choices: int = 0  # choices of heads that were compared
    different_states: int = 0
    different_float: int = 0  # chunks and texts of which a graph for GPUs gives another number
    different_choices: int = 0
    different_leaders: int = 0
    different_contributions: int = 0
    different_unlike: int = 0
    left_out: int = 0  # how often unread pieces were left out
    different_without: int = 0  # states that were others without them

    @property
    def holds(self) -> bool:
        return not (
            self.different_states
            or self.different_float
            or self.different_choices
            or self.different_leaders
            or self.different_contributions
            or self.different_unlike
            or self.different_without
        )


class FloatProducts(Runtime):
    """Opens the graphs for GPUs, on the CPU."""

    def __init__(self, threads: int) -> None:
        super().__init__("cpu", threads)
        self.provider = "cuda"

    def open(self, model: bytes, weights: bytes | None = None) -> Session:
        return Runtime("cpu", self.intra_op_threads).open(model, weights)


def encoder_weights(model: bytes) -> Stored:
    """Return what `to_onnx` was given; graphs of 0.3 do not hold the limit of their normalizations."""
    graph = onnx.load_from_string(model).graph
    found = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    nobody = (found["nobody"].astype(np.int16) - ZERO).astype(np.int8)
    return {
        "limit": np.float32(200), "clip": any(node.op_type == "ClippedNorm" for node in graph.node), **found,
        "places": found["of_place"], "nobody": nobody, "heads": found["split_keys"][3],
    }  # fmt: skip


def verify(head: Bundle, reader: Bundle, texts: list[str]) -> Parity:
    runtime, parity, draw = Runtime("cpu", 2), Parity(), random.Random(0)
    served, session = Encoder.load(reader, runtime), runtime.open(head.model)
    floats = None if reader.float_model is None else Encoder.load(reader, FloatProducts(2))
    head_floats = None if head.float_model is None else runtime.open(head.float_model)
    _, fed_weights = split_weights(head.model)
    of_reader, of_head = encoder_weights(reader.model), weights_of(onnx.load_from_string(head.model))
    for text in texts:
        reading = served.tokenize(text)
        passages = reading.chunks()
        if not passages:
            continue
        seen = served.encode(passages, output_attentions=True)
        if floats is not None:
            parity.different_float += _count_different(seen, floats.encode(passages, output_attentions=True))
        for (pieces, places), each in zip(passages, seen, strict=True):
            states, words, follows = encoder_quantized.run(of_reader, pieces, places)
            parity.passages += 1
            parity.choices += follows.shape[0] * follows.shape[1] * int(of_reader["heads"])
            parity.different_states += not (
                np.array_equal(states, each.hidden_states) and np.array_equal(words, each.input_embeddings)
            )
            assert each.attention_counts is not None
            parity.different_choices += int((follows != each.attention_counts).sum())
            _leave_out(served, pieces, places, each, draw, parity)
        differ = mismatched_outputs(session, of_head, reading, seen)
        if head_floats is not None:
            parity.different_float += bool(
                mismatched_outputs(head_floats, of_head, reading, seen, fed_weights)
            )
        parity.different_leaders += bool(differ & {"target", "since"})
        parity.different_contributions += bool(differ & {"bias", "contribution", "plane"})
        parity.different_unlike += "unlike" in differ
        parity.texts += 1
    return parity


def _count_different(one: list[EncoderOutput], other: list[EncoderOutput]) -> int:
    """Return how many chunks differ."""
    parts = ("hidden_states", "input_embeddings", "attention_counts")
    return sum(
        not all(np.array_equal(getattr(a, part), getattr(b, part)) for part in parts)
        for a, b in zip(one, other, strict=True)
    )


def _leave_out(
    served: Encoder, pieces: Array, places: Array, seen: EncoderOutput, draw: random.Random, parity: Parity
) -> None:
    assert seen.receptive_fields is not None
    i = draw.randrange(len(pieces))
    read = int(seen.receptive_fields[-1][i])
    unread = [j for j in range(len(pieces)) if not read >> j & 1]
    if not unread:
        return
    for gone in (unread, [draw.choice(unread)]):
        kept = np.setdiff1d(np.arange(len(pieces)), gone)
        (less,) = served.encode([(pieces[kept], places[kept])], output_attentions=False)
        (at,) = np.flatnonzero(kept == i)
        parity.left_out += 1
        parity.different_without += not np.array_equal(less.hidden_states[at], seen.hidden_states[i])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, help="the folder of a head")
    texts = parser.add_mutually_exclusive_group(required=True)
    texts.add_argument("--file", help="rows of texts: csv, tsv, jsonl, json, parquet")
    texts.add_argument("--data", type=Path, help="the folder of the data sets")
    parser.add_argument("--column", help="the column of texts (default: found by its name or its content)")
    parser.add_argument("--texts", type=int, default=500, help="of each data set (default: 500)")
    parser.add_argument(
        "--readers", type=Path, default=PRETRAINED_FOLDER, help="where its reader is, if not beside it"
    )


def run(arguments: argparse.Namespace) -> int:
    head = read_bundle(arguments.bundle)
    if head.kind != HEAD:
        raise InvalidInput(f"{arguments.bundle} is a bundle of kind {head.kind}; verify needs a head")
    wanted, places = head.card["encoder"]["sha256"], [arguments.bundle.absolute().parent, arguments.readers]
    found = (read_bundle(each) for each in find_served(places).values() if kind_of(each) == ENCODER)
    reader = next((each for each in found if each.card["model_sha256"] == wanted), None)
    if reader is None:
        where = " and ".join(map(str, places))
        raise NotFound(
            f"no reader {wanted[:12]}, which this head stands on, in {where}: say --readers FOLDER",
            param="readers",
        )
    holds = True
    compared = _texts(arguments)
    for name, texts in compared.items():
        parity = verify(head, reader, texts)
        if not parity.texts:
            raise InvalidInput(f"{name}: nothing was compared: of {len(texts)} texts none has a word")
        holds = holds and parity.holds
        print(name, asdict(parity), flush=True)
    if not compared:
        raise InvalidInput("nothing was compared: there is no text")
    return 0 if holds else 1


def _texts(arguments: argparse.Namespace) -> dict[str, list[str]]:
    """Of a file, or of each data set that measures something."""
    if arguments.file:
        table = read_table(arguments.file, column=arguments.column)
        texts = map(str, table.values(find_column(table, arguments.column)))
        found = {arguments.file: [text for text in texts if text.strip()]}
    else:
        sets = corpora.read_all(arguments.data)
        found = {name: [row.text for row in rows if row.split == "report"] for name, rows in sets.items()}
    return {name: texts[: arguments.texts] for name, texts in found.items() if texts}
