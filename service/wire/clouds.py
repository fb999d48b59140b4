"""POST /dynamics and POST /control as documents: read their requests, and write their answers."""

import re
import time
from collections.abc import Callable, Collection
from dataclasses import fields, replace
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from service.cloud.dynamics import Dynamics, Parameters, Progress, Result
from service.cloud.points import Floats
from service.control.search import ControlResult, find_form
from service.errors import InvalidInput, MalformedInput
from service.sequences import SequenceClassifier
from service.settings import Settings
from service.wire.arrays import as_array, read_npy, read_rows
from service.wire.documents import MAX_ANSWER_BYTES, Raw, check_answer, parse_json, validate, write
from service.wire.requests import ControlParameters, DynamicsParameters

INDEX = re.compile("0|[1-9][0-9]{0,8}")
MODEL = "dynamics"  # the bundle that runs clouds
CONTROL_LAYERS = 1000  # of the run that confirms a matrix
NUMBER_BYTES = 25  # of a number in JSON, at most
ARRAYS = ("assignment", "limits")
SUMMARY = ("n", "d", "alpha", "status", "layers", "certified_layer", "margin")


def size_limits(settings: Settings) -> dict[str, int]:
    """Return the largest numbers of rows and columns of an array of points."""
    return {"max_rows": settings.max_points, "max_columns": settings.max_dimension}


def read_options(document: dict[str, Any], settings: Settings, *, strict: bool | None = None) -> Parameters:
    """Return the checked options of a run; the default of `max_layers` is at most the operator's limit."""
    wire = validate(document, DynamicsParameters, strict=strict)
    fields = dict(wire)
    parts = frozenset(wire.include)
    fields["include"] = parts | {"trajectory"} if "softmax" in parts else parts
    if wire.A is not None:
        fields["A"] = as_array(wire.A, "A", **size_limits(settings))
    if "stop" not in wire.model_fields_set and "trajectory" in fields["include"]:
        fields["stop"] = "converged"  # a certificate may come long before points stop moving
    if "max_layers" not in wire.model_fields_set:
        fields["max_layers"] = min(wire.max_layers, settings.max_layers)
    return Parameters(**fields)


def read_dynamics(content: Raw, settings: Settings) -> tuple[Floats, Parameters]:
    """Read a cloud and the parameters of its run from a JSON body."""
    points, document = read_rows(content, "points", **size_limits(settings))
    return points, read_options(document, settings)


def read_npy_dynamics(
    content: Raw, query: bytes, model: Dynamics, settings: Settings
) -> tuple[Floats, Parameters]:
    """Read a cloud from npy, and the parameters of its run from the query."""
    parameters = read_options(_from_query(query), settings, strict=False)
    check = partial(model.check_size, parameters=parameters)
    return read_npy(content, "points", **size_limits(settings), check=check), parameters


def _from_query(query: bytes) -> dict[str, Any]:
    """Return the parameters next to an npy body: A as JSON, include separated by commas or repeated."""
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError:
        raise MalformedInput("the query string is not valid") from None
    document: dict[str, Any] = {}
    for name, value in pairs:
        if name == "include":
            document.setdefault(name, []).extend(part for part in value.split(",") if part)
        elif name == "A":
            document[name] = parse_json(value.encode(), param="A")
        else:
            document[name] = value
    return document


def describe_dynamics_result(result: Result, include: Collection[str] = ("assignment",)) -> dict[str, Any]:
    """Return the document of a result, with arrays for long values, which `write` writes."""
    clusters = result.clusters
    document: dict[str, Any] = {
        **{name: getattr(result, name) for name in SUMMARY},
        "leaders": _objects(**vars(result.leaders)),
        "clusters": _objects(
            id=np.arange(len(clusters)),
            kind=np.where(clusters.tie, "tie", "leader"),
            leaders=clusters.leaders,
            limit=clusters.limit,
            size=clusters.size,
        ),
    }
    document |= {name: getattr(result, name) for name in ARRAYS if name in include}
    if "polytope" in include:
        document["polytope"] = {"vertices": result.vertices}
    if "temperature" in include:
        document["temperature"] = result.temperature and vars(result.temperature)
    if "trajectory" in include:
        assert result.trajectory is not None
        trajectory = result.trajectory
        document["trajectory"] = {"layers": trajectory.layers, "points": list(trajectory.points)}
    if result.argmax is not None:
        document["argmax"] = [[members.tolist() for members in layer] for layer in result.argmax]
    if result.softmax is not None:
        document["softmax"] = {**result.softmax._asdict(), "points": list(result.softmax.points)}
    return document


