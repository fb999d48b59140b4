"""What each step of learning kept, and what a twin without heads has: balanced accuracy on `report`.

    python -m benchmarks.steps RUNS --data DATA --encoder ENCODER

soft, hard      the mean of the states after that step, read linearly
placed, settled the verdict read off the leaders, in whole numbers
alone           the soft step again with the same lessons, but every piece read by itself: no head can follow
                anybody else. It is learnt here, once, and kept in RUNS

RUNS is where `make models` kept its steps, and those of one recipe alone.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model_export.data import corpora
from model_export.data.training_set import Ints, Lessons
from model_export.encoder.model import PAD, Encoder
from model_export.measure.scores import balanced
from model_export.pretrained import begun, drawn, held
from model_export.recipe import Recipe, short_lessons, wanted
from model_export.stage_cache import Kept, digest
from model_export.stages import Memory, Pooled, StepContext, soft, verdicts
from model_export.teacher.logits import SAID, Answers

Judge = Callable[[Lessons], Any]


class Alone(Encoder):
    """A reader of single pieces."""

    def soft(self, x: Tensor) -> list[Tensor]:
        there = x != PAD
        found = super().soft(x[there][:, None])
        states = x.new_zeros(*x.shape, self.config.width, dtype=torch.float32)
        return [states.masked_scatter(there[..., None], each[:, 0]) for each in found]


@torch.no_grad()
def pooled_verdicts(states: Callable[[Tensor], Tensor], pooled: Pooled, lessons: Lessons) -> Any:
    """Of texts of one passage; those of several are the mean over their passages."""
    found = np.zeros(len(lessons))
    for rows in lessons.batches(6_000):
        batch = lessons.batch(rows)
        there = batch.pieces != PAD
        logits = pooled(states(batch.pieces), there)
        text = batch.word.amin(1) // batch.words
        size = there.sum(1).float()
        total = torch.zeros(batch.texts).index_add(0, text, logits * size)
        found[rows] = (total / torch.zeros(batch.texts).index_add(0, text, size)).numpy()
    return found


def learn_alone(begin: Encoder, pooled: Pooled, lessons: Lessons, recipe: Recipe, runs: Path) -> Encoder:
    reader = Alone(begin.config)
    reader.load_state_dict(begin.state_dict())
    context = StepContext(Memory(reader), recipe.seed, print)

    def learn(checkpoint: Path) -> dict[str, Any]:
        soft(reader, pooled, lessons, recipe.soft, context, checkpoint)
        return {"reader": reader.state_dict(), "pooled": pooled.state_dict()}

    found = Kept(runs, print).step("alone", [reader, pooled, lessons, recipe.soft, recipe.seed], learn)
    reader.load_state_dict(found["reader"])
    pooled.load_state_dict(found["pooled"])
    return reader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", type=Path, required=True)
    parser.add_argument("--without-alone", action="store_true", help="the kept steps only")
    arguments = parser.parse_args()
    recipe, sets = Recipe(), corpora.read_all(arguments.data)
    reader, pieces, _ = begun(sets, arguments.encoder)
    pooled, plane = drawn(recipe, reader.config.width)
    begin = copy.deepcopy(reader)
    texts = held(pieces, sets, "report")

    def tell(name: str, judge: Judge) -> None:
        told = {}
        for of, lessons in texts.items():
            sided: Ints = np.flatnonzero(lessons.targets != 0.5)
            some = lessons.take(sided)
            told[of] = balanced(judge(some) > 0, some.targets > 0.5)
        line = ", ".join(f"{of} {100 * value:.1f}" for of, value in told.items())
        print(f"{name}: {line}; mean {100 * np.mean(list(told.values())):.1f}", flush=True)

    def load(name: str) -> None:
        (file,) = arguments.runs.glob(f"{name}-*.pt")
        print(file.name)
        found = torch.load(file)
        for of, part in (("reader", reader), ("pooled", pooled), ("plane", plane)):
            part.load_state_dict(found[of])

    load("soft")
    tell("soft", lambda some: pooled_verdicts(lambda x: reader.soft(x)[-1], pooled, some))
    load("hard")
    tell("hard", lambda some: pooled_verdicts(lambda x: reader.hard(x)[0][-1], pooled, some))
    for name in ("placed", "settled"):
        load(name)
        tell(name, lambda some: verdicts(reader, plane, some)[:, 0])
    if not arguments.without_alone:
        pooled, _ = drawn(recipe, begin.config.width)
        answers = Answers(SAID, arguments.runs / f"said-{digest(recipe.teacher)[:12]}.npy")
        lessons = short_lessons(wanted(sets, recipe), answers, pieces, recipe)
        alone = learn_alone(begin, pooled, lessons, recipe, arguments.runs)
        tell("alone", lambda some: pooled_verdicts(lambda x: alone.soft(x)[-1], pooled, some))


if __name__ == "__main__":
    main()
