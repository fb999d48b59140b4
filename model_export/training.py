"""The loop that every stage runs: AdamW over a fixed plan of batches, resumed from a checkpoint."""

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
FINAL_LR_SHARE = 0.02  # of the initial rate, at the end of the linear decay


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that are trained at `lr_factor` times the learning rate of the stage."""

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
        groups: the parameters to train.
        compute_loss: called with the rows of a batch and the share of the plan that is done.
        lr: the learning rate, which rises over `warm_up` steps and then falls linearly.
        warm_up: the number of steps over which the learning rate rises.
        report: called with a line every few steps.
        checkpoint: the file to resume from. The caller deletes it once the result of the stage is saved.
    """
    parameters = [p for group in groups for p in group.parameters]
    optimizer = torch.optim.AdamW(
        [{"params": list(group.parameters)} for group in groups], lr=lr, weight_decay=0.01, fused=True
    )
    first_step = _resume(checkpoint, parameters, optimizer)
    start_s, total = time.monotonic(), torch.zeros(())
    for step in range(first_step, len(plan)):
        progress = step / len(plan)
        rate = lr * min(1.0, (step + 1) / warm_up) * max(FINAL_LR_SHARE, 1 - progress)
        for param_group, group in zip(optimizer.param_groups, groups, strict=True):
            param_group["lr"] = rate * group.lr_factor
        optimizer.zero_grad()
        loss = compute_loss(plan[step], progress)
        loss.backward()  # type: ignore[no-untyped-call]
        for group in groups:
            nn.utils.clip_grad_norm_(group.parameters, 1.0)
        optimizer.step()
        total = total.to(loss.device) + loss.detach()
        if (step + 1) % STEPS_PER_LINE == 0 or step + 1 == len(plan):
            step_s = (time.monotonic() - start_s) / (step + 1 - first_step)
            mean = float(total) / (step % STEPS_PER_LINE + 1)
            remaining_s = step_s * (len(plan) - step - 1)
            report(f"{name} {step + 1}/{len(plan)}, {remaining_s:.0f} s left, loss {mean:.4f}")
            total = torch.zeros(())
        if (step + 1) % STEPS_PER_CHECKPOINT == 0:
            with atomic_write(checkpoint) as out:
                state = {"step": step + 1, "parameters": parameters, "optimizer": optimizer.state_dict()}
                torch.save(state, out)


@torch.no_grad()
def _resume(checkpoint: Path, parameters: Sequence[Any], optimizer: torch.optim.Optimizer) -> int:
    """Restore the checkpoint, if there is one, and return the first step."""
    if not checkpoint.exists():
        return 0
    state = torch.load(checkpoint, map_location=parameters[0].device)
    for parameter, value in zip(parameters, state["parameters"], strict=True):
        parameter.copy_(value)
    optimizer.load_state_dict(state["optimizer"])
    step: int = state["step"]
    return step
