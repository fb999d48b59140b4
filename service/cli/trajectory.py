"""Write the trajectory of a cloud to a file."""

import csv
from pathlib import Path

import numpy as np

from evaluation.tables.writing import check_folder
from hardmax.models.clouds import DynamicsResult
from service.errors import InvalidInput

TRAJECTORY_SUFFIXES = (".npy", ".csv")


def check_trajectory(path: str) -> None:
    """Refuse a file that cannot be written before the cloud is run."""
    if Path(path).suffix.lower() not in TRAJECTORY_SUFFIXES:
        raise InvalidInput(
            f"{path}: --trajectory writes {', '.join(TRAJECTORY_SUFFIXES)}", param="--trajectory"
        )
    check_folder(path)


def write_trajectory(result: DynamicsResult, path: str) -> None:
    """Write an array of shape (layers, n, d) as npy, or a row for each layer and point as csv."""
    assert result.trajectory is not None
    points = np.array(result.trajectory.points)
    try:
        if Path(path).suffix.lower() == ".npy":
            with open(path, "wb") as file:
                np.save(file, points)
            return
        with open(path, "w", newline="", encoding="utf-8") as rows:
            writer = csv.writer(rows, lineterminator="\n")
            writer.writerow(["layer", "point", *(f"x{i + 1}" for i in range(points.shape[2]))])
            for layer, cloud in zip(result.trajectory.layers, points, strict=True):
                writer.writerows([layer, i, *point] for i, point in enumerate(cloud.tolist()))
    except OSError as error:
        problem = f"{path} cannot be written: {error.strerror or error}"
        raise InvalidInput(problem, param="--trajectory") from None
