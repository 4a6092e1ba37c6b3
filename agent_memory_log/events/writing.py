"""Writing a payload: the checks that its values pass first, the map it becomes, and the copy that a store keeps.

msgspec writes some values, without a word, as something else: NaN would become null, the key 1 ``"1"``, a set an array.
Free-form values (``structured``, ``extra``, …) must be JSON; a registered payload's other fields anything that msgspec
turns into JSON. Text, integers and bytes need no look here: the encoder and the decoder check those.
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
from agent_memory_log.events.fields import Int64, JsonText, describe, is_absent_text, without_none
from agent_memory_log.events.jsonvalue import (
    MAX_DEPTH,
    JsonValue,
    NotJson,
    check_text,
    encode_json,
    own_json,
    plain_form,
)

_Struct = TypeVar("_Struct", bound=msgspec.Struct)
_Check = Callable[[Any, str, int], None]

_FREE_FORM: tuple[object, ...] = (Any, Mapping[str, Any], dict[str, Any])
_EMPTY: tuple[object, ...] = ()
_CHECKED_BY_MSGSPEC: tuple[object, ...] = (str, int, bool, bytes, datetime, Int64, JsonText)


def check_struct(struct: msgspec.Struct, where: str, depth: int = 1) -> None:
    """Check the fields of ``struct``, which stands at ``where`` and whose maps and lists are at level ``depth``.

    Raises ``NotJson``, whose path begins with ``where``.
    """
    for name, check in checks_of(type(struct)):
        value = getattr(struct, name)
        if value is not None and value is not _EMPTY:
            check(value, f"{where}.{name}", depth)


@cache
def checks_of(cls: type[msgspec.Struct]) -> tuple[tuple[str, _Check], ...]:
    """The fields of a struct that need a look, with the check of each; None needs none."""
    hints = get_type_hints(cls, include_extras=True)
    return tuple(
        (field.name, check)
        for field in msgspec.structs.fields(cls)
        if (check := _check_for(without_none(hints[field.name]))) is not None
    )


def _check_for(hint: object) -> _Check | None:
    if hint in _CHECKED_BY_MSGSPEC:
        return None
    if hint in _FREE_FORM:
        return _check_json
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _check_inner
    arguments = get_args(hint)
    if get_origin(hint) is tuple and arguments[1:] == (...,):
        check_item = _check_for(arguments[0])
        return None if check_item is None else partial(_check_items, check_item)
    return _check_typed


def _check_items(check_item: _Check, value: object, where: str, depth: int) -> None:
    if isinstance(value, (list, tuple)):  # as below
        for index, item in enumerate(cast("Sequence[object]", value)):
            check_item(item, f"{where}[{index}]", depth + 1)


def _check_json(value: object, where: str, depth: int) -> None:
    try:
        own_json(value, depth)
    except NotJson as error:
        raise NotJson(str(error), where + error.path) from None


def _check_inner(value: object, where: str, depth: int) -> None:
    if isinstance(value, msgspec.Struct):  # anything else is refused when it is read back
        if depth > MAX_DEPTH:
            raise NotJson(f"nests deeper than {MAX_DEPTH} levels", where)
        check_struct(value, where, depth + 1)


def _check_typed(value: object, where: str, depth: int) -> None:
    if type(value) is float and isfinite(value):
        return  # the commonest, and nothing to look at
    try:
        plain: object = msgspec.to_builtins(value, str_keys=True, enc_hook=plain_form)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJson(f"cannot be written: {error}", where) from error
    _check_json(plain, where, depth)


def struct_to_map(struct: msgspec.Struct, name: str) -> dict[str, JsonValue]:
    """The map that ``struct`` is stored as; ``name`` begins every error message.

    Raises ``InvalidEvent`` naming the field.
    """
    owned: dict[str, JsonValue] = {}
    key = ""
    layout = _layout_of(type(struct))
    try:
        check_struct(struct, "data")
        built: dict[str, object] = msgspec.to_builtins(struct, str_keys=True, enc_hook=plain_form, order=layout.order)
        for key, value in built.items():
            owned[key] = own_json(value)
    except NotJson as error:
        names = {field.encode_name: field.name for field in msgspec.structs.fields(struct)}
        place = error.path if error.path.startswith("data") else f"data.{names.get(key, key)}{error.path}"
        raise InvalidEvent(f"{name}: {place} {error}", field=place) from error
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


class _Layout(msgspec.Struct, frozen=True):
    """How a struct's map is written.

    - ``order``: sorted where a registered payload holds sets: those come in another order in every process.
    - ``defaults``: the defaults, as JSON, that equal objects need not be identical to: msgspec leaves out a field by
      identity alone. Equal payloads have equal maps, or a store would take one for another body of the same event.
    - ``json_texts``: the keys of JSON text, which is absent where it is white space alone.
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
    """Whether a set may stand anywhere in a struct: JSON Schema has a word for it."""
    schema = msgspec.json.schema(cls, schema_hook=lambda _: {})
    return b'"uniqueItems":true' in encode_json(schema)


