"""The answers about sequences."""

from __future__ import annotations

from hardmax.models.document import Document, Items, Vector


class SequenceLabel(Document):
    """The label of one sequence."""

    index: int
    """The index of the sequence in the request."""
    label: str | int | float | bool | None
    """The label as in the data of the model; null if the answer is in `output`."""
    margin: float | None
    """The answer stays the same while every token moves by less than this; null for any move."""
    leader: int | None
    """The token of the sequence that decides; null if there are several."""
    output: Items[Vector] | None = None
    """The output of models whose answers are sequences."""


class SequencesResponse(Document):
    """The response of POST /sequences/classify."""

    id: str
    """The id of the request."""
    model: str
    """The model that answered."""
    model_version: int | None = None
    """The version of the model: the number after the @ of its name, 1 without one."""
    data: Items[SequenceLabel]
    """One entry for each sequence, in the order of the request."""
