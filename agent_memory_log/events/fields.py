"""Reading a map into a struct: every spelling and number form that has been stored, and nothing else.

The rules are those of the Go original's decoder (v1.0.3, run on odd input), less its defects: a null optional field is
absent, integers may be integral floats within 64 bits, JSON text may arrive as a value, base64 is standard and padded.
How a field is read follows from its annotation, so a registered payload is read by the same rules as a built-in one.
"""

from __future__ import annotations

import base64
import binascii
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, TypeGuard, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from agent_memory_log.errors import DecodeError
from agent_memory_log.events.jsonvalue import NotJson, encode_json, own_json

JsonText = Annotated[str, "json text"]
"""JSON kept as text, byte for byte; ``""`` is absent."""

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1

Int64 = Annotated[int, msgspec.Meta(ge=_INT64_MIN, le=_INT64_MAX)]
"""An integer of the original's range, which every backend and language can hold."""

_Struct = TypeVar("_Struct", bound=msgspec.Struct)
_Reader = Callable[[object, str], object]


class _Field(msgspec.Struct, frozen=True):
    name: str
    key: str
    required: bool
    nullable: bool
    read: _Reader


def read_struct(cls: type[_Struct], data: object, where: str) -> _Struct:
    """Read the map ``data`` as a ``cls``; ``where`` begins every error message, as in ``tool_call``.

    Raises ``DecodeError`` naming ``where``, the field and what was found.
    """
    if not isinstance(data, Mapping):
        raise DecodeError(f"{where}: data must be a map, found {describe(data)}")
    source = cast("Mapping[object, object]", data)
    loose = getattr(cls, "__loose_keys__", False)
    values: dict[str, object] = {}
    for field in fields_of(cls):
        value = _find_loose(source, field) if loose else source.get(field.key)
        if value is not None:
            values[field.name] = field.read(value, f"{where} field {field.key!r}")
        elif field.nullable and field.key in source:
            values[field.name] = None
        elif field.required:
            found = "null" if field.key in source else "nothing"
            raise DecodeError(f"{where}: required field {field.key!r} is missing, found {found}")
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:  # from a registered payload's __post_init__
        raise DecodeError(f"{where}: {error}") from error


def _find_loose(source: Mapping[object, object], field: _Field) -> object:
    """The exact key first, then the key in any case, then snake_case; null counts as absent each time."""
    value = source.get(field.key)
    if value is not None:
        return value
    for spelling in (field.key.lower(), field.name):
        for key, value in source.items():
            if value is not None and isinstance(key, str) and key.lower() == spelling:
                return value
    return None


@cache
def fields_of(cls: type[msgspec.Struct]) -> tuple[_Field, ...]:
    """The fields of a struct with their map keys and readers."""
    hints = get_type_hints(cls, include_extras=True)
    return tuple(
        _Field(
            field.name, field.encode_name, field.required, is_nullable(hints[field.name]), _reader(hints[field.name])
        )
        for field in msgspec.structs.fields(cls)
    )


def describe(value: object) -> str:
    """What was found, for an error message: the type and a short form of the value; never fails."""
    if value is None:
        return "null"
    kind = type(value).__name__
    try:
        # Only the beginning of a long text is shown, and a repr of all of it could take longer than the work refused.
        text = repr(value[:_SHOWN]) if isinstance(value, (str, bytes, bytearray)) else repr(value)
    except Exception:  # noqa: BLE001  # a repr may raise anything: of a huge integer, of deep nesting, a caller's own
        return f"{kind} that cannot be shown"
    return f"{kind} {text if len(text) <= _SHOWN else text[: _SHOWN - 3] + '...'}"


_SHOWN = 60


def is_nullable(hint: object) -> bool:
    """Whether a field may be None."""
    return hint is Any or (get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint))


def without_none(hint: object) -> object:
    """``X`` for ``X | None``; any other type as it is."""
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
        return lambda value, where: read_struct(hint, value, where)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is list or (origin is tuple and arguments[1:] == (...,)):
        read_item = _reader(arguments[0])
        if origin is list:
            return lambda value, where: _read_items(value, where, read_item)
        return lambda value, where: tuple(_read_items(value, where, read_item))
    return lambda value, where: _convert(value, hint, where)


def _has_loose_keys(hint: object) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct) and getattr(hint, "__loose_keys__", False)


def _read_items(value: object, where: str, read_item: _Reader) -> list[object]:
    if not isinstance(value, (list, tuple)):
        raise DecodeError(f"{where} must be a list, found {describe(value)}")
    return [read_item(item, f"{where}[{index}]") for index, item in enumerate(cast("Sequence[object]", value))]


def _read_text(value: object, where: str) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    raise DecodeError(f"{where} must be text, found {describe(value)}")


def _read_bool(value: object, where: str) -> bool:
    if isinstance(value, bool):
        return value
    raise DecodeError(f"{where} must be true or false, found {describe(value)}")


def _read_int(value: object, where: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__int__(value)
    # 2.0**63 is the first float past the range; int() of a larger one would invent digits.
    if isinstance(value, float) and value.is_integer() and _INT64_MIN <= value < 2.0**63:
        return int(value)
    raise DecodeError(f"{where} must be an integer, found {describe(value)}")


def is_int64(number: int) -> bool:
    """Whether an integer is within 64 bits."""
    return _INT64_MIN <= number <= _INT64_MAX


def read_int64(value: object, where: str) -> int:
    """An integer, or an integral float, within 64 bits; ``where`` begins the message of the ``DecodeError``."""
    number = _read_int(value, where)
    if not is_int64(number):
        raise DecodeError(f"{where} must be an integer within 64 bits, found {describe(value)}")
    return number


def _read_bytes(value: object, where: str) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(cast("bytes", value))
    if isinstance(value, str):
        try:
            # Go's standard decoder skips line breaks and nothing else.
            return base64.b64decode(value.replace("\n", "").replace("\r", ""), validate=True)
        except (binascii.Error, ValueError) as error:
            raise DecodeError(f"{where} must be standard, padded base64, found {describe(value)}") from error
    raise DecodeError(f"{where} must be base64 text or bytes, found {describe(value)}")


def _read_json_text(value: object, where: str) -> str:
    if isinstance(value, str):
        text = str.__str__(value)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        try:
            text = bytes(cast("bytes", value)).decode()
        except UnicodeDecodeError as error:
            raise DecodeError(f"{where} must be JSON text, found bytes that are not UTF-8") from error
    else:
        text = encode_json(_read_json(value, where)).decode()
    return "" if is_absent_text(text) else text


def is_absent_text(text: str) -> bool:
    """Whether JSON text says nothing at all: empty, or white space alone. The text ``null`` says something."""
    return not text or text.isspace()


def _read_json(value: object, where: str) -> object:
    try:
        return own_json(value)
    except NotJson as error:
        raise DecodeError(f"{where}{error.path} {error}") from error


def _read_map(value: object, where: str) -> object:
    if isinstance(value, Mapping):
        return _read_json(cast("object", value), where)
    raise DecodeError(f"{where} must be a map, found {describe(value)}")


def _convert(value: object, hint: object, where: str) -> object:
    try:
        converted: object = msgspec.convert(value, type=hint, str_keys=True)
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:  # msgspec's own is a ValueError
        raise DecodeError(f"{where}: {error}; found {describe(value)}") from error
    return converted


# In pairs, because an annotation need not be hashable.
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
