"""The base class of operations, and the check of their fields, because msgspec does not check new structs.

The check follows the type hints: text, numbers with bounds, ``Literal`` names, aware datetimes, structs, and tuples of
these. It skips fields whose hint is a protocol.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from datetime import datetime
from functools import cache
from types import UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import NotJson, check_text

_Item = TypeVar("_Item")
Result = TypeVar("Result")

Right = Literal["read", "write", "erase"]
"""The permission that an operation needs."""

Local = msgspec.Meta(extra={"local": True})
"""Marks a field that a remote caller cannot send. A server configures it."""


class Operation(msgspec.Struct, Generic[Result], frozen=True):
    """A call on a principal's memory or on a store, with the type of its result.

    Attributes:
        writes: Whether the operation may change the store.
        right: The permission that the caller needs.
        positional: The number of leading fields that the method accepts by position.
        stream: Whether the result is a series of values of the result type, which may wait for the next one.
    """

    writes: ClassVar[bool] = False
    right: ClassVar[Right] = "read"
    positional: ClassVar[int] = 0
    stream: ClassVar[bool] = False


_Check = Callable[[Any, str], object]
"""A check of a value. It raises ``InvalidArgument`` with the argument's name if the value is invalid."""


def several(values: Iterable[_Item], name: str) -> tuple[_Item, ...]:
    """Return the items of a list, tuple or iterator as a tuple. The items of a set are sorted.

    Raises ``InvalidArgument`` for any other value. A text is refused too, because its items would be letters.
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        actual = describe(cast("object", values))
        raise InvalidArgument(f"{name} must be a list or tuple, got {actual}")
    return tuple(sorted(values, key=repr) if isinstance(values, AbstractSet) else values)


def check_arguments(struct: msgspec.Struct) -> None:
    """Raise ``InvalidArgument`` with the name of the first field whose value does not fit its type hint."""
    for name, default, check in _checks_of(type(struct)):
        value = getattr(struct, name)
        if value is not default:
            check(value, name)


@cache
def _checks_of(cls: type[msgspec.Struct]) -> tuple[tuple[str, object, _Check], ...]:
    hints = get_type_hints(cls, include_extras=True)
    checks = ((field, _check_for(hints[field.name])) for field in msgspec.structs.fields(cls))
    return tuple((field.name, field.default, check) for field, check in checks if check is not None)


def _check_for(hint: object, meta: msgspec.Meta | None = None) -> _Check | None:  # noqa: PLR0911  # one return for each form of hint
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _check_for(arguments[0], next((each for each in arguments[1:] if isinstance(each, msgspec.Meta)), None))
    if origin in (Union, UnionType):
        return _check_optional(next(each for each in arguments if each is not type(None)), meta)
    if origin is Literal:
        return _check_literal(arguments)
    if origin is tuple:
        return _check_pair if arguments == (str, str) else _check_several(arguments[0])
    if hint is int or hint is float:
        return _check_number(hint, meta or msgspec.Meta())
    if hint in _CHECKS:
        return _CHECKS[hint]
    return _check_instance(hint) if isinstance(hint, type) and issubclass(hint, msgspec.Struct) else None


def _check_optional(hint: object, meta: msgspec.Meta | None) -> _Check | None:
    check = _check_for(hint, meta)

    def check_unless_none(value: object, name: str) -> None:
        if value is not None and check is not None:
            check(value, name)

    return check and check_unless_none


def _check_literal(names: tuple[str, ...]) -> _Check:
    def check(value: object, name: str) -> None:
        if value not in names:
            raise InvalidArgument(f"{name} must be one of {', '.join(names)}, got {describe(value)}")

    return check


def _check_several(hint: object) -> _Check:
    item = _check_for(hint)

    def check(values: object, name: str) -> None:
        if not isinstance(values, (tuple, list)):  # the check would consume an iterator
            raise InvalidArgument(f"{name} must be a tuple, got {describe(values)}")
        for position, value in enumerate(cast("tuple[object, ...]", values)):
            if item is not None:
                item(value, f"{name}[{position}]")

    return check


def _check_number(hint: object, meta: msgspec.Meta) -> _Check:
    least = -math.inf if meta.ge is None else meta.ge
    most = math.inf if meta.le is None else meta.le
    types = (int,) if hint is int else (int, float)
    expected = "an integer" if hint is int else "a number"
    expected += "" if meta.ge is None else f" from {meta.ge:,}"
    expected += "" if meta.le is None else f" to {meta.le:,}"

    def check(value: object, name: str) -> None:
        is_number = isinstance(value, types) and not isinstance(value, bool)
        if not is_number or not (least <= value <= most and value not in _INFINITE):  # type: ignore[operator]  # a number
            raise InvalidArgument(f"{name} must be {expected}, got {describe(value)}")

    return check


def _check_instance(cls: type) -> _Check:
    def check(value: object, name: str) -> None:
        if not isinstance(value, cls):
            raise InvalidArgument(f"{name} must be a {cls.__name__}, got {describe(value)}")

    return check


def text_of(value: object, name: str) -> str:
    """Return the value if it is text that the store can hold. Raises ``InvalidArgument`` with the argument's name."""
    if type(value) is str and value.isascii():
        return value
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} must be text, got {describe(value)}")
    try:
        check_text(value, "")
    except NotJson as error:
        raise InvalidArgument(f"{name} {error}") from error
    return str.__str__(value)


def _check_bool(value: object, name: str) -> None:
    if type(value) is not bool:
        raise InvalidArgument(f"{name} must be True or False, got {describe(value)}")


def _check_datetime(value: object, name: str) -> None:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidArgument(f"{name} must be a timezone-aware datetime, got {describe(value)}")


def _check_bytes(value: object, name: str) -> None:
    if not isinstance(value, bytes):
        raise InvalidArgument(f"{name} must be bytes, got {describe(value)}")


def _check_pair(value: object, name: str) -> None:
    match value:
        case (str(), str()):
            return
        case _:
            raise InvalidArgument(f"{name} must be a pair (agent, run), got {describe(value)}")


_INFINITE = (math.inf, -math.inf)

_CHECKS: dict[object, _Check] = {
    str: text_of,
    bool: _check_bool,
    datetime: _check_datetime,
    bytes: _check_bytes,
}
