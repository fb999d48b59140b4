"""`hardmax dynamics`, `control` and `sequences`: run clouds, choose their leaders, classify sequences."""

import argparse
from typing import get_args
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from evaluation.plot import check_picture, save_figure
from evaluation.tables.writing import check_folder
from hardmax import plot
from hardmax.models.clouds import Include
from hardmax.progress import Progress
from service.cli.options import Commands, add_api_options, open_api, show
from service.cli.output import describe_control, describe_dynamics, describe_sequences
from service.cli.point_files import read_cloud, read_sequences
from service.cli.trajectory import check_trajectory, write_trajectory
from service.errors import InvalidInput

NOT_FOUND = 1
PLOT_PARTS: list[Include] = ["assignment", "limits", "trajectory", "polytope"]


def add_commands(commands: Commands) -> None:
    """Add the commands `dynamics`, `control` and `sequences`."""
    _add_dynamics(commands)
    _add_control(commands)
    _add_sequences(commands)


def _add_dynamics(commands: Commands) -> None:
    dynamics = commands.add_parser("dynamics", help="find where the points of a cloud end, and which lead")
    _add_cloud(dynamics)
    dynamics.add_argument("--A", metavar="FILE", help="symmetric positive definite matrix; default: identity")
    dynamics.add_argument("--max-layers", type=int, help="default 1000")
    dynamics.add_argument("--stop", choices=["certified", "converged", "never"], help="default: certified")
    dynamics.add_argument("--tolerance", type=float, help="how near a point must come with --stop converged")
    dynamics.add_argument(
        "--include", metavar="PARTS", help=f"further parts of --json: {', '.join(get_args(Include))}"
    )
    dynamics.add_argument(
        "--trajectory", metavar="FILE", help="write the points at every layer: npy (layers, n, d), or csv"
    )
    dynamics.add_argument("--trajectory-every", type=int, metavar="N", help="keep every N-th layer")
    dynamics.add_argument(
        "--softmax",
        type=float,
        metavar="T",
        help="run softmax attention at temperature T too: its distance from hardmax at each layer",
    )
    dynamics.set_defaults(run=run_dynamics)


def _add_control(commands: Commands) -> None:
    control = commands.add_parser(
        "control",
        help="find a matrix A under which chosen points lead",
        description="Exit code 0: a matrix was found. 1: there is none, or neither was proved.",
    )
    _add_cloud(control)
    control.add_argument("--leaders", required=True, help="the points that shall lead, by their index: 3,5")
    control.set_defaults(run=run_control)


def _add_sequences(commands: Commands) -> None:
    sequences = commands.add_parser(
        "sequences",
        help="label sequences of points by an exact model",
        description="`hardmax-export exact` makes such a model; put it into the folder of models.",
    )
    sequences.add_argument(
        "file",
        metavar="FILE",
        help='one sequence per line: [[..], ..] or {"sequence": [[..], ..]}; - reads a pipe',
    )
    sequences.add_argument("--model", required=True, help="a model of kind sequences")
    add_api_options(sequences)
    sequences.set_defaults(run=run_sequences)


def _add_cloud(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="points: csv, npy or json; - reads csv from a pipe")
    parser.add_argument("--alpha", type=float, default=1.0, help="step size of a run, default 1")
    parser.add_argument(
        "--plot", metavar="FILE", help="draw how points of two or three numbers move: png, svg"
    )
    add_api_options(parser)


def _read_points(arguments: argparse.Namespace) -> NDArray[np.float64]:
    points = read_cloud(arguments.file)
    if arguments.plot and points.ndim == 2:
        check_folder(arguments.plot)
        if (d := points.shape[1]) not in (2, 3):
            problem = f"--plot draws points of two or three numbers; these have {d}"
            raise InvalidInput(problem, param="--plot")
        check_picture(arguments.plot)
    return points


def run_dynamics(arguments: argparse.Namespace) -> int:
    """Run `hardmax dynamics`; return its exit status."""
    points = _read_points(arguments)
    if arguments.trajectory:
        check_trajectory(arguments.trajectory)
    options = ("alpha", "max_layers", "stop", "tolerance", "trajectory_every")
    parameters = {name: value for name in options if (value := getattr(arguments, name)) is not None}
    if arguments.A:
        parameters["A"] = read_cloud(arguments.A)
    if arguments.softmax is not None:
        parameters["temperature"] = arguments.softmax
    with Progress() as progress, open_api(arguments, progress) as hardmax:
        result = hardmax.dynamics(points, include=_select_parts(arguments), **parameters)
    show(result.document, arguments.json, describe_dynamics)
    if arguments.plot:
        save_figure(plot.draw_dynamics(result, points), arguments.plot)
    if arguments.trajectory:
        write_trajectory(result, arguments.trajectory)
    return 0


def _select_parts(arguments: argparse.Namespace) -> list[Include]:
    """Return the parts of the answer that the flags need."""
    included = arguments.include.split(",") if arguments.include else []
    parts = ["assignment", *map(str.strip, included)]
    if unknown := [part for part in parts if part not in get_args(Include)]:
        names = ", ".join(get_args(Include))
        raise InvalidInput(f"--include: {unknown[0]!r} is not one of {names}", param="--include")
    parts += PLOT_PARTS if arguments.plot else []
    parts += ["trajectory"] if arguments.trajectory else []
    parts += ["softmax"] if arguments.softmax is not None else []
    return list(dict.fromkeys(parts))  # type: ignore[arg-type]  # checked above


def run_control(arguments: argparse.Namespace) -> int:
    """Run `hardmax control`; return its exit status."""
    points = _read_points(arguments)
    leaders = _parse_indices(arguments.leaders)
    with Progress() as progress, open_api(arguments, progress) as hardmax:
        result = hardmax.control(points, leaders=leaders)
        show(result.document, arguments.json, describe_control)
        if arguments.plot and result.feasible:
            before = hardmax.dynamics(points, alpha=arguments.alpha, include=PLOT_PARTS)
            after = hardmax.dynamics(points, alpha=arguments.alpha, A=result.A, include=PLOT_PARTS)
            save_figure(plot.draw_control(before, after, points, leaders), arguments.plot)
    return 0 if result.feasible else NOT_FOUND


def _parse_indices(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        problem = f"--leaders: {text!r} is not a list of indices such as 3,5"
        raise InvalidInput(problem, param="--leaders") from None


def run_sequences(arguments: argparse.Namespace) -> int:
    """Run `hardmax sequences`; return its exit status."""
    sequences, expected = read_sequences(arguments.file)
    with Progress() as progress, open_api(arguments, progress) as hardmax:
        labels = hardmax.classify_sequences(arguments.model, sequences)
    data = [label.document for label in labels]
    answer = {"id": uuid4().hex, "model": arguments.model, "data": data}
    show(answer, arguments.json, lambda answer: describe_sequences(answer["data"], expected))
    return 0
