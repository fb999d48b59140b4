"""The figures of arXiv 2407.01602 that can be drawn again with this project alone.

Figure 1 shows how a token chooses whom it attends to, and figure 2 how the leaders of two small clouds gather
the others. The paper gives the clouds of figure 2; that of figure 1 is ours. `review` is its picture of a
text on its way through the layers, by the pretrained model. Its other figures count over many film reviews,
by models trained on them: docs/paper has ours.

    python examples/paper.py [FOLDER [TEXT]]
"""

import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from hardmax import Answer, Local

CHOICE = np.array([(1.0, 0.4), (1.6, -0.5), (0.3, 1.5), (1.2, 1.1), (-0.8, 0.9), (-1.0, -0.7), (0.4, -1.2)])
FORMS = {"A = I": np.eye(2), "another A": np.array([[2.0, -1.2], [-1.2, 1.0]])}
TRIANGLE = np.array(
    [(1, 1), (0.5, -0.5), (-1, -1), (0.3, -0.2), (0.1, -0.2), (0.8776, 0.9785), (0.0989, 0.4935),
     (-0.2030, -0.9591), (-0.3824, -0.9242)]
)  # fmt: skip
EMERGING = np.array(
    [(1, 1 / 3), (-1 / 12, 1 / 12), (-1, -1), (0, 0.25), (-0.3, -0.7), (-0.6, -0.9), (0.8, 0.1), (0.6, 0.15)]
)
REVIEW = "The plot is slow and the ending is predictable, but the acting is superb and I would see it again."
CLOUDS = {"three leaders from the start": TRIANGLE, "a leader that emerges": EMERGING}


def figure_1(out: Path) -> list[int]:
    """Token 0 attends to whoever lies farthest in the direction A z_0. Returns whom, under each form."""
    figure, panels = plt.subplots(1, 2, figsize=(9, 4.4), constrained_layout=True)
    chosen = []
    for axes, (name, A) in zip(panels, FORMS.items(), strict=True):
        direction = A @ CHOICE[0] / np.linalg.norm(A @ CHOICE[0])
        along = CHOICE @ direction
        best = int(along.argmax())
        chosen.append(best)
        axes.axline((0, 0), direction, color="0.6", ls="--", lw=1)
        for point, length in zip(CHOICE, along, strict=True):
            axes.plot(*np.transpose([point, length * direction]), color="0.8", lw=0.8)
        axes.scatter(*CHOICE.T, c=["#2b6cb0" if i == best else "0.3" for i in range(len(CHOICE))], zorder=2)
        axes.annotate("", direction, (0, 0), arrowprops={"arrowstyle": "->"})
        for i, point in enumerate(CHOICE):
            axes.text(*point, f"  z{i}", fontsize=9)
        axes.set_title(f"{name}: C(0) = {{{best}}}", fontsize=10)
        axes.set_aspect("equal")
    figure.savefig(out)
    plt.close(figure)
    return chosen


def figure_2(out: Path) -> list[dict[str, Any]]:
    """A = I, alpha = 0.5, 30 layers. Returns who leads since when, for each cloud."""
    figure, panels = plt.subplots(1, 2, figsize=(9, 4.4), constrained_layout=True)
    found = []
    with Local() as hardmax:
        for axes, (name, points) in zip(panels, CLOUDS.items(), strict=True):
            run = hardmax.dynamics(
                points, alpha=0.5, stop="never", max_layers=30, include=["assignment", "trajectory"]
            )
            assert run.trajectory is not None
            for way in np.array(run.trajectory.points).transpose(1, 2, 0):
                axes.plot(*way, color="0.75", lw=0.9, zorder=0)
            axes.scatter(*points.T, c=np.array(run.assignment), cmap="viridis", s=24)
            for leader in run.leaders:
                axes.scatter(*leader.point, marker="*", s=170, color="#d9480f")
                axes.text(*leader.point, f"  {leader.index}, since layer {leader.since_layer}", fontsize=9)
            axes.set_title(name, fontsize=10)
            axes.set_aspect("equal")
            found.append({str(leader.index): leader.since_layer for leader in run.leaders})
    figure.savefig(out)
    plt.close(figure)
    return found


def review(out: Path, text: str = REVIEW) -> Answer:
    """The words of a text at the first, a middle and the last layer, leaders as stars. Returns its answer."""
    with Local() as hardmax:
        answer = hardmax.classify(text, explain="full", trajectory=True)
    assert answer.trajectory is not None
    layers = np.array(answer.trajectory)
    colours = ["#2b6cb0" if word.contribution > 0 else "#d9480f" for word in answer.words]
    shown = sorted({0, len(layers) // 2, len(layers) - 1})
    figure, panels = plt.subplots(
        1, len(shown), figsize=(13, 4.4), sharex=True, sharey=True, constrained_layout=True
    )
    for axes, layer in zip(panels, shown, strict=True):
        axes.scatter(*layers[layer].T, c=colours, s=18)
        for word, place in zip(answer.words, layers[layer], strict=True):
            if word.leader:
                axes.scatter(*place, marker="*", s=170, color="0.2")
            if word.leader or layer == 0:
                axes.text(*place, f"  {word.word}", fontsize=8)
        axes.set_title(f"layer {layer}", fontsize=10)
    figure.suptitle(f"{answer.verdict}: {text}", fontsize=10)
    figure.savefig(out)
    plt.close(figure)
    return answer


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    figure_1(folder / "figure1.svg")
    figure_2(folder / "figure2.svg")
    review(folder / "review.svg", *sys.argv[2:3])
