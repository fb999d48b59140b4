"""POST /control: a wish about the leaders in, the matrix A that makes it true out."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi import APIRouter, Request
from starlette.responses import Response

from service.engine.lane import LARGE, Steps
from service.errors import InvalidInput
from service.http import examples
from service.http.arrays import Array, read_rows
from service.http.bodies import BodyOf, reader_of
from service.http.dependencies import RequestId, ReservationOf, ServiceOf
from service.http.documents import reply_document
from service.http.problems import validate
from service.http.routes import dynamics
from service.lifecycle import Service
from service.schemas.clouds import ControlRequest, ControlResponse, ControlWish

if TYPE_CHECKING:
    from service.clouds.dynamics import Run
    from service.control.control import Control

SHARE = 0.8  # of the request's time: then the best that was found is the answer
router = APIRouter(tags=["inference"])


@router.post(
    "/control",
    response_model=ControlResponse,
    responses=examples.answers({**examples.CONTROLLED, "dynamics": examples.RESULT}),
    openapi_extra=examples.body(examples.CONTROL, ControlRequest),
    summary="Find the matrix A under which tokens end where they are wanted",
)
async def control(
    body: BodyOf, request: Request, service: ServiceOf, request_id: RequestId, reservation: ReservationOf
) -> Response:
    """`assignment` says for each token which leader it shall end at; `leaders` only which tokens shall lead.
    The answer is a matrix that is proved to do so, with the dynamics run under it; or a certificate that none
    does; or, rarely, that neither could be proved (`feasible` is null).
    """
    settings = service.settings
    limits = {"max_rows": settings.max_points, "max_columns": settings.max_dimension}
    read = partial(read_rows, body.content, "points", **limits)
    points, document = await reader_of(request).read(len(body.content), read)
    wish = validate(ControlWish, document)
    async with service.clouds.place(large=points.size > LARGE) as place:
        found = await place.follow(_solve(points, wish, service))
    return await reply_document({"id": request_id, **answer(found)}, reservation)


def _solve(points: Array, wish: ControlWish, service: Service) -> Steps[Control]:
    from service.control.control import control as solve

    settings = service.settings
    assignment = None if wish.assignment is None else _by_index(wish.assignment)

    def run(points: Array, A: Array) -> Run:
        from service.clouds.dynamics import Parameters

        model = service.registry.find(dynamics.MODEL, "dynamics")
        layers = min(1000, settings.max_layers)
        started: Run = model.start(points, Parameters(A=A, max_layers=layers, tie_tolerance=0))
        return started

    return (yield from solve(points, assignment, wish.leaders, run, SHARE * settings.request_timeout_s))


def answer(found: Control) -> dict[str, Any]:
    """A solution in the words of the contract."""
    document = {field.name: getattr(found, field.name) for field in fields(found)}
    document = {name: v.tolist() if isinstance(v, np.ndarray) else v for name, v in document.items()}
    if found.certificate is not None:
        names = ("token", "leader", "rival", "weight")  # weights may have more digits than a JSON number
        terms = ((*pair, str(weight)) for *pair, weight in found.certificate)
        document["certificate"] = [dict(zip(names, term, strict=True)) for term in terms]
    if found.dynamics is not None:
        document["dynamics"] = dynamics.answer(found.dynamics)
    return document


def _by_index(assignment: dict[str, int]) -> dict[int, int]:
    try:
        return {int(token): leader for token, leader in assignment.items()}
    except ValueError:
        raise InvalidInput(
            "the names in assignment should be indices of points", param="assignment"
        ) from None
