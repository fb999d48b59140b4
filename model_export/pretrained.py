"""The bundled reader and its sentiment head, from the data to two bundles. `make models` runs it.

    data -> teacher (if a sentence was never asked) -> lessons -> soft -> hard -> placed -> settled -> bundles

What each step made is kept in OUT under a digest of all that it was made of: a stopped run goes on where it
was, and a changed recipe takes nothing from the disk that another recipe made. Choices are made on the split
`choose`, figures on `report`.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evaluation.folds import N_FOLDS
from model_export.bundle import write_bundle
from model_export.data import corpora, names
from model_export.data.corpora import Rows
from model_export.data.training_set import WORDS, Lessons
from model_export.encoder import graph as encoder_graph
from model_export.encoder import quantized as encoder_quantized
from model_export.encoder.model import Encoder
from model_export.encoder.published import load_minilm
from model_export.head import graph as head_graph
from model_export.head import ood
from model_export.head import quantized as head_quantized
from model_export.head.encoded import encode_texts
from model_export.head.leader_head import LeaderHead
from model_export.measure.meaning import served_logits
from model_export.measure.scores import balanced, score, sigmoid, temperature, three_labels
from model_export.recipe import Recipe, long_lessons, short_lessons, wanted
from model_export.stage_cache import Kept, digest, keep
from model_export.stages import (
    Memory,
    Pooled,
    Say,
    StepContext,
    calibrate,
    hard,
    place,
    settle,
    soft,
    verdicts,
)
from model_export.teacher.encoder import Teacher
from model_export.teacher.fit import fitted
from model_export.teacher.logits import SAID, Answers
from service.errors import BundleError, NotFound
from service.runtime.session import Runtime
from service.text.encoder import VOCABULARY_KEYS
from service.text.encoder import Encoder as ServedReader
from service.text.head import Head
from service.text.tokenizer import Vocabulary, WordPieceTokenizer

CASED = ("reviews", "amazon", "tweets")  # written with the usual capitals
NEARLY = 0.01  # balanced accuracy this close to the best is nearly as good
HELD = 100_000  # pieces of a data set that choices and figures are made on
OWN = 250  # texts of a data set that other languages are told from
TAKEN = 0.005  # the share of these texts that may be taken for another language
CHECKED = 200  # of these texts whose logits torch and the graphs must agree on
ROUNDING = 1e-4  # of a logit: contributions are rounded one by one


def train(recipe: Recipe, data: Path, encoder: Path, teacher: Path | None, out: Path, say: Say) -> None:
    out.mkdir(parents=True, exist_ok=True)
    sets = corpora.read_all(data)
    reader, pieces, lists = begun(sets, encoder)
    asked = wanted(sets, recipe)
    answers = Answers(SAID, out / f"said-{digest(recipe.teacher)[:12]}.npy")
    if new := [row.text for rows in asked.values() for row in rows if row.text not in answers]:
        answers.ask(_teacher(recipe, sets, teacher, out, say), new, say)
    short, long = short_lessons(asked, answers, pieces, recipe), long_lessons(sets, pieces, recipe)
    for name, lessons in (("short", short), ("long", long)):
        say(f"{len(lessons)} {name} lessons, {lessons.sizes.sum()} pieces, mean {lessons.targets.mean():.2f}")

    pooled, plane = drawn(recipe, reader.config.width)
    context = StepContext(Memory(reader), recipe.seed, say)
    learnt = {"reader": reader, "pooled": pooled, "plane": plane, "memory": context.memory}
    kept, every = Kept(out, say), short + long

    def step(name: str, made_of: Sequence[Any], run: Callable[[Path], None]) -> None:
        def make(checkpoint: Path) -> dict[str, Any]:
            run(checkpoint)
            return {of: part.state_dict() for of, part in learnt.items()}

        found = kept.step(name, [*made_of, recipe.seed], make)
        for of, part in learnt.items():
            part.load_state_dict(found[of])

    def begin(checkpoint: Path) -> None:
        calibrate(reader, short, recipe.place)
        place(reader, plane, every, recipe.place, context, checkpoint)

    step(
        "soft", [reader, short, recipe.soft], lambda at: soft(reader, pooled, short, recipe.soft, context, at)
    )
    step("hard", [short, recipe.hard], lambda at: hard(reader, pooled, short, recipe.hard, context, at))
    step("placed", [every, recipe.place, recipe.plane], begin)
    step(
        "settled", [every, recipe.settle], lambda at: settle(reader, plane, every, recipe.settle, context, at)
    )
    even, figures = judged(reader, plane, pieces, sets, say)
    about = {
        "data": corpora.sizes(sets),
        "licences": {"encoder": "all-MiniLM-L6-v2, Apache 2.0", "teacher": "all-mpnet-base-v2, Apache 2.0"},
        "recipe": digest(recipe),
    }
    own = [row.text for rows in sets.values() for row in _labelled(rows, "choose")[:OWN]]
    write(reader, plane, lists, out / "models", own=own, even=even, about=about, figures=figures)


def begun(sets: Mapping[str, Rows], encoder: Path) -> tuple[Encoder, WordPieceTokenizer, Vocabulary]:
    """The published reader, with pieces for what is folded into one."""
    spelt = (encoder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    lists = names.lists((row.text for name in CASED for row in sets[name] if row.split == "train"), spelt)
    reader = load_minilm(encoder)
    _begin_special(reader, lists)
    return reader, WordPieceTokenizer(lists), lists


def _teacher(recipe: Recipe, sets: Mapping[str, Rows], folder: Path | None, out: Path, say: Say) -> Teacher:
    if folder is None:
        raise NotFound("sentences were never asked, and there is no teacher: make teacher", param="teacher")
    file = out / f"teacher-{digest(recipe.teacher)[:12]}.pt"
    if file.exists():
        teacher = Teacher(folder)
        teacher.load_state_dict(torch.load(file))
        return teacher.eval()
    teacher = fitted(folder, sets, recipe.teacher, file.with_suffix(".checkpoint"), say)
    keep(teacher.state_dict(), file)
    return teacher


def drawn(recipe: Recipe, width: int) -> tuple[Pooled, LeaderHead]:
    """What begins at random: always the same of one recipe."""
    torch.manual_seed(recipe.seed)
    return Pooled(width), LeaderHead(recipe.plane)


@torch.no_grad()
def _begin_special(reader: Encoder, lists: Vocabulary) -> None:
    """A folded piece begins as the mean of what it stands for."""
    number, of = {piece: i for i, piece in enumerate(lists.tokens)}, lists.special
    for special, words in {
        of.name: sorted(lists.names), of.group: sorted(lists.groups),
        of.number: ["5", "7", "10", "20", "50", "100"],
        of.handle: ["user", "someone", "friend"], of.link: ["link", "website", "page"],
    }.items():  # fmt: skip
        rows = [number[word] for word in words if word in number]
        reader.words.weight[special] = reader.words.weight[rows].mean(0)


# ---- what is chosen, what is measured, what is written


def judged(
    reader: Encoder, plane: LeaderHead, pieces: WordPieceTokenizer, sets: Mapping[str, Rows], say: Say
) -> tuple[float, dict[str, Any]]:
    """Sets the plane's temperature; the band called even, and figures."""
    texts = {split: held(pieces, sets, split) for split in ("choose", "report")}
    chosen = {name: verdicts(reader, plane, lessons)[:, 0] for name, lessons in texts["choose"].items()}
    heat = _temperature(chosen, texts["choose"])
    with torch.no_grad():
        plane.v.mul_(heat)
        plane.b.mul_(heat)
    even = even_band({name: heat * logits for name, logits in chosen.items()}, texts["choose"])
    say(f"temperature {1 / heat:.2f}, even within {even}")
    figures = {}
    for name, lessons in texts["report"].items():
        figures[name] = figures_of(verdicts(reader, plane, lessons)[:, 0], lessons.targets, even)
        say(f"{name}: balanced accuracy {100 * figures[name]['balanced_accuracy']:.1f}")
    return even, figures


