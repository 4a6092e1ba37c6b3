"""Reads a map into a struct. It accepts every spelling of keys and every form of numbers that stored events have.

The rules are those of the Go original's decoder (observed in v1.0.3 with unusual input), without its defects. An
optional field that is null is absent. An integer may be an integral float within 64 bits. JSON text may also be stored
as a JSON value. Base64 is standard and padded. The annotation of a field selects its rule, so the same rules apply to
registered and built-in payloads.
"""

from __future__ import annotations

import base64
import binascii
import types
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, TypeGuard, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from agent_memory_log.errors import DecodeError
from agent_memory_log.events.jsonvalue import JsonValue, NotJson, decode_json, encode_json, own_json

JsonText = Annotated[str, "json text"]
"""The annotation of a field that holds JSON as unchanged text. ``""`` means that the text is absent."""

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

Int64 = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]
"""The annotation of a 64-bit integer, the range of the Go original. Every backend and language can hold it."""

UNKNOWN_FIELDS = "unknown_fields"
"""The name of the field that holds ``UnknownFields``."""

_Struct = TypeVar("_Struct", bound=msgspec.Struct)
_Reader = Callable[[object, str], object]


class UnknownFields(dict[str, JsonValue]):
    """The keys and values of a map that no field of its struct reads. They are written back unchanged, as they came.

    The class has no decoder. So msgspec refuses a map that has a key ``unknown_fields``, and ``read_struct`` reads it.
    """


Unknown = UnknownFields | msgspec.UnsetType
"""The annotation of the field with the unknown fields. Without any, it is ``msgspec.UNSET``."""

NO_UNKNOWN: Unknown = msgspec.field(default=msgspec.UNSET, name=UNKNOWN_FIELDS)
"""The default of that field. It keeps its name in a struct that renames its fields."""


class _Field(msgspec.Struct, frozen=True):
    name: str
    key: str
    required: bool
    nullable: bool
    read: _Reader


def read_struct(cls: type[_Struct], data: object, path: str) -> _Struct:
    """Read the map ``data`` as a ``cls``.

    Every error message begins with ``path``, such as ``tool_call``. Raises ``DecodeError`` with the field and the
    value.
    """
    if not isinstance(data, Mapping):
        raise DecodeError(f"{path}: data must be a map, got {describe(data)}")
    source = cast("Mapping[object, object]", data)
    loose = getattr(cls, "__loose_keys__", False)
    values: dict[str, object] = {}
    for field in fields_of(cls):
        value = _find_loose(source, field) if loose else source.get(field.key)
        if value is not None:
            values[field.name] = field.read(value, f"{path} field {field.key!r}")
        elif field.nullable and field.key in source:
            values[field.name] = None
        elif field.required:
            problem = "is null" if field.key in source else "is missing"
            raise DecodeError(f"{path}: the required field {field.key!r} {problem}")
    if UNKNOWN_FIELDS in cls.__struct_fields__:
        unknown = _unknown_in(cls, source, path)
        if unknown:
            values[UNKNOWN_FIELDS] = unknown
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:  # from a registered payload's __post_init__
        raise DecodeError(f"{path}: {error}") from error


def _find_loose(source: Mapping[object, object], field: _Field) -> object:
    """Return the value of the exact key, of the key in any case, or of the snake_case key, ignoring nulls."""
    value = source.get(field.key)
    if value is not None:
        return value
    for spelling in (field.key.lower(), field.name):
        for key, value in source.items():
            if value is not None and isinstance(key, str) and key.lower() == spelling:
                return value
    return None


def _unknown_in(cls: type[msgspec.Struct], source: Mapping[object, object], path: str) -> UnknownFields:
    unknown = UnknownFields()
    if source.keys() <= _known_keys(cls):
        return unknown
    for key, value in source.items():
        if isinstance(key, str) and not is_known_key(cls, key):
            # The Go original writes bytes as base64 text in JSON.
            plain = base64.b64encode(value).decode() if isinstance(value, bytes) else value
            unknown[str.__str__(key)] = cast("JsonValue", _read_json(plain, f"{path} field {key!r}"))
    return unknown


def is_known_key(cls: type[msgspec.Struct], key: str) -> bool:
    """Return whether ``read_struct`` reads the key of a map into a field of ``cls``."""
    if getattr(cls, "__loose_keys__", False):
        key = key.lower()
    return key in _known_keys(cls)


@cache
def _known_keys(cls: type[msgspec.Struct]) -> frozenset[str]:
    if getattr(cls, "__loose_keys__", False):
        return frozenset(key for field in fields_of(cls) for key in (field.key.lower(), field.name))
    return frozenset(field.key for field in fields_of(cls))


@cache
def fields_of(cls: type[msgspec.Struct]) -> tuple[_Field, ...]:
    """Return the fields of a struct with their map keys and reading functions, without ``UnknownFields``."""
    hints = get_type_hints(cls, include_extras=True)
    return tuple(
        _Field(
            field.name, field.encode_name, field.required, is_nullable(hints[field.name]), _reader(hints[field.name])
        )
        for field in msgspec.structs.fields(cls)
        if not holds_unknown_fields(hints[field.name])
    )


def holds_unknown_fields(hint: object) -> bool:
    """Return whether a field with this annotation holds ``UnknownFields``."""
    return UnknownFields in get_args(hint)


def describe(value: object) -> str:
    """Return the type and a short form of a value for an error message. It never raises."""
    if value is None:
        return "null"
    kind = type(value).__name__
    try:
        # The repr of a whole long text could take longer than the rest of the call.
        text = repr(value[:_MAX_SHOWN]) if isinstance(value, (str, bytes, bytearray)) else repr(value)
    except Exception:  # noqa: BLE001  # huge integers, deep nesting and callers' classes may raise anything
        return f"{kind} that cannot be shown"
    return f"{kind} {text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + '...'}"


