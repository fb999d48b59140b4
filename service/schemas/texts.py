"""POST /classify."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from service.schemas.wire import Given, ModelName, Request, Vector, Wire

Explain = Literal["none", "leaders", "full"]
Spans = Literal["codepoints", "utf16"]
Undecided = Literal["nothing known", "even", "unlike the rows"]
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
    Field(description='What was read in place of the word, if anything: "<name>", "<number>", "<unknown>".'),
]


class ReadWord(Wire):
    word: str = Field(description="As it stands in the text, in lower case.")
    spans: list[Span] = Field(description="Its place.")
    layer: int = Field(description="The layer of the reader at which it entered, from 1 on.")


class Leader(Wire):
    word: str = Field(description="As it stands in the text, in lower case.")
    cluster: int = Field(description="The id of its cluster.")
    since_layer: int = Field(description="The first layer at which it attends to itself alone.")
    followers: int = Field(description="Other places of the text that end in its cluster.")
    contribution: Number = Field(description="Its cluster's part of the logit: words count where they end.")
    spans: list[Span] = Field(description="Its places. Several where words have the very same place.")
    read: list[ReadWord] = Field(
        description="The other words of which its state was made, first read first: eight at most, all with "
        '"full". Any others may be left out in place, and the leader stays where it is, to the bit.'
    )
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
    follows: list[list[int]] = Field(
        description="For each layer of the reader the other words that its heads followed, by their number "
        "in this list, most followed first."
    )
    read_as: ReadAs = None


class LeftOut(Wire):
    word: str = Field(description="As it stands in the text, in lower case.")
    spans: list[Span] = Field(description="Its place.")


class Flip(Wire):
    without: list[LeftOut] = Field(description="The words that were left out, five at most.")
    label: str = Field(description="The label without them, by running the model.")
    score: float = Field(description="Its probability.")


class Verdict(Wire):
    label: str = Field(description="The likelier label.")
    score: float = Field(description="Its probability.")
    probs: dict[str, float] = Field(description="The probability of each label.")
    labels: list[str] | None = Field(
        None,
        description="Where labels do not exclude each other: all that hold. `label` is the most probable.",
    )
    undecided: Undecided | None = Field(
        None,
        description="Why the label should not be acted upon: too few words are known, the labels are about "
        "even, or the text is unlike the rows that the model learnt from.",
    )
    logit: Number
    bias: Number = Field(description="What the logit is without any word.")
    tokens: int = Field(description="Words and marks that were read.")
    unknown: int | None = Field(None, description="Words that the model does not know.")
    truncated: bool = Field(description="Whether the text has more words than were read.")
    leaders: list[Leader] = Field([], description='The words that lead; with "leaders" and "full".')
    clusters: list[Cluster] = Field([], description='Who ends together; with "leaders" and "full".')
    words: list[Word] | None = Field(None, description='Every place, in order; with "full".')
    trajectory: list[list[Vector]] | None = Field(None, description="For each layer the place of every word.")
    flip: Flip | None = Field(
        None,
        description="If asked for: the smallest set found that changes the label; null if none was found.",
    )


class Classification(Verdict):
    index: int = Field(description="The place of the text in the request.")


class Classifications(Wire):
    """One text, answered by several models."""

    index: int = Field(description="The place of the text in the request.")
    answers: dict[str, Verdict] = Field(description="By model, as the request names it.")


class ClassifyResponse(Wire):
    id: str = Field(description="The request's id.")
    model: str | list[str] = Field(description="The model that answered, or those that did.")
    usage: Usage = Field(description="What was read.")
    data: list[Classification | Classifications] = Field(
        description="One entry a text, in the order of the request."
    )