def write(
    reader: Encoder,
    plane: LeaderHead,
    lists: Vocabulary,
    models: Path,
    *,
    own: Sequence[str],
    even: float,
    about: Mapping[str, Any],
    figures: Mapping[str, Any],
) -> None:
    """Two bundles: the reader, and the head that stands on it. `own`: texts in its language.

    The head is refused if the graphs do not say what torch does.
    """
    shape = reader.config
    card = {
        "name": "reader",
        "description": "A transformer all of whose heads follow one piece or nobody, in whole numbers.",
        "layers": shape.layers, "heads": shape.heads, "width": shape.width, **about,
    }  # fmt: skip
    listed = {
        key: list(lists.tokens) if field == "tokens" else sorted(getattr(lists, field))
        for field, key in VOCABULARY_KEYS.items()
    }
    graph = encoder_graph.to_onnx(encoder_quantized.quantize(reader))
    base = write_bundle(models, "reader", card, graph, json.dumps(listed, ensure_ascii=False))
    runtime = Runtime("cpu", torch.get_num_threads())
    served = ServedReader.load(base, runtime)
    near, caught = _foreign(served, own)
    card = {
        "name": "sentiment",
        "description": "Positive, negative or neither, for reviews, sentences and tweets.",
        "labels": ["negative", "positive"], "even": even,
        "reader": {"name": "reader", "sha256": base.card["model_sha256"]},
        "alpha": plane.config.alpha, "layers": plane.config.n_layers, "dimension": plane.config.dimension,
        "readout": {"vector": plane.v[0].tolist()},
        "unlike": {"held_out": TAKEN, "others": caught},
        "figures": figures, **about,
    }  # fmt: skip
    graph = head_graph.to_onnx(head_quantized.quantize(plane, reader.output_scales) | near)
    head = Head.from_graph("sentiment", graph.SerializeToString(), runtime, served, card)
    short = [text for text in own if 0 < len(served.tokenize(text)) <= WORDS][:: 1 + len(own) // CHECKED]
    learnt = verdicts(reader, plane, Lessons.of(WordPieceTokenizer(lists), short, [0.0] * len(short)))[:, 0]
    _check_same(learnt, served_logits(served, head, short))
    write_bundle(models, "sentiment", card, graph)


def _check_same(learnt: Any, served: Any) -> None:
    same = np.isclose(learnt, served, rtol=0, atol=ROUNDING)
    if not len(same) or not same.all():
        problem = f"torch and the graphs agree on the logits of {same.sum()} of {len(same)} texts"
        raise BundleError(f"sentiment is not written: {problem}", param="model.onnx")


def _foreign(reader: ServedReader, own: Sequence[str]) -> tuple[dict[str, Any], float]:
    """What tells other languages, whose pieces are all in the vocabulary, from texts; the share it tells."""
    states, _ = encode_texts(reader, own)
    others, _ = encode_texts(reader, ood.foreign_sentences())
    parts = np.array_split(np.random.default_rng(0).permutation(len(states)), N_FOLDS)
    score = ood.calibrate(states, [others], parts, np.ones(len(states)), [TAKEN])
    return score.weights, score.detected


def held(pieces: WordPieceTokenizer, sets: Mapping[str, Rows], split: str) -> dict[str, Lessons]:
    found = {}
    for name, rows in sets.items():
        if some := _labelled(rows, split):
            lessons = Lessons.of(pieces, [row.text for row in some], [row.target or 0.0 for row in some])
            found[name] = lessons.take(np.flatnonzero(np.cumsum(lessons.sizes) <= HELD))
    return found


def _labelled(rows: Rows, split: str) -> Rows:
    """In any order, always the same."""
    found = [row for row in rows if row.split == split and row.target is not None]
    random.Random(0).shuffle(found)
    return found


def _temperature(logits: Mapping[str, Any], held: Mapping[str, Lessons]) -> float:
    """The factor under which log-loss is least over all texts that have a side."""
    sided = {name: lessons.targets != 0.5 for name, lessons in held.items()}
    every = np.concatenate([logits[name][some] for name, some in sided.items()])
    truth = np.concatenate([held[name].targets[some] > 0.5 for name, some in sided.items()])
    return temperature(every, truth)


def even_band(logits: Mapping[str, Any], held: Mapping[str, Lessons]) -> float:
    """Half the band around one half that is called even: the narrowest that tells three labels nearly as well
    as the best does, over the sets that have them."""
    best: dict[float, list[float]] = {}
    for name, lessons in held.items():
        if set(lessons.targets.tolist()) != {0.0, 0.5, 1.0}:
            continue
        p = sigmoid(logits[name])
        for half in np.arange(0.02, 0.41, 0.01).round(2).tolist():
            best.setdefault(half, []).append(balanced(three_labels(p, half), lessons.targets))
    told = {half: float(np.mean(found)) for half, found in best.items()}
    return min(half for half, value in told.items() if value >= max(told.values()) - NEARLY)


def figures_of(logits: Any, targets: Any, even: float) -> dict[str, Any]:
    sided = targets != 0.5
    truth = targets[sided] > 0.5
    found = {**asdict(score(logits[sided], truth)), "balanced_accuracy": balanced(logits[sided] > 0, truth)}
    if not sided.all():
        found["three_labels"] = balanced(three_labels(sigmoid(logits), even), targets)
    return found


# ---- command line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True, help="the folder of the data sets")
    parser.add_argument(
        "--encoder", type=Path, required=True, help="the folder of all-MiniLM-L6-v2, as published"
    )
    parser.add_argument(
        "--teacher", type=Path, help="the folder of all-mpnet-base-v2; needed for new sentences only"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), help="bundles go to OUT/models (default: runs)"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())


def run(arguments: argparse.Namespace) -> int:
    torch.set_num_threads(arguments.threads)
    began = time.monotonic()
    train(
        Recipe(), arguments.data, arguments.encoder, arguments.teacher, arguments.out,
        lambda line: print(f"{(time.monotonic() - began) / 60:5.1f} min  {line}", flush=True),
    )  # fmt: skip
    return 0