def _objects(**columns: Any) -> list[dict[str, Any]]:
    """Return objects with these fields."""
    lists = [
        column.tolist() if isinstance(column, np.ndarray) else [row.tolist() for row in column]
        for column in columns.values()
    ]
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]


def answer_dynamics(
    model: Dynamics,
    read: Callable[[], tuple[Floats, Parameters]],
    request_id: str,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> bytes:
    """Read a cloud, run it and write the answer."""
    points, parameters = read()
    parts = len({"trajectory", "softmax"} & parameters.include) or 1
    parameters = replace(parameters, max_numbers=MAX_ANSWER_BYTES // (parts * NUMBER_BYTES))
    result = model.run(points, parameters, on_progress)
    answer = describe_dynamics_result(result, parameters.include)
    return check_answer(write({"id": request_id, **answer}))


def answer_control(content: Raw, model: Dynamics, settings: Settings, end_s: float, request_id: str) -> bytes:
    """Read a control problem, solve it and write the answer.

    The search ends at `end_s` of the monotonic clock, which is the same in all processes.
    """
    points, document = read_rows(content, "points", **size_limits(settings))
    answer = find_control(points, document, model, settings, max(0.0, end_s - time.monotonic()))
    return check_answer(write({"id": request_id, **answer}))


def answer_sequences(
    model: SequenceClassifier, names: dict[str, Any], sequences: list[Floats], request_id: str
) -> bytes:
    """Classify sequences and write the answer; `names` are the fields that name the model."""
    data = [{"index": index, **result} for index, result in enumerate(model.classify(sequences))]
    return check_answer(write({"id": request_id, **names, "data": data}))


def find_control(
    points: Floats, document: dict[str, Any], model: Dynamics, settings: Settings, deadline_s: float
) -> dict[str, Any]:
    """Solve a control problem; `document` is the request without its points."""
    request = validate(document, ControlParameters)
    assignment = None if request.assignment is None else _read_assignment(request.assignment)

    def run(points: Floats, A: Floats) -> Result:
        layers = min(CONTROL_LAYERS, settings.max_layers)
        return model.run(points, Parameters(A=A, max_layers=layers))

    return describe_control_result(find_form(points, assignment, request.leaders, run, deadline_s))


def describe_control_result(result: ControlResult) -> dict[str, Any]:
    """Return the document of a solution."""
    document = {field.name: getattr(result, field.name) for field in fields(result)}
    document = {name: v.tolist() if isinstance(v, np.ndarray) else v for name, v in document.items()}
    if result.certificate is not None:
        names = ("token", "leader", "rival", "weight")  # weights may have more digits than a JSON number
        terms = ((*pair, str(weight)) for *pair, weight in result.certificate)
        document["certificate"] = [dict(zip(names, term, strict=True)) for term in terms]
    if result.dynamics is not None:
        document["dynamics"] = describe_dynamics_result(result.dynamics)
    return document


def _read_assignment(assignment: dict[str, int]) -> dict[int, int]:
    """Return an assignment with integers for names; "01" and "1_0" are not names of points."""
    for name in assignment:
        if not INDEX.fullmatch(name):
            problem = f"the names in assignment should be indices of points, not {name[:20]!r}"
            raise InvalidInput(problem, param="assignment")
    return {int(token): leader for token, leader in assignment.items()}
