"""POST /control: a wish about the leaders in, the matrix A that makes it true out."""

from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from hardmax.documents import ControlResponse
from service.answers.arrays import read_rows
from service.answers.clouds import MODEL, find_control
from service.clouds.dynamics import Dynamics
from service.engine.cloud_queue import LARGE
from service.http import examples
from service.http.bodies import BodyOf, reader_of, reply_document
from service.http.dependencies import RequestId, ReservationOf, ServiceOf
from service.schemas.requests import ControlRequest

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
    points, wish = await reader_of(request).read(len(body.content), read)
    model: Dynamics = service.registry.find(MODEL, "dynamics")
    async with service.clouds.slot(large=points.size > LARGE) as slot:
        within_s = SHARE * settings.request_timeout_s
        answer = await slot.follow(find_control(points, wish, model, settings, within_s))
    return await reply_document({"id": request_id, **answer}, reservation)
