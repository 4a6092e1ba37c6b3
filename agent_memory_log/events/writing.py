"""Checks a payload, converts it to its map, and makes the copy that a store keeps.

msgspec silently changes some values: NaN becomes null, the key 1 becomes ``"1"``, and a set becomes an array. So this
module checks values before they are written. Free-form values (``structured``, ``extra``, …) must be JSON. The other
fields of a registered payload may hold any value that msgspec converts to JSON. Text, integers and bytes need no check
here, because the encoder and the decoder check them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from math import isfinite
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec

from agent_memory_log.errors import InvalidEvent
from agent_memory_log.events.fields import (
    UNKNOWN_FIELDS,
    Int64,
    JsonText,
    describe,
    holds_unknown_fields,
    is_absent_text,
    is_known_key,
    without_none,
)
from agent_memory_log.events.jsonvalue import (
    MAX_DEPTH,
    JsonValue,
    NotJson,
    check_text,
    encode_json,
    own_json,
    own_map,
    plain_form,
)

_Struct = TypeVar("_Struct", bound=msgspec.Struct)
_Check = Callable[[Any, str, int], None]

_FREE_FORM: tuple[object, ...] = (Any, Mapping[str, Any], dict[str, Any])
_EMPTY: tuple[object, ...] = ()
_CHECKED_BY_MSGSPEC: tuple[object, ...] = (str, int, bool, bytes, datetime, Int64, JsonText)


def check_struct(struct: msgspec.Struct, path: str, depth: int = 1) -> None:
    """Check the fields of ``struct``, whose maps and lists are at the nesting level ``depth``.

    Raises ``NotJson`` with a path that begins with ``path``.
    """
    for name, check in checks_of(type(struct)):
        value = getattr(struct, name)
        if value is not None and value is not _EMPTY:
            check(value, f"{path}.{name}", depth)


@cache
def checks_of(cls: type[msgspec.Struct]) -> tuple[tuple[str, _Check], ...]:
    """Return the fields of a struct that need a check, each with its check. The checks do not accept None."""
    hints = get_type_hints(cls, include_extras=True)
    return tuple(
        (field.name, check)
        for field in msgspec.structs.fields(cls)
        if (check := _check_for(without_none(hints[field.name]))) is not None
    )


def _check_for(hint: object) -> _Check | None:
    if hint in _CHECKED_BY_MSGSPEC:
        return None
    if holds_unknown_fields(hint):
        return None  # add_unknown checks them
    if hint in _FREE_FORM:
        return _check_json
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _check_inner
    arguments = get_args(hint)
    if get_origin(hint) is tuple and arguments[1:] == (...,):
        check_item = _check_for(arguments[0])
        return None if check_item is None else partial(_check_items, check_item)
    return _check_typed


def _check_items(check_item: _Check, value: object, path: str, depth: int) -> None:
    if isinstance(value, (list, tuple)):  # read_back refuses any other value
        for index, item in enumerate(cast("Sequence[object]", value)):
            check_item(item, f"{path}[{index}]", depth + 1)


def _check_json(value: object, path: str, depth: int) -> None:
    try:
        own_json(value, depth)
    except NotJson as error:
        raise NotJson(str(error), path + error.path) from None


def _check_inner(value: object, path: str, depth: int) -> None:
    if isinstance(value, msgspec.Struct):  # read_back refuses any other value
        if depth > MAX_DEPTH:
            raise NotJson(f"nests deeper than {MAX_DEPTH} levels", path)
        check_struct(value, path, depth + 1)


def _check_typed(value: object, path: str, depth: int) -> None:
    if type(value) is float and isfinite(value):
        return  # the most common value
    try:
        plain: object = msgspec.to_builtins(value, str_keys=True, enc_hook=plain_form)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJson(f"cannot be written: {error}", path) from error
    _check_json(plain, path, depth)


def struct_to_map(struct: msgspec.Struct, name: str) -> dict[str, JsonValue]:
    """Return the map that ``struct`` is stored as. Every error message begins with ``name``.

    Raises ``InvalidEvent`` with the field.
    """
    owned: dict[str, JsonValue] = {}
    key = ""
    layout = _layout_of(type(struct))
    try:
        check_struct(struct, "data")
        plain = _without_unknown(struct) if has_unknown(struct) else struct
        built: dict[str, object] = msgspec.to_builtins(plain, str_keys=True, enc_hook=plain_form, order=layout.order)
        if plain is not struct:
            _add_unknown(struct, built, "data")
        for key, value in built.items():
            owned[key] = own_json(value)
    except NotJson as error:
        names = {field.encode_name: field.name for field in msgspec.structs.fields(struct)}
        path = error.path if error.path.startswith("data") else f"data.{names.get(key, key)}{error.path}"
        raise InvalidEvent(f"{name}: {path} {error}", field=path) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEvent(f"{name} cannot be written: {error}", field="data") from error
    for key, default in layout.defaults:
        if key in owned and encode_json(owned[key]) == default:
            del owned[key]
    for key in layout.json_texts:
        text = owned.get(key)
        if isinstance(text, str) and is_absent_text(text):
            del owned[key]
    return owned


def wire_json(struct: msgspec.Struct) -> bytes:
    """Return the JSON of a struct that may have unknown fields. Raises ``InvalidEvent`` with the field."""
    return encode_json(struct_to_map(struct, getattr(struct, "event_type", "")) if has_unknown(struct) else struct)


def has_unknown(struct: msgspec.Struct) -> bool:
    """Return whether a struct or a map inside it has fields that this release does not know."""
    if getattr(struct, UNKNOWN_FIELDS, msgspec.UNSET) is not msgspec.UNSET:
        return True
    for name, _ in _maps_inside(type(struct)):
        value = getattr(struct, name)
        if value is not None and isinstance(value, msgspec.Struct) and has_unknown(value):
            return True
    return False


def _without_unknown(struct: _Struct) -> _Struct:
    changes: dict[str, object] = {
        name: _without_unknown(value)
        for name, _ in _maps_inside(type(struct))
        if isinstance(value := getattr(struct, name), msgspec.Struct)
    }
    if UNKNOWN_FIELDS in struct.__struct_fields__:
        changes[UNKNOWN_FIELDS] = msgspec.UNSET
    return msgspec.structs.replace(struct, **changes)


def _add_unknown(struct: msgspec.Struct, built: dict[str, Any], path: str) -> None:
    """Add the unknown fields of ``struct`` to its map ``built``, next to the known fields."""
    unknown: object = getattr(struct, UNKNOWN_FIELDS, msgspec.UNSET)
    path = f"{path}.{UNKNOWN_FIELDS}"
    if unknown is msgspec.UNSET:
        unknown = {}
    if not isinstance(unknown, Mapping):
        raise NotJson(f"must be a map or UNSET, got {describe(unknown)}", path)
    try:
        owned = own_map(cast("Mapping[object, object]", unknown))
    except NotJson as error:
        raise NotJson(str(error), path + error.path) from None
    for key, value in owned.items():
        if is_known_key(type(struct), key):
            raise NotJson("is the key of a known field: set that field instead", f"{path}.{key}")
        built[key] = value
    for name, key in _maps_inside(type(struct)):
        value = getattr(struct, name)
        if isinstance(value, msgspec.Struct):
            _add_unknown(value, built[key], path.removesuffix(UNKNOWN_FIELDS) + name)


@cache
def _maps_inside(cls: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """Return the names and keys of the fields that hold a struct with unknown fields."""
    hints = get_type_hints(cls, include_extras=True)
    return tuple(
        (field.name, field.encode_name)
        for field in msgspec.structs.fields(cls)
        if UNKNOWN_FIELDS in getattr(without_none(hints[field.name]), "__struct_fields__", ())
    )


class _Layout(msgspec.Struct, frozen=True):
    """The rules for writing the map of a struct.

    Attributes:
        order: "deterministic" if the struct can hold sets, because the order of a set differs between processes.
        defaults: The keys and JSON of defaults that must be left out by equality. msgspec leaves out a field only if
            its value is the default object itself. Equal payloads need equal maps, or a store would report a conflict.
        json_texts: The keys of JSON text. Such text is absent if it is only white space.
    """

    order: Literal["deterministic"] | None
    defaults: tuple[tuple[str, bytes], ...]
    json_texts: tuple[str, ...]


@cache
def _layout_of(cls: type[msgspec.Struct]) -> _Layout:
    hints = get_type_hints(cls, include_extras=True)
    fields = msgspec.structs.fields(cls)
    omits_defaults = cls.__struct_config__.omit_defaults
    return _Layout(
        "deterministic" if _holds_sets(cls) else None,
        tuple(
            (field.encode_name, encode_json(field.default))
            for field in fields
            if omits_defaults
            and field.default is not msgspec.NODEFAULT
            and (field.default or isinstance(field.default, float))
        ),
        tuple(field.encode_name for field in fields if hints[field.name] == JsonText),
    )


def _holds_sets(cls: type[msgspec.Struct]) -> bool:
    """Return whether a struct can hold a set at any depth. JSON Schema marks sets as ``uniqueItems``."""
    schema = msgspec.json.schema(cls, schema_hook=lambda _: {"type": "object"})
    return b'"uniqueItems":true' in encode_json(schema)


def read_back(
    struct: _Struct, encode: Callable[[_Struct], bytes], decode: Callable[[bytes], _Struct], name: str
) -> _Struct:
    """Encode ``struct`` to JSON, and return the equal struct that the JSON decodes to.

    The result shares nothing mutable with ``struct``. A value may return in another form, such as a tuple for a list or
    an enum for its text. Every error message begins with ``name``. Raises ``InvalidEvent`` with the field if JSON
    cannot carry its value, or if the decoded value differs.
    """
    try:
        check_struct(struct, "data")
    except NotJson as error:
        raise InvalidEvent(f"{name}: {error.path} {error}", field=error.path) from error
    try:
        owned = decode(encode(struct))
    except InvalidEvent:
        raise
    except Exception as error:
        path, value, reason = _find_cause(struct, error, "data")
        raise InvalidEvent(f"{name}: {path} cannot be stored: {reason}; got {describe(value)}", field=path) from error
    if not _equal(struct, owned):
        _check_forms(struct, owned, "data", name)
    return owned


def _equal(struct: object, owned: object) -> bool:
    try:
        return owned == struct
    except Exception:  # noqa: BLE001  # the comparison of a caller's own class may raise any exception
        return False


def _check_forms(value: object, decoded: object, path: str, name: str) -> None:
    """Check that ``decoded`` differs from ``value`` at most in form: a list for a tuple, an enum for its text.

    Raises ``InvalidEvent`` with the path of any other difference.
    """
    if isinstance(value, enum.Enum) is not isinstance(decoded, enum.Enum):
        value, decoded = _without_enum(value), _without_enum(decoded)
    kind, parts = _parts_of(value)
    decoded_kind, decoded_parts = _parts_of(decoded)
    if kind is not decoded_kind or parts.keys() != decoded_parts.keys():
        same = False
    elif kind is None:
        # Equal numbers of two types are the same value. A boolean and a number differ, and text and a date differ.
        same = isinstance(value, bool) is isinstance(decoded, bool) and _plain(value) == _plain(decoded)
    else:
        same = True
        for key, part in parts.items():
            step = f".{key}" if isinstance(key, str) else f"[{key}]"
            _check_forms(part, decoded_parts[key], path + step, name)
    if not same:
        raise InvalidEvent(
            f"{name}: {path} cannot be stored: {describe(value)} would be read as {describe(decoded)}", field=path
        )


def _parts_of(value: object) -> tuple[object, dict[Any, object]]:
    """Return the kind of a container and its values by field, key or index.

    A scalar has the kind None and no values.
    """
    if isinstance(value, msgspec.Struct):
        return type(value), msgspec.structs.asdict(value)
    if isinstance(value, Mapping):
        return Mapping, {_plain(key): item for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, (list, tuple)):
        return Sequence, dict(enumerate(cast("Sequence[object]", value)))
    return None, {}


def _without_enum(value: object) -> object:
    return cast("object", value.value) if isinstance(value, enum.Enum) else value


def _plain(value: object) -> object:
    """Convert an instance of a subclass of text or number to the plain type, whose ``==`` is reliable."""
    return plain_form(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else value


def _find_cause(struct: msgspec.Struct, error: Exception, path: str) -> tuple[str, object, Exception]:
    """Return the path of the field that cannot be written, its value and its error.

    The error of the encoder does not name the field.
    """
    for field in msgspec.structs.fields(type(struct)):
        value = getattr(struct, field.name)
        field_path = f"{path}.{field.name}"
        try:
            if isinstance(value, str):
                check_text(value, "")
            decoded: object = msgspec.json.decode(encode_json(value), type=field.type)
            _ = decoded == value
        except Exception as reason:  # noqa: BLE001  # see _equal
            if isinstance(value, msgspec.Struct):
                return _find_cause(value, reason, field_path)
            return field_path, value, reason
    return path, struct, error
