"""What each training stage has: balanced accuracy on the test split.

    python -m benchmarks.stages RUNS --data DATA --teacher TEACHER

finetune, harden        the mean of the hidden states after that stage, read linearly
fit_head, tune_jointly  the leader head on the quantized encoder

RUNS is where `make models` keeps its stages, and those of one recipe alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model_export.data import corpora
from model_export.data.training_set import TrainingSet
from model_export.encoder.attention import PAD
from model_export.learners import Learners, PooledHead
from model_export.measure.scores import balanced_accuracy
from model_export.pretrained import new_learners, read_vocabulary
from model_export.publish import held_out
from model_export.recipe import Recipe
from model_export.stages import predict
from service.text.tokenizer import WordPieceTokenizer

STAGES = ("finetune", "harden", "fit_head", "tune_jointly")


@torch.no_grad()
def pooled_logits(states: Callable[[Tensor], Tensor], pooled: PooledHead, texts: TrainingSet) -> Any:
    """Of a text of several chunks, the mean over these, weighted by their tokens."""
    logits = np.zeros(len(texts))
    for rows in texts.batches(6_000):
        batch = texts.batch(rows)
        there = batch.token_ids != PAD
        size = there.sum(1).float()
        sums = (states(batch.token_ids) * there[..., None]).sum(1)
        text = batch.word.amin(1) // batch.words
        total = sums.new_zeros(batch.texts, sums.shape[1]).index_add(0, text, sums)
        tokens = torch.zeros(batch.texts).index_add(0, text, size)
        logits[rows] = pooled(total / tokens[:, None]).numpy()
    return logits


def stage_logits(stage: str, learners: Learners, texts: TrainingSet) -> Any:
    encoder, pooled = learners.encoder, learners.pooled
    if stage == "finetune":
        return pooled_logits(lambda x: encoder.soft(x)[-1], pooled, texts)
    if stage == "harden":
        return pooled_logits(lambda x: encoder.hard(x)[0][-1], pooled, texts)
    return predict(encoder, learners.head, texts)[:, 0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--teacher", type=Path, required=True)
    arguments = parser.parse_args()
    sets = corpora.read_all(arguments.data)
    vocabulary, rows = read_vocabulary(sets, arguments.teacher)
    learners = new_learners(Recipe(), arguments.teacher, vocabulary, rows, sets)
    texts = held_out(WordPieceTokenizer(vocabulary), sets, "test")
    for stage in STAGES:
        (file,) = arguments.runs.glob(f"{stage}-*.pt")
        learners.load_state_dict(torch.load(file))
        found = {}
        for name, part in texts.items():
            sided = part.take(np.flatnonzero(part.targets != 0.5))
            found[name] = balanced_accuracy(stage_logits(stage, learners, sided) > 0, sided.targets > 0.5)
        line = ", ".join(f"{name} {100 * value:.1f}" for name, value in found.items())
        print(f"{stage}: {line}; mean {100 * np.mean(list(found.values())):.1f}", flush=True)


if __name__ == "__main__":
    main()
