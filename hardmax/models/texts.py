"""The answers about texts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from hardmax.models.document import Document, Items, ItemsOrNull, Number, Open, Span, Vector

Explain = Literal["none", "leaders", "full"]
OffsetUnit = Literal["codepoints", "utf16"]
AbstainReason = Literal["low_confidence", "out_of_distribution", "no_known_words", "empty"]


class ReadWord(Document):
    """A word that a leader has read."""

    word: str
    """The word as it stands in the text, in lower case."""
    spans: Items[Span]
    """The span of the word, as offsets into the text as sent."""
    layer: int
    """The layer of the encoder at which the word entered, from 1 on."""


class Leader(Document):
    """A word that leads, and what was read to compute its state."""

    word: str
    """The word as it stands in the text, in lower case."""
    cluster: int
    """The id of its cluster."""
    since_layer: int
    """The first layer at which the word attends to itself alone."""
    followers: int
    """The number of other words in its cluster."""
    contribution: Number
    """The part of the logit that its cluster adds."""
    spans: Items[Span]
    """The spans of the leader; several if words have the very same position."""
    read: ItemsOrNull[ReadWord] = Field(default_factory=list)
    """The other words that its state was computed from, in the order of entry: at most eight, all of them
    with "full". With several spans they are the words that any of them was computed from."""
    read_total: int = 0
    """The number of words that its state was computed from. Words outside the complete list, which "full"
    returns, can be left out in place, and the leader keeps its initial `position` to the bit. It may stop
    being a leader, and contributions and the label may change: other words may have read them."""
    read_as: str | None = None
    """The token that was read in place of the word, if any: "<name>", "<number>" or "<unknown>"."""


class Cluster(Document):
    """The words that follow one leader, or that are between leaders in a tie."""

    id: int
    """The id of the cluster in this text, which leaders and words refer to."""
    kind: Annotated[Literal["leader", "tie"], Open]
    """In a cluster of kind "tie" the words attend to several leaders alike."""
    leaders: Items[str]
    """The word that leads, or the words that tie."""
    words: Items[str]
    """The leader and the words of largest contribution, at most five, each once."""
    size: int
    """The number of words in the cluster."""
    share: float
    """The share of the text's words in the cluster."""
    contribution: Number
    """The part of the logit that the cluster adds: the logit is the bias plus the sum over clusters."""


class Word(Document):
    """A word of the text with its contribution and its positions in the leader head."""

    word: str
    """The word as it stands in the text, in lower case."""
    spans: Items[Span]
    """The span of the word."""
    cluster: int
    """The id of its cluster."""
    leader: bool
    """Whether the word attends to itself alone at some layer."""
    contribution: Number
    """The part of the logit that the word adds: the logit is the bias plus the sum over words."""
    position: Vector
    """The position before the layers of the head."""
    final_position: Vector
    """The position after the last layer."""
    attends_to: ItemsOrNull[Items[int]] = Field(default_factory=list)
    """For each layer of the encoder the other words that its heads attend to, by their index in this list,
    most attended first."""
    read_as: str | None = None
    """The token that was read in place of the word, if any."""


class LeftOut(Document):
    """A word that was left out, or that remained, in a search."""

    word: str
    """The word as it stands in the text, in lower case."""
    spans: Items[Span]
    """The span of the word."""


class Flip(Document):
    """A set of words whose removal changes the label."""

    without: Items[LeftOut]
    """The words that were left out, at most five."""
    label: str
    """The label without these words, by running the model."""
    score: float
    """The probability of that label."""


class Sufficient(Document):
    """A set of words that alone gives the same label."""

    words: Items[LeftOut]
    """The words that alone give the same label, at most sixteen; all others are left out in place."""
    score: float
    """The probability of the label with these words alone, by running the model."""


class Classification(Document):
    """The answer of one model to one text."""

    index: int = 0
    """The index of the text in the request."""
    label: str
    """The most probable label."""
    score: float
    """The probability of the label."""
    probs: dict[str, float]
    """The probability of each label."""
    labels: ItemsOrNull[str] = Field(default_factory=list)
    """All labels that apply, for models whose labels do not exclude each other; `label` is the most probable
    one."""
    abstain_reason: Annotated[AbstainReason, Open] | None = None
    """Why the model abstains: too few words are known, the labels are about equally probable, the text is
    unlike the training data, or it is blank, with `?on_empty=abstain`. null if the label can be acted
    upon."""
    logit: Number
    """The logit is the bias plus the contributions of all clusters, or of all words. With several logits
    there is one number for each label."""
    bias: Number
    """The logit of a text without words."""
    n_words: int
    """The number of words and marks that were read."""
    n_tokens: int = 0
    """The number of subword tokens that were read."""
    unknown: int | None = None
    """The number of words that the model does not know."""
    truncated: bool
    """Whether the text has more words than the model reads."""
    mixed: bool | None = None
    """Whether the parts of a long text disagree. Texts are read in chunks of whole sentences, up to 64
    tokens; in a mixed text one chunk adds to the logit of the label and another one takes away, the smaller
    of the two sums at least a fifth of the larger. Absent from texts of one chunk."""
    leaders: ItemsOrNull[Leader] = Field(default_factory=list)
    """The leaders of the text, with "leaders" and "full"."""
    clusters: ItemsOrNull[Cluster] = Field(default_factory=list)
    """The groups of words that end together, with "leaders" and "full"."""
    words: ItemsOrNull[Word] = Field(default_factory=list)
    """All words in the order of reading, with "full"."""
    trajectory: ItemsOrNull[Items[Vector]] = Field(default_factory=list)
    """The position of every word at each layer, with `trajectory`."""
    sufficient: Sufficient | None = None
    """A small set of words that alone gives the same label, with `sufficient`; null if none was found."""
    flip: Flip | None = None
    """A small set of words whose removal changes the label, with `flip`; null if none was found."""


class Classifications(Document):
    """One text, answered by several models."""

    index: int
    """The index of the text in the request."""
    answers: dict[str, Classification]
    """The answer of each model, by the name that the request uses."""


class Usage(Document):
    """The numbers of texts and of tokens of a request."""

    texts: int
    """The number of texts that were answered."""
    tokens: int
    """The number of subword tokens that were read."""


class ClassifyResponse(Document):
    """The response of POST /classify."""

    id: str
    """The id of the request."""
    model: str | Items[str]
    """The model that answered, or the models in the order of the request."""
    model_version: int | Items[int] | None = None
    """The version of the model, the number after the @ of its name and 1 without one; of several models a
    list. The header `x-model-digest` has the digest of its bundle."""
    usage: Usage
    """The amount of text that was read."""
    data: Items[Classification | Classifications]
    """One entry for each text, in the order of the request."""


def number_of(value: Any, label: str) -> float:
    """Return a number of an answer, for the label if it has one for each label."""
    return float(value[label] if isinstance(value, dict) else value)
