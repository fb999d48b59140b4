"""POST /sequences/classify."""

from __future__ import annotations

from pydantic import Field

from service.schemas.wire import ModelName, Request, Vector, Wire


class SequencesEnvelope(Request):
    """Everything but the numbers, which are read in pieces."""

    model: ModelName = Field(description="A model of kind sequences.")


class SequencesRequest(SequencesEnvelope):
    """Sequences to label."""

    sequences: list[list[Vector]] = Field(min_length=1, description="Sequences of points of d numbers each.")


class SequenceLabel(Wire):
    index: int = Field(description="The place of the sequence in the request.")
    label: str | int | float | bool | None = Field(
        description="As in the data that the model was made from; null: the answer is in `output`."
    )
    margin: float | None = Field(
        description="The answer is the same while every token moves by less than this; null: any move."
    )
    leader: int | None = Field(description="The token of the sequence that decides; null: there are several.")
    output: list[Vector] | None = Field(
        None, description="What the model gives where its answers are sequences."
    )


class SequencesResponse(Wire):
    id: str = Field(description="The request's id.")
    model: str = Field(description="The model that answered.")
    data: list[SequenceLabel] = Field(description="One entry a sequence, in the order of the request.")
