"""Converts the values that Python code passes on, such as dataclasses, models, dates and sets, to JSON text.

JSON values take the usual way (``jsonvalue.py``). So this module never changes how a plain value is written.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

import msgspec

from agent_memory_log.events.jsonvalue import (
    MAX_INT_DIGITS,
    JsonValue,
    NotJson,
    encode_canonical,
    encode_json,
    own_json,
)

EncHook = Callable[[Any], object]
"""A caller's function that returns a value of a known type for a value of any other type, or raises an exception."""

_BY_MSGSPEC = (datetime, date, time, timedelta, UUID, bytes, bytearray, memoryview)


def value_text(value: object, enc_hook: EncHook | None) -> str:
    """Return a value as compact JSON text.

    Dataclasses, attrs classes, msgspec structs and pydantic models become objects, with the names that these libraries
    write. Sets become sorted arrays, enums their values, dates and times ISO 8601 text, UUIDs text, and bytes base64
    text. A ``Decimal`` is written as a number with all its digits. ``enc_hook`` converts values of all other types.

    Raises ``NotJson`` with the path of a value that cannot be written.
    """

    def convert(other: object, depth: int) -> JsonValue:
        if isinstance(other, Decimal):
            return cast("JsonValue", _number(other))
        if isinstance(other, (set, frozenset)):
            items = own_json(list(cast("Iterable[object]", other)), depth, convert)
            return sorted(cast("list[JsonValue]", items), key=encode_canonical)
        return own_json(_simpler(other, enc_hook), depth, convert)

    try:
        return encode_json(own_json(value, 1, convert)).decode()
    except RecursionError as error:
        raise NotJson("is converted again and again, without an end", "") from error


def _number(value: Decimal) -> msgspec.Raw:
    text = str(value)
    if not value.is_finite():
        raise NotJson(f"is {text}, which JSON cannot write", "")
    if len(text) > MAX_INT_DIGITS and text.lstrip("-").isdigit():
        raise NotJson(f"is an integer of more than {MAX_INT_DIGITS} digits", "")
    return msgspec.Raw(text.encode())


def _simpler(value: object, enc_hook: EncHook | None) -> object:
    """Return a value of a simpler type, whose parts may be of any type."""
    name = type(value).__name__
    try:
        if isinstance(value, enum.Enum):
            return cast("object", value.value)
        if isinstance(value, _BY_MSGSPEC):
            return cast("object", msgspec.to_builtins(value))
        if isinstance(value, msgspec.Struct):
            return _map_of_struct(value, enc_hook)
        names = _field_names(type(value))
        if names is not None:
            return {field: getattr(value, field) for field in names}
        if callable(getattr(type(value), "model_dump", None)):  # pydantic
            return cast("Any", value).model_dump(mode="json")
        if enc_hook is not None:
            return enc_hook(value)
    except Exception as error:
        raise NotJson(f"is of type {name}, which cannot be converted: {error}", "") from error
    raise NotJson(f"is of type {name}, which is not JSON: pass plain data, or give the recorder an enc_hook", "")


def _field_names(cls: type) -> list[str] | None:
    """Return the names of the fields of a dataclass or an attrs class; None for any other class."""
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    attributes = cast("Iterable[Any] | None", getattr(cast("object", cls), "__attrs_attrs__", None))
    return None if attributes is None else [attribute.name for attribute in attributes]


def _map_of_struct(value: msgspec.Struct, enc_hook: EncHook | None) -> object:
    return msgspec.to_builtins(
        value,
        str_keys=True,
        builtin_types=(Decimal,),
        enc_hook=lambda inner: _simpler(inner, enc_hook),
        order="deterministic",
    )
