"""The loop that every stage runs: AdamW over a fixed plan of batches, resumed from a checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from model_export.writing import atomic_write

Ints = NDArray[np.int64]
Report = Callable[[str], None]
STEPS_PER_LINE = 50
STEPS_PER_CHECKPOINT = 250
FINAL_LR = 0.02  # of the first, at the end of the linear decay


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that learn at `lr_factor` times the rate of the stage."""

    parameters: Sequence[nn.Parameter]
    lr_factor: float = 1.0


def train_loop(
    name: str,
    plan: Sequence[Ints],
    groups: Sequence[ParameterGroup],
    compute_loss: Callable[[Ints, float], Tensor],
    *,
    lr: float,
    warm_up: int,
    report: Report,
    checkpoint: Path,
) -> None:
    """Run every batch of a plan.

    Args:
        name: of the stage, for the report.
        plan: the rows of each batch.
        groups: what learns.
        compute_loss: gets the rows of a batch and the share of the plan that is done.
        lr: the learning rate, which rises over `warm_up` steps and then falls linearly.
        report: gets a line every few steps.
        checkpoint: where to resume from. It stays: it is needed until the result of the stage is on the disk.
    """
    learning = [p for group in groups for p in group.parameters]
    optimizer = torch.optim.AdamW(
        [{"params": list(group.parameters)} for group in groups], lr=lr, weight_decay=0.01, fused=True
    )
    first = _resume(checkpoint, learning, optimizer)
    start, total = time.monotonic(), torch.zeros(())
    for step in range(first, len(plan)):
        done = step / len(plan)
        rate = lr * min(1.0, (step + 1) / warm_up) * max(FINAL_LR, 1 - done)
        for settings, group in zip(optimizer.param_groups, groups, strict=True):
            settings["lr"] = rate * group.lr_factor
        optimizer.zero_grad()
        loss = compute_loss(plan[step], done)
        loss.backward()  # type: ignore[no-untyped-call]
        for group in groups:
            nn.utils.clip_grad_norm_(group.parameters, 1.0)
        optimizer.step()
        total = total.to(loss.device) + loss.detach()
        if (step + 1) % STEPS_PER_LINE == 0 or step + 1 == len(plan):
            left = (time.monotonic() - start) / (step + 1 - first) * (len(plan) - step - 1)
            mean = float(total) / (step % STEPS_PER_LINE + 1)
            report(f"{name} {step + 1}/{len(plan)}, {left:.0f} s left, loss {mean:.4f}")
            total = torch.zeros(())
        if (step + 1) % STEPS_PER_CHECKPOINT == 0:
            with atomic_write(checkpoint) as out:
                state = {"step": step + 1, "parameters": learning, "optimizer": optimizer.state_dict()}
                torch.save(state, out)


@torch.no_grad()
def _resume(checkpoint: Path, learning: Sequence[Any], optimizer: torch.optim.Optimizer) -> int:
    """Return the step to begin with."""
    if not checkpoint.exists():
        return 0
    state = torch.load(checkpoint, map_location=learning[0].device)
    for parameter, value in zip(learning, state["parameters"], strict=True):
        parameter.copy_(value)
    optimizer.load_state_dict(state["optimizer"])
    step: int = state["step"]
    return step
