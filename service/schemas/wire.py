"""What all answers share that are described here, and the shape of a failure."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Wire(BaseModel):
    """An answer. Clients may meet fields of a later version: they are kept, not refused."""

    model_config = ConfigDict(extra="allow", frozen=True)


class Problem(Wire):
    type: str = Field(description="What kind of failure, for programs.")
    message: str = Field(description="What is wrong, for people.")
    param: str | None = Field(None, description="The field or place at fault.")
    request_id: str | None = Field(None, description="To be found in the log.")


class ErrorResponse(Wire):
    error: Problem = Field(description="What went wrong.")
