"""Zero-shot sentiment: is the embedding of a text nearer to plain positive or to plain negative sentences?

The published encoder classifies plain events ("They solved it the same day.") better in this way than models
that are fitted to reviews, in which a plain event is mostly a complaint.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from model_export.data.training_set import batches, padded
from model_export.teacher.encoder import PADDING, Teacher
from model_export.training import Report

Embeddings = NDArray[np.float16]
TEXTS_PER_FLUSH = 4_096
ZERO_SHOT_TOKENS_PER_BATCH = 1_500

HAPPY_SENTENCES = """\
I am very happy about this.|What a pleasant surprise, thank you so much!|This made my day.
The customer is delighted.|Excellent, I would recommend it to everyone.|We were treated wonderfully.
It works perfectly.|Good news.|That was kind and helpful.|I am satisfied with this purchase.
That is a big relief.|I am grateful for what they did.|Great value for the money.|It lasts and lasts.
The food was delicious.|A wonderful film that I will watch again.|Everything went smoothly.
They solved my problem quickly.|I feel much better now.|I am impressed.|I will buy it again.
The staff went out of their way for us.|This is exactly what I wanted.|The children love it.
Our stay was comfortable.|He is a great doctor.|This is better than I expected.
It saved us a lot of trouble.|Well done, congratulations!|I am proud of the result."""
UNHAPPY_SENTENCES = """\
I am very unhappy about this.|What an unpleasant surprise, I want my money back.
This ruined my day.|The customer is furious.|Terrible, I would warn everyone against it.
We were treated badly.|It does not work.|Bad news.|That was rude and unhelpful.
I am disappointed with this purchase.|That is a big worry.|I am angry about what they did.
A waste of money.|It broke after a few days.|The food was awful.
A terrible film that I will never watch again.|Everything went wrong.|They ignored my problem.
I feel much worse now.|I am annoyed.|I will never buy it again.
The staff could not be bothered to help us.|This is not at all what I wanted.|The children hate it.
Our stay was uncomfortable.|He is a terrible doctor.|This is worse than I expected.
It caused us a lot of trouble.|Shame on them, I want to complain.|I am ashamed of the result."""


def embed_texts(teacher: Teacher, texts: list[str], file: Path, report: Report) -> Embeddings:
    """Return the published embedding of each text [n, W], the mean of its last states.

    They are computed in bfloat16 and written to `file`; an interrupted run resumes.
    """
    teacher, done_file = teacher.bfloat16(), file.with_suffix(".done")
    done = int(done_file.read_text()) if done_file.exists() and file.exists() else 0
    found = np.lib.format.open_memmap(
        file, mode="r+" if done else "w+", dtype=np.float16, shape=(len(texts), teacher.words.embedding_dim)
    )
    for at in range(done, len(texts), TEXTS_PER_FLUSH):
        part = teacher.tokenize(texts[at : at + TEXTS_PER_FLUSH])
        for rows in batches(np.array([len(each) for each in part]), ZERO_SHOT_TOKENS_PER_BATCH):
            x = padded([part[i] for i in rows.tolist()], PADDING)
            with torch.inference_mode():
                found[at + rows] = teacher.embed(x).float().numpy()
        found.flush()
        done_file.write_text(str(at + len(part)))
        report(f"embedded {at + len(part)} of {len(texts)} texts")
    return found


def zero_shot_axis(teacher: Teacher) -> NDArray[np.float32]:
    """Return the mean of the plain positive sentences less that of the negative ones, each of length one."""
    sides = []
    for text in (HAPPY_SENTENCES, UNHAPPY_SENTENCES):
        sentences = [each for line in text.splitlines() for each in line.split("|")]
        with torch.inference_mode():
            embedded = teacher.embed(padded(teacher.tokenize(sentences), PADDING)).float().numpy()
        sides.append(_unit(embedded).mean(0))
    return np.asarray(sides[0] - sides[1], np.float32)


def zero_shot_scores(embeddings: Embeddings, axis: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the score of each embedding; near 0 for a plain fact."""
    return np.asarray(_unit(np.asarray(embeddings, np.float32)) @ axis, np.float32)


def _unit(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True), np.float32)
