"""The base of all answers, and the parser of answers."""

from __future__ import annotations

import inspect
from functools import cached_property
from typing import Annotated, Any, TypeVar, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WrapValidator

from hardmax.errors import UnexpectedAnswer

T = TypeVar("T")
Items = Annotated[list[T], Field(fail_fast=True)]  # reports one wrong entry, not a million
ItemsOrNull = Annotated[Items[T], BeforeValidator(lambda value: [] if value is None else value)]
Vector = Items[float]
Span = Annotated[tuple[int, int], Field(strict=False)]  # JSON has lists only
Number = float | dict[str, float]  # a number for each label if there are several logits
Open = WrapValidator(lambda value, check: value if isinstance(value, str) else check(value))  # any string


class Document(BaseModel):
    """A part of an answer."""

    model_config = ConfigDict(
        extra="allow",
        frozen=True,
        strict=True,
        use_attribute_docstrings=True,
        defer_build=True,  # most programs need few of these types
    )

    @cached_property
    def document(self) -> dict[str, Any]:
        """The complete document as received, with fields of later versions."""
        return self.model_dump(mode="json", exclude_unset=True)


M = TypeVar("M", bound=Document)


def parse_document(kind: type[M], document: Any, **fields: Any) -> M:
    """Return the answer that a JSON value describes, with further fields.

    Raises:
        UnexpectedAnswer: It does not fit its type; the message names the field and what was expected.
    """
    try:
        return kind.model_validate({**document, **fields} if isinstance(document, dict) else document)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(map(str, problem["loc"])) or "the answer"
        raise UnexpectedAnswer(f"not a response of hardmax: {field}: {problem['msg']}") from None


def with_plain_signature(kind: type[M]) -> type[M]:
    """Remove validators from the signature and the types of a class, for `help` and the documentation."""
    types = get_type_hints(kind, localns={kind.__name__: kind})
    kind.__annotations__ = types
    parameters = inspect.signature(kind).parameters.values()
    kind.__signature__ = inspect.Signature(
        [p.replace(annotation=types[p.name]) for p in parameters if p.name in types]
    )
    return kind
