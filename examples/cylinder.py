"""Which moments of a flow lead? Hardmax dynamics on snapshots of a vortex street.

The flow past a cylinder at Reynolds number 120, by the lattice-Boltzmann method (nine velocities, one
relaxation time, bounce-back on the cylinder); its vorticity at regular times, each snapshot described by four
principal components; the dynamics on that cloud, free and controlled, and a picture. Takes a minute or two:

    python examples/cylinder.py [OUT.png]
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from hardmax import CloudRun, Local

NX, NY, DIAMETER = 220, 64, 12
SPEED, REYNOLDS = 0.1, 120.0
STEPS, EVERY, COMPONENTS = 12_000, 50, 4

# The nine velocities, their weights and their opposites.
C = np.array([(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)])
WEIGHT = np.array([4 / 9, *[1 / 9] * 4, *[1 / 36] * 4])
OPPOSITE = np.array([0, 3, 4, 1, 2, 7, 8, 5, 6])


def equilibrium(rho: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The nine populations of a fluid of density rho [..] that moves at u [2, ..]."""
    along, square = np.tensordot(C, u, axes=1), (u**2).sum(axis=0)
    return WEIGHT.reshape(9, 1, 1) * rho * (1 + 3 * along + 4.5 * along**2 - 1.5 * square)


def vorticity(u: np.ndarray) -> np.ndarray:
    return np.gradient(u[1], axis=0) - np.gradient(u[0], axis=1)


def simulate() -> np.ndarray:
    """Snapshots of the vorticity [t, NX, NY], from the first wake to the settled street."""
    x, y = np.mgrid[:NX, :NY]
    solid = (x - NX / 5) ** 2 + (y - NY / 2 - 0.5) ** 2 < (DIAMETER / 2) ** 2
    relaxation = 3 * SPEED * DIAMETER / REYNOLDS + 0.5
    stream = np.zeros((2, NX, NY))
    stream[0] = SPEED * (1 + 0.05 * np.sin(2 * np.pi * y / NY))  # a little shear, so that the wake tips over
    f = equilibrium(np.ones((NX, NY)), stream)
    inlet, snapshots = f[:, 0].copy(), []
    for step in range(STEPS):
        rho = f.sum(axis=0)
        u = np.tensordot(C.T, f, axes=1) / rho
        back = f[OPPOSITE][:, solid]
        f += (equilibrium(rho, u) - f) / relaxation
        f[:, solid] = back
        for i, (cx, cy) in enumerate(C):
            f[i] = np.roll(f[i], (cx, cy), axis=(0, 1))
        f[:, 0], f[:, -1] = inlet, f[:, -2]
        if step % EVERY == 0 and step >= STEPS // 3:
            u[:, solid] = 0
            snapshots.append(vorticity(u))
    return np.array(snapshots)


def principal_components(snapshots: np.ndarray) -> np.ndarray:
    """Each snapshot's first coordinates around their mean, in units of their common spread."""
    fields = snapshots.reshape(len(snapshots), -1)
    fields = fields - fields.mean(axis=0)
    U, S, _ = np.linalg.svd(fields, full_matrices=False)
    return U[:, :COMPONENTS] * S[:COMPONENTS] / S[0] * np.sqrt(len(fields))


def two_phases(points: np.ndarray) -> dict[int, int]:
    """The wish that snapshots end at the one of largest or at the one of smallest first coordinate."""
    first = points[:, 0]
    near, far = int(first.argmax()), int(first.argmin())
    return {i: near if x > 0 else far for i, x in enumerate(first) if abs(x) > first.max() / 4}


def draw(snapshots: np.ndarray, points: np.ndarray, out: Path) -> None:
    """Above, the cloud with A = I and with the A that makes two phases lead; below, those two."""
    wish = two_phases(points)
    with Local() as hardmax:
        free = hardmax.dynamics(points, include=["assignment", "limits"])
        found = hardmax.control(points, assignment=wish)
        chosen = hardmax.dynamics(points, A=found.A, include=["assignment", "limits"])
    figure, panels = plt.subplot_mosaic(
        [["free", "chosen"], ["free", "chosen"], ["near", "far"]], figsize=(9, 6), constrained_layout=True
    )
    draw_cloud(panels["free"], points, free, "A = I")
    draw_cloud(panels["chosen"], points, chosen, f"A found, margin {found.margin:.2g}")
    limit = np.abs(snapshots).max() / 3
    for name, index in zip(("near", "far"), sorted(set(wish.values())), strict=True):
        panels[name].imshow(snapshots[index].T, cmap="RdBu_r", vmin=-limit, vmax=limit, origin="lower")
        panels[name].set_title(f"vorticity of snapshot {index}", fontsize=9)
        panels[name].set_axis_off()
    figure.savefig(out, dpi=100)


def draw_cloud(axes: Axes, points: np.ndarray, result: CloudRun, name: str) -> None:
    limits, led = np.array(result.limits), points[[leader.index for leader in result.leaders]]
    for start, end in zip(points, limits, strict=True):
        axes.plot([start[0], end[0]], [start[1], end[1]], color="0.85", lw=0.6, zorder=0)
    axes.scatter(points[:, 0], points[:, 1], c=np.arange(len(points)), s=14, cmap="viridis")
    axes.scatter(led[:, 0], led[:, 1], marker="*", s=120, color="#d9480f")
    title = f"{name}: {len(led)} of {len(points)} snapshots lead"
    axes.set_title(title, fontsize=10)
    axes.set_aspect("equal")


if __name__ == "__main__":
    shots = simulate()
    draw(shots, principal_components(shots), Path(sys.argv[1] if len(sys.argv) > 1 else "cylinder.png"))