def read_back(struct: _Struct, decode: Callable[[bytes], _Struct], name: str) -> _Struct:
    """What the JSON of ``struct`` decodes to: an equal struct that shares nothing mutable with it.

    A value may come back in another form (a tuple for a list, an enum for its text). ``name`` begins every error
    message. Raises ``InvalidEvent`` naming the field that JSON cannot carry, or that would come back as another value.
    """
    try:
        check_struct(struct, "data")
    except NotJson as error:
        raise InvalidEvent(f"{name}: {error.path} {error}", field=error.path) from error
    try:
        owned = decode(encode_json(struct))
    except Exception as error:
        place, value, reason = _blame(struct, error, "data")
        raise InvalidEvent(
            f"{name}: {place} cannot be stored: {reason}; found {describe(value)}", field=place
        ) from error
    if not _equal(struct, owned):
        _check_forms(struct, owned, "data", name)
    return owned


def _equal(struct: object, owned: object) -> bool:
    try:
        return owned == struct
    except Exception:  # noqa: BLE001  # a value of a caller's own class may raise anything when it is compared
        return False


def _check_forms(value: object, back: object, place: str, name: str) -> None:
    """Accept what differs only in form (a list for a tuple, an enum for its text); refuse anything else, naming it."""
    if isinstance(value, enum.Enum) is not isinstance(back, enum.Enum):
        value, back = _without_enum(value), _without_enum(back)
    kind, parts = _parts_of(value)
    back_kind, back_parts = _parts_of(back)
    if kind is not back_kind or parts.keys() != back_parts.keys():
        same = False
    elif kind is None:
        # Numbers may stand for each other where they are equal; a boolean and a number may not, nor text and a date.
        same = isinstance(value, bool) is isinstance(back, bool) and _plain(value) == _plain(back)
    else:
        same = True
        for key, part in parts.items():
            inner = f".{key}" if isinstance(key, str) else f"[{key}]"
            _check_forms(part, back_parts[key], place + inner, name)
    if not same:
        raise InvalidEvent(
            f"{name}: {place} cannot be stored: {describe(value)} would come back as {describe(back)}", field=place
        )


def _parts_of(value: object) -> tuple[object, dict[Any, object]]:
    """What kind of container ``value`` is (None: none), and what is inside it, by field, key or index."""
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
    """A subclass of text or of a number as that itself, because its ``==`` may be another."""
    return plain_form(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else value


def _blame(struct: msgspec.Struct, error: Exception, where: str) -> tuple[str, object, Exception]:
    """The field that could not be written, its value, and why; the encoder itself only says why."""
    for field in msgspec.structs.fields(type(struct)):
        value = getattr(struct, field.name)
        place = f"{where}.{field.name}"
        try:
            if isinstance(value, str):
                check_text(value, "")
            read: object = msgspec.json.decode(encode_json(value), type=field.type)
            _ = read == value
        except Exception as reason:  # noqa: BLE001  # see _equal
            return _blame(value, reason, place) if isinstance(value, msgspec.Struct) else (place, value, reason)
    return where, struct, error
