"""POST /classify."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from service.schemas.wire import Given, ModelName, Request, Vector, Wire

Explain = Literal["none", "leaders", "full"]
Spans = Literal["codepoints", "utf16"]


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


class Usage(Wire):
    texts: int = Field(description="Texts that were answered.")
    tokens: int = Field(description="Words and marks that were read of them.")


Number = Annotated[
    float | dict[str, float],
    Field(description="One number; a number for each label if there are several logits."),
]


def number_of(value: Any, label: str) -> float:
    """A number of an answer; where there is one for each label, the label's own."""
    return float(value[label] if isinstance(value, dict) else value)


Span = Annotated[tuple[int, int], Field(description="From, to: offsets into the text as sent.")]
ReadAs = Annotated[
    str | None,
    Field(description='What the word was read as, where that differs: "<name>", "<unknown>", "great".'),
]


class Leader(Wire):
    word: str = Field(description="As it stands in the text, in lower case.")
    cluster: int = Field(description="The id of its cluster.")
    since_layer: int = Field(description="The first layer at which it attends to itself alone.")
    followers: int = Field(description="Other places of the text that end in its cluster.")
    contribution: Number = Field(description="Its own part of the logit; the cluster's is in `clusters`.")
    spans: list[Span] = Field(description="Its places. Several where the same word stands in the same words.")
    context: Span = Field(description="What its first place was read together with.")
    read_as: ReadAs = None


class Cluster(Wire):
    id: int = Field(description="Its number in this text: leaders and words name it.")
    kind: Literal["leader", "tie"] = Field(description='"tie": its words attend to several leaders alike.')
    leaders: list[str] = Field(description="One word, or the words that tie.")
    words: list[str] = Field(description="Its leader and its heaviest words: five at most, each once.")
    size: int = Field(description="Places of the text in it.")
    share: float = Field(description="The same as a share of the text.")
    contribution: Number = Field(description="Its part of the logit: logit = bias + their sum.")


class Word(Wire):
    text: str = Field(description="As it stands in the text, in lower case.")
    spans: list[Span] = Field(description="Its place.")
    cluster: int = Field(description="The id of its cluster.")
    leader: bool = Field(description="Whether it attends to itself alone at some layer.")
    contribution: Number = Field(description="Its part of the logit: logit = bias + their sum.")
    start: Vector = Field(description="Where it is before the layers.")
    end: Vector = Field(description="Where it is after them.")
    context: Span = Field(description="What it was read together with.")
    read_as: ReadAs = None


class Classification(Wire):
    index: int = Field(description="The place of the text in the request.")
    label: str = Field(description="The likelier label.")
    score: float = Field(description="Its probability.")
    probs: dict[str, float] = Field(description="The probability of each label.")
    undecided: Literal["nothing known", "even"] | None = Field(
        None,
        description="Why the label should not be acted upon: no word is known, or the labels are about even.",
    )
    logit: Number
    bias: Number = Field(description="What the logit is without any word, for a text of this length.")
    tokens: int = Field(description="Words and marks that were read.")
    unknown: int | None = Field(
        None, description="Words that the model does not know: read by their ending at best."
    )
    truncated: bool = Field(description="Whether the text has more words than were read.")
    leaders: list[Leader] | None = Field(None, description='The words that lead; with "leaders" and "full".')
    clusters: list[Cluster] | None = Field(None, description='Who ends together; with "leaders" and "full".')
    words: list[Word] | None = Field(None, description='Every place, in order; with "full".')
    trajectory: list[list[Vector]] | None = Field(None, description="For each layer the place of every word.")


class ClassifyResponse(Wire):
    id: str = Field(description="The request's id.")
    model: str = Field(description="The model that answered.")
    usage: Usage = Field(description="What was read.")
    data: list[Classification] = Field(description="One entry a text, in the order of the request.")
