"""What all requests and answers share.

Requests are checked here only for their shape; what they mean is the domain's business. Limits that an
operator can set are checked where the settings are known.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

ModelName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
T = TypeVar("T")
Given = Annotated[list[T], Field(fail_fast=True)]  # one wrong entry is told, not a million


class Request(BaseModel):
    """Unknown fields are refused: a misspelt option must not be silently ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


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
