"""What endpoints ask for: `async def models(service: ServiceOf)`."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from service.engine.capacity import Holding
from service.lifecycle import Service


async def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def id_of(request: Request) -> str:
    name: str = request.state.request_id
    return name


async def holding_of(request: Request) -> Holding:
    holding: Holding = request.state.holding
    return holding


ServiceOf = Annotated[Service, Depends(service_of)]
RequestId = Annotated[str, Depends(id_of)]
HoldingOf = Annotated[Holding, Depends(holding_of)]