def in_quotes(value: object) -> str:
    """Return a name for an error message: a text in quotes, cut if it is long. Any other value as ``describe`` does."""
    return describe(value).removeprefix("str ")


_MAX_SHOWN = 60


def is_nullable(hint: object) -> bool:
    """Return whether a field with this annotation may be None."""
    return hint is Any or (get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint))


def without_none(hint: object) -> object:
    """Return ``X`` for ``X | None``, and any other type unchanged."""
    if is_nullable(hint):
        options = [option for option in get_args(hint) if option is not type(None)]
        if len(options) == 1:
            return options[0]
    return hint


def _reader(hint: object) -> _Reader:
    hint = without_none(hint)
    for annotation, read in _READERS:
        if annotation == hint:
            return read
    if _has_loose_keys(hint):
        return lambda value, path: read_struct(hint, value, path)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is list or (origin is tuple and arguments[1:] == (...,)):
        read_item = _reader(arguments[0])
        if origin is list:
            return lambda value, path: _read_items(value, path, read_item)
        return lambda value, path: tuple(_read_items(value, path, read_item))
    return lambda value, path: _convert(value, hint, path)


def _has_loose_keys(hint: object) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct) and getattr(hint, "__loose_keys__", False)


def _read_items(value: object, path: str, read_item: _Reader) -> list[object]:
    if not isinstance(value, (list, tuple)):
        raise DecodeError(f"{path} must be a list, got {describe(value)}")
    return [read_item(item, f"{path}[{index}]") for index, item in enumerate(cast("Sequence[object]", value))]


def _read_text(value: object, path: str) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    raise DecodeError(f"{path} must be text, got {describe(value)}")


def _read_bool(value: object, path: str) -> bool:
    if isinstance(value, bool):
        return value
    raise DecodeError(f"{path} must be true or false, got {describe(value)}")


def _read_int(value: object, path: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__int__(value)
    # 2.0**63 is the first float beyond the range. Larger floats are not exact integers.
    if isinstance(value, float) and value.is_integer() and INT64_MIN <= value < 2.0**63:
        return int(value)
    raise DecodeError(f"{path} must be an integer, got {describe(value)}")


def is_int64(number: int) -> bool:
    """Return whether an integer is within 64 bits."""
    return INT64_MIN <= number <= INT64_MAX


def read_int64(value: object, path: str) -> int:
    """Read an integer, or an integral float, within 64 bits. The message of a ``DecodeError`` begins with ``path``."""
    number = _read_int(value, path)
    if not is_int64(number):
        raise DecodeError(f"{path} must be an integer within 64 bits, got {describe(value)}")
    return number


def _read_bytes(value: object, path: str) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(cast("bytes", value))
    if isinstance(value, str):
        try:
            # Go's standard decoder skips line breaks but no other characters.
            return base64.b64decode(value.replace("\n", "").replace("\r", ""), validate=True)
        except (binascii.Error, ValueError) as error:
            raise DecodeError(f"{path} must be standard, padded base64, got {describe(value)}") from error
    raise DecodeError(f"{path} must be base64 text or bytes, got {describe(value)}")


def _read_json_text(value: object, path: str) -> str:
    if isinstance(value, str):
        text = str.__str__(value)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        try:
            text = bytes(cast("bytes", value)).decode()
        except UnicodeDecodeError as error:
            raise DecodeError(f"{path} must be JSON text, got bytes that are not UTF-8") from error
    else:
        text = encode_json(_read_json(value, path)).decode()
    return "" if is_absent_text(text) else text


def is_absent_text(text: str) -> bool:
    """Return whether JSON text is empty or only white space. The text ``null`` is not absent."""
    return not text or text.isspace()


_decode_exact = msgspec.json.Decoder(float_hook=Decimal).decode


def decode_json_text(text: str, event_type: str, field: str, *, exact_numbers: bool) -> object:
    """Decode JSON text, or return None for absent text. With ``exact_numbers``, numbers become ``int`` or ``Decimal``.

    Raises ``DecodeError`` with the event type and the field.
    """
    if is_absent_text(text):
        return None
    try:
        decoded: object = _decode_exact(text) if exact_numbers else decode_json(text)
    except (msgspec.DecodeError, UnicodeEncodeError, ArithmeticError, RecursionError) as error:
        advice = "" if exact_numbers or "out of range" not in str(error) else " for a float: use exact_numbers=True"
        raise DecodeError(f"{event_type} field {field!r} is not JSON: {error}{advice}; got {describe(text)}") from error
    return decoded


def _read_json(value: object, path: str) -> object:
    try:
        return own_json(value)
    except NotJson as error:
        raise DecodeError(f"{path}{error.path} {error}") from error


def _read_map(value: object, path: str) -> object:
    if isinstance(value, Mapping):
        return _read_json(cast("object", value), path)
    raise DecodeError(f"{path} must be a map, got {describe(value)}")


def _convert(value: object, hint: object, path: str) -> object:
    try:
        converted: object = msgspec.convert(value, type=hint, str_keys=True)
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:  # msgspec's error is a ValueError
        raise DecodeError(f"{path}: {error}; got {describe(value)}") from error
    return converted


# Pairs instead of a dict, because an annotation may be unhashable.
_READERS: tuple[tuple[object, _Reader], ...] = (
    (str, _read_text),
    (bool, _read_bool),
    (int, _read_int),
    (Int64, read_int64),
    (JsonText, _read_json_text),
    (bytes, _read_bytes),
    (Any, _read_json),
    (Mapping[str, Any], _read_map),
    (dict[str, Any], _read_map),
)
