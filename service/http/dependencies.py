"""What endpoints ask for: `async def models(service: ServiceOf)`."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Depends, Query, Request

from service.engine.account import Reservation
from service.lifecycle import Service


async def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def id_of(request: Request) -> str:
    name: str = request.state.request_id
    return name


async def reservation_of(request: Request) -> Reservation:
    reservation: Reservation = request.state.reservation
    return reservation


async def neutral_of(
    request: Request,
    undecided: Annotated[
        Literal["label"] | None,
        Query(
            description="label: an undecided verdict is answered as `neutral` (setting UNDECIDED_AS_LABEL)."
        ),
    ] = None,
) -> bool:
    """Whether a verdict that should not be acted upon is to be a label of its own."""
    service: Service = request.app.state.service
    return undecided == "label" or service.settings.undecided_as_label


ServiceOf = Annotated[Service, Depends(service_of)]
RequestId = Annotated[str, Depends(id_of)]
NeutralOf = Annotated[bool, Depends(neutral_of)]
ReservationOf = Annotated[Reservation, Depends(reservation_of)]
