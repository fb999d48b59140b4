"""POST /sequences/classify."""

from __future__ import annotations

from pydantic import Field

from hardmax.documents import Vector
from service.schemas.wire import ModelName, Request


class SequencesEnvelope(Request):
    """Everything but the numbers, which are read in pieces."""

    model: ModelName = Field(description="A model of kind sequences.")


class SequencesRequest(SequencesEnvelope):
    """Sequences to label."""

    sequences: list[list[Vector]] = Field(min_length=1, description="Sequences of points of d numbers each.")
