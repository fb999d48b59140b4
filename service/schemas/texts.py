"""What POST /classify is asked; what it answers is in hardmax.documents."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hardmax.documents import Explain, Spans
from service.schemas.wire import Given, ModelName, Request

MOST_MODELS = 32  # of a request

Offset = Annotated[int, Field(ge=0)]


class ClassifyRequest(Request):
    input: str | Given[str] = Field(description="One text, or a list of them.", examples=["A superb film."])
    model: ModelName | Annotated[Given[ModelName], Field(min_length=1, max_length=MOST_MODELS)] | None = (
        Field(
            None,
            description="A model that labels texts, NAME@VERSION for one of its versions; the default one if "
            "absent. Of a list each model answers, in `answers`; all of them stand on one reader, and "
            "texts are read once.",
        )
    )
    explain: Explain = Field(
        "leaders", description="none: label only; leaders: leaders and clusters; full: every word too."
    )
    trajectory: bool = Field(False, description='With "full": every word\'s position at every layer.')
    truncate: bool = Field(True, description="false: a text longer than the model reads is refused (413).")
    spans: Spans = Field("codepoints", description="What spans count: code points or UTF-16 units.")
    without: Given[Annotated[Given[Offset], Field(min_length=2, max_length=2)]] = Field(
        [],
        description="Of one text: spans whose words are left out in place. All other words keep their "
        "places, and a leader that has not read them stays where it is, to the bit.",
    )
    flip: bool = Field(
        False, description="Search for the words whose leaving out changes the label; 16 texts at most."
    )
