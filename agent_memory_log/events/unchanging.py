"""Which values of a payload's fields need not be read back when they are written.

They are immutable, through and through, and what their JSON decodes to is equal to them, whatever they are: so a look
at them takes the place of the read. What is not known to be so gets no look, and is read back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import astuple

from agent_memory_log.events.fields import Int64, JsonText, is_nullable, without_none

Look = Callable[[Any], bool]
"""Whether a value of one of the types it is for is immutable and reads back as itself."""

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


class Field(msgspec.Struct, frozen=True):
    """What is known of a field: the ``types`` whose values may pass, and the ``look`` at them (None: all pass)."""

    types: frozenset[type] = frozenset()
    look: Look | None = None


def field_of(hint: object, within: tuple[type, ...] = ()) -> Field:
    """What is known of a field with this annotation. ``within``: the structs that it stands in, outermost first."""
    for known, field in _KNOWN:
        if hint == known:
            return field
    if is_nullable(hint):
        inner = without_none(hint)
        return _nullable(field_of(inner, within)) if inner is not hint else Field()
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _struct(hint, within)
    arguments = get_args(hint)
    if get_origin(hint) is tuple and arguments[1:] == (...,):
        return _several(field_of(arguments[0], within))
    return Field()


def is_flat_text(value: Mapping[object, object]) -> bool:
    """Whether a map holds text under text, and nothing else."""
    for key, item in value.items():  # noqa: SIM110  # faster than all(), and each map passes here
        if type(key) is not str or type(item) is not str:
            return False
    return True


def _nullable(field: Field) -> Field:
    look = field.look
    return Field(field.types | {type(None)}, None if look is None else lambda value: value is None or look(value))


def _struct(kind: type[msgspec.Struct], within: tuple[type, ...]) -> Field:
    if kind in within or not kind.__struct_config__.frozen:
        return Field()
    hints = get_type_hints(kind, include_extras=True)
    inner = [(one.name, field_of(hints[one.name], (*within, kind))) for one in msgspec.structs.fields(kind)]
    allowed = tuple(field.types for _, field in inner)
    looks = tuple((place, field.look) for place, (_, field) in enumerate(inner) if field.look is not None)
    seen: set[tuple[type, ...]] = set()

    def look(value: msgspec.Struct) -> bool:
        values = astuple(value)
        shape = tuple(map(type, values))
        if shape not in seen:
            if not all(one in types for one, types in zip(shape, allowed, strict=True)):
                return False
            seen.add(shape)
        for place, inspect in looks:  # noqa: SIM110  # faster than all(), and each nested struct passes here
            if not inspect(values[place]):
                return False
        return True

    return Field(frozenset({kind}), look) if all(allowed) else Field()


def _several(item: Field) -> Field:
    types, look = item.types, item.look

    def look_at_each(values: tuple[object, ...]) -> bool:
        for value in values:  # noqa: SIM110  # as above
            if type(value) not in types or (look is not None and not look(value)):
                return False
        return True

    return Field(frozenset({tuple}), look_at_each) if types else Field()


def _is_int64(value: int) -> bool:
    return _INT64_MIN <= value <= _INT64_MAX


def _is_utc(value: datetime) -> bool:
    return value.tzinfo is UTC


# In pairs, because an annotation need not be hashable.
_KNOWN: tuple[tuple[object, Field], ...] = (
    (str, Field(frozenset({str}))),
    (JsonText, Field(frozenset({str}))),
    (int, Field(frozenset({int}), _is_int64)),
    (Int64, Field(frozenset({int}), _is_int64)),
    (bool, Field(frozenset({bool}))),
    (float, Field(frozenset({float}), isfinite)),
    (bytes, Field(frozenset({bytes}))),
    (datetime, Field(frozenset({datetime}), _is_utc)),
    (Any, Field(frozenset({str, bool, type(None)}))),
)
