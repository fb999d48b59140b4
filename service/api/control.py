"""POST /control: a wish about the leaders in, the matrix A that makes it true out."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from service.api import dynamics as api_dynamics
from service.api import examples
from service.api.documents import write_document
from service.api.exchange import Exchange, Reply
from service.api.media import require_json
from service.api.numbers import Array, read_document, read_rows
from service.api.problems import validate
from service.errors import InvalidInput
from service.lane import Lane
from service.registry import Registry
from service.schemas import ControlRequest, ControlResponse, ControlWish
from service.settings import Settings

if TYPE_CHECKING:
    from service.control import Control

REQUEST = examples.body(examples.CONTROL)
ANSWER = examples.answer({**examples.CONTROLLED, "dynamics": examples.RESULT})


async def control(body: ControlRequest) -> ControlResponse:
    """Find the matrix A under which tokens end where they are wanted

    `assignment` says for each token which leader it shall end at; `leaders` only which tokens shall lead. The
    answer is the matrix of largest margin and the dynamics run with it, or the pair that makes it infeasible.
    """
    raise NotImplementedError


class Controls:
    def __init__(self, registry: Registry, clouds: Lane, settings: Settings) -> None:
        self._registry = registry
        self._clouds = clouds
        self._settings = settings

    async def __call__(self, exchange: Exchange) -> Reply:
        require_json(exchange)
        body = await exchange.read(self._settings.payload_limit_bytes)
        async with self._clouds.place() as place:
            text = await place.step(lambda: self._answer(body, exchange.text_id))
        return Reply(text)

    def _answer(self, body: bytes, request_id: str) -> bytes:
        from service.control import control as solve

        document = read_document(body, "points")
        limits = {"max_rows": self._settings.max_points, "max_columns": self._settings.max_dimension}
        points = read_rows(document.pop("points", None), "points", **limits)
        wish = validate(ControlWish, document)
        if (wish.assignment is None) == (wish.leaders is None):
            raise InvalidInput("give either assignment or leaders", param="assignment")
        assignment = None if wish.assignment is None else _by_index(wish.assignment)
        found = solve(points, assignment, wish.leaders, self._run, self._settings.request_timeout_s)
        return b"".join(write_document({"id": request_id, **answer(found)}))

    def _run(self, points: Array, A: Array) -> Any:
        from service.dynamics import Parameters

        model = self._registry.find(api_dynamics.MODEL, "dynamics")
        run = model.start(points, Parameters(A=A, max_layers=min(1000, self._settings.max_layers)))
        for _ in run:
            pass
        return run.result


def answer(found: Control) -> dict[str, Any]:
    """A solution in the words of the contract."""
    document = {field.name: getattr(found, field.name) for field in fields(found)}
    document = {name: v.tolist() if isinstance(v, np.ndarray) else v for name, v in document.items()}
    if found.dynamics is not None:
        document["dynamics"] = api_dynamics.answer(found.dynamics)
    return document


def _by_index(assignment: dict[str, int]) -> dict[int, int]:
    try:
        return {int(token): leader for token, leader in assignment.items()}
    except ValueError:
        raise InvalidInput(
            "the names in assignment should be indices of points", param="assignment"
        ) from None
