"""POST /classify."""

from __future__ import annotations

from pydantic import Field

from hardmax.documents import Classification, ClassifyResponse, Explain, Spans, number_of
from service.schemas.wire import Given, ModelName, Request

__all__ = ["Classification", "ClassifyRequest", "ClassifyResponse", "Explain", "Spans", "number_of"]


class ClassifyRequest(Request):
    input: str | Given[str] = Field(description="One text, or a list of them.", examples=["A superb film."])
    model: ModelName | None = Field(None, description="A model of kind sentiment; the default one if absent.")
    explain: Explain = Field(
        "leaders", description="none: label only; leaders: leaders and clusters; full: every word too."
    )
    trajectory: bool = Field(False, description='With "full": every word\'s position at every layer.')
    truncate: bool = Field(True, description="false: a text longer than the model reads is refused (413).")
    spans: Spans = Field(
        "codepoints", description="What spans and contexts count: code points or UTF-16 units."
    )
