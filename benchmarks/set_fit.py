"""SetFit: an encoder fine-tuned on pairs of rows with equal or different labels, then logistic regression."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PAIRS_PER_ROW = 40  # as in its paper
PAIRS_PER_STEP = 16
MAX_STEPS = 100


def fit_set_fit(encoder: Path, texts: Sequence[str], truth: NDArray[Any], seed: int) -> Any:
    """Return a model that predicts what `truth` has: the index of a label, or a 0 or 1 for each label."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    strategy = {"multi_target_strategy": "one-vs-rest"} if truth.ndim > 1 else {}
    model = SetFitModel.from_pretrained(str(encoder), device="cpu", **strategy)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=min(MAX_STEPS, PAIRS_PER_ROW * len(texts) // PAIRS_PER_STEP),
            batch_size=PAIRS_PER_STEP, seed=seed, report_to="none", save_strategy="no",
            logging_strategy="no", show_progress_bar=False,
        )  # fmt: skip
        rows = Dataset.from_dict({"text": list(texts), "label": truth.tolist()})
        Trainer(model=model, args=arguments, train_dataset=rows).train()
    return model


def predict_set_fit(model: Any, texts: Sequence[str]) -> NDArray[Any]:
    return np.asarray(model.predict(list(texts), show_progress_bar=False))
