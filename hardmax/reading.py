"""JSON as the types of `documents`. Everything is checked, because an answer may come from anybody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from hardmax.errors import UnexpectedAnswer

T = TypeVar("T")
Reader = Callable[[Any], Any]
SCALARS: dict[Any, tuple[type, ...]] = {
    str: (str,), int: (int,), float: (float, int), bool: (bool,), NoneType: (NoneType,),
}  # fmt: skip


class Misfit(Exception):
    """A value that is not as its type says; the message is its place and what was expected there."""


def read(kind: type[T], document: Any, **given: Any) -> T:
    """A JSON value as one of these types, or an UnexpectedAnswer. Fields that are `given` are not read."""
    try:
        made: T = _record(kind, document, given)
        return made
    except Misfit as misfit:
        raise UnexpectedAnswer(f"this is no answer of hardmax: {misfit}") from None


def _record(kind: Any, document: Any, given: dict[str, Any]) -> Any:
    if not isinstance(document, dict):
        raise Misfit(f"expected an object, not {type(document).__name__}")
    values = dict(given)
    for name, reader, default in _fields(kind, *given):
        if name in document:
            try:
                values[name] = reader(document[name])
            except Misfit as misfit:
                raise Misfit(f"{name}: {misfit}") from None
        elif default is None:
            raise Misfit(f"{name} is missing")
        else:
            values[name] = default()
    made = object.__new__(kind)
    made.__dict__.update(values, document=document)  # what a frozen dataclass does field by field, at once
    return made


@cache
def _fields(kind: Any, *given: str) -> list[tuple[str, Reader, Callable[[], Any] | None]]:
    """The name of each field that is not given, how it is read, and what makes its default."""
    hints = get_type_hints(kind)
    return [
        (each.name, _reader(hints[each.name]), _default(each))
        for each in fields(kind)
        if each.name not in given
    ]


def _default(field: Field[Any]) -> Callable[[], Any] | None:
    if field.default_factory is not MISSING:
        return field.default_factory
    return None if field.default is MISSING else lambda: field.default


@cache
def _reader(kind: Any) -> Reader:
    origin, inner = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return lambda value: _record(kind, value, {})
    if origin in (Union, UnionType):
        return _any_of(inner)
    if origin is list:
        return _list(inner[0])
    if origin is dict:
        return _dict(_reader(inner[1]))
    if origin is tuple:
        return _tuple([_reader(each) for each in inner])
    return _scalar(str if origin is Literal else kind)  # a later version may know further words


def _scalar(kind: Any) -> Reader:
    allowed = SCALARS[kind]

    def scalar(value: Any) -> Any:
        if type(value) in allowed:  # JSON gives no values of derived types
            return value
        raise Misfit(f"expected {kind.__name__}, not {type(value).__name__}")

    return scalar


def _any_of(kinds: tuple[Any, ...]) -> Reader:
    readers = [_reader(each) for each in sorted(kinds, key=lambda kind: kind is not NoneType)]

    def any_of(value: Any) -> Any:
        for reader in readers[:-1]:
            try:
                return reader(value)
            except Misfit:
                continue
        return readers[-1](value)

    return any_of


def _list(kind: Any) -> Reader:
    reader = _reader(kind)
    allowed = set(SCALARS.get(kind, ()))

    def each(value: Any) -> Any:
        if value is None:
            return []  # the API leaves out what was not asked for, or says null
        if not isinstance(value, list):
            raise Misfit(f"expected a list, not {type(value).__name__}")
        if set(map(type, value)) <= allowed:
            return value  # a million numbers are not looked at one by one
        return [reader(entry) for entry in value]

    return each


def _dict(reader: Reader) -> Reader:
    def each(value: Any) -> Any:
        if not isinstance(value, dict):
            raise Misfit(f"expected an object, not {type(value).__name__}")
        return {name: reader(entry) for name, entry in value.items()}

    return each


def _tuple(readers: list[Reader]) -> Reader:
    def each(value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) != len(readers):
            raise Misfit(f"expected a list of {len(readers)}")
        return tuple(reader(entry) for reader, entry in zip(readers, value, strict=True))

    return each
