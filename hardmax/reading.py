"""JSON as the types of `documents`. Everything is checked, because an answer may come from anybody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from hardmax.errors import UnexpectedAnswer

T = TypeVar("T")
Reader = Callable[[Any], Any]
SCALARS: dict[Any, tuple[type, ...]] = {
    str: (str,), int: (int,), float: (float, int), bool: (bool,), NoneType: (NoneType,), Any: (object,),
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
    for name, reader, required in _fields(kind, *given):
        if name in document:
            values[name] = _at(name, reader, document[name])
        elif required:
            raise Misfit(f"{name} is missing")
    made = kind(**values)
    made.__dict__["document"] = document
    return made


def _at(place: str, reader: Reader, value: Any) -> Any:
    try:
        return reader(value)
    except Misfit as misfit:
        raise Misfit(f"{place}: {misfit}") from None


@cache
def _fields(kind: Any, *given: str) -> list[tuple[str, Reader, bool]]:
    hints = get_type_hints(kind)
    return [
        (each.name, _reader(hints[each.name]), each.default is each.default_factory is MISSING)
        for each in fields(kind)
        if each.name not in given
    ]


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
        if isinstance(value, allowed) and (kind in (bool, Any) or not isinstance(value, bool)):
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
        return [_at(f"[{index}]", reader, entry) for index, entry in enumerate(value)]

    return each


def _dict(reader: Reader) -> Reader:
    def each(value: Any) -> Any:
        if not isinstance(value, dict):
            raise Misfit(f"expected an object, not {type(value).__name__}")
        return {name: _at(name, reader, entry) for name, entry in value.items()}

    return each


def _tuple(readers: list[Reader]) -> Reader:
    def each(value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) != len(readers):
            raise Misfit(f"expected a list of {len(readers)}")
        return tuple(reader(entry) for reader, entry in zip(readers, value, strict=True))

    return each
