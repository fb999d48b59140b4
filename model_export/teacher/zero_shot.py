"""Zero-shot sentiment: is the embedding of a text nearer to plain positive or to plain negative sentences?

In this way the published encoder classifies plain events ("They solved it the same day.") better than models
that are fitted to reviews, where plain events are mostly complaints.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from model_export.data.training_set import pad, to_device
from model_export.teacher.encoder import PADDING, Teacher

Embeddings = NDArray[np.float16]

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


def zero_shot_axis(teacher: Teacher) -> NDArray[np.float32]:
    """Return the mean unit embedding of plain positive sentences minus that of negative ones."""
    device, means = teacher.words.weight.device, []
    for text in (HAPPY_SENTENCES, UNHAPPY_SENTENCES):
        sentences = [sentence for line in text.splitlines() for sentence in line.split("|")]
        x = to_device(pad(teacher.tokenize(sentences), PADDING), device)
        with torch.inference_mode():
            embedded = teacher.embed(x).float().cpu().numpy()
        means.append(_normalize(embedded).mean(0))
    return np.asarray(means[0] - means[1], np.float32)


def zero_shot_scores(embeddings: Embeddings, axis: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the score of each embedding; near 0 for a plain fact."""
    return np.asarray(_normalize(np.asarray(embeddings, np.float32)) @ axis, np.float32)


def _normalize(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True), np.float32)
