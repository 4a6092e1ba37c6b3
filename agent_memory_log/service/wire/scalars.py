"""The form of a type in JSON, and the forms of texts, numbers and other simple values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from types import NoneType
from typing import Any, NamedTuple, cast

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.event import format_timestamp, parse_timestamp
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import NotJson, own_json

Schema = Mapping[str, object]
"""A JSON schema. It refers to a struct as ``#/components/schemas/NAME``."""


class Form(NamedTuple):
    """The form of a type in JSON.

    Attributes:
        encode: Returns the JSON value of a value of the type.
        decode: Returns the value of a JSON value. It raises ``InvalidArgument`` with the path, its second argument.
        schema: The JSON schema.
    """

    encode: Callable[[Any], Any]
    decode: Callable[[object, str], Any]
    schema: Schema


def wrong(path: str, expected: str, value: object) -> InvalidArgument:
    """Return the error for a JSON value of another form."""
    return InvalidArgument(f"{path or 'the body'} must be {expected}, got {describe(value)}")


def same(value: Any) -> Any:  # noqa: ANN401  # any JSON value
    """Return a value that is JSON already."""
    return value


def decode_object(value: object, path: str) -> dict[str, object]:
    """Return a JSON object."""
    if not isinstance(value, dict):
        raise wrong(path, "an object", value)
    return cast("dict[str, object]", value)


def decode_text(value: object, path: str) -> str:
    """Return a JSON text."""
    if not isinstance(value, str):
        raise wrong(path, "text", value)
    return value


def decode_integer(value: object, path: str) -> int:
    """Return a JSON integer. The JSON schema of integers allows 3.0 too."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong(path, "an integer", value)
    return value


def decode_json(value: object, path: str) -> object:
    """Return a JSON value after the check that a store can hold it."""
    try:
        return own_json(value)
    except NotJson as error:
        raise InvalidArgument(f"{path}{error.path} {error}") from error


def _decode_bool(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise wrong(path, "true or false", value)
    return value


def _decode_number(value: object, path: str) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise wrong(path, "a number", value)
    return value


def _decode_time(value: object, path: str) -> datetime:
    try:
        return parse_timestamp(decode_text(value, path))
    except (InvalidArgument, ValueError, OverflowError) as error:
        raise InvalidArgument(f"{path} must be a time such as 2026-11-21T09:30:00Z, got {describe(value)}") from error


def _decode_bytes(value: object, path: str) -> bytes:
    try:
        return decode_text(value, path).encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{path} holds a lone surrogate") from error


def _decode_none(value: object, path: str) -> None:
    if value is not None:
        raise wrong(path, "null", value)


TEXT: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
TIME: Schema = {"type": "string", "format": "date-time"}

SCALARS: Mapping[object, Form] = {
    NoneType: Form(same, _decode_none, {"type": "null"}),
    bool: Form(same, _decode_bool, {"type": "boolean"}),
    int: Form(same, decode_integer, INTEGER),
    float: Form(same, _decode_number, {"type": "number"}),
    str: Form(same, decode_text, TEXT),
    datetime: Form(format_timestamp, _decode_time, TIME),
    # The only bytes of an operation are JSONL, which is UTF-8.
    bytes: Form(bytes.decode, _decode_bytes, TEXT),
    Any: Form(same, decode_json, {}),
}
"""The forms of simple types. ``Any`` is any JSON value."""
