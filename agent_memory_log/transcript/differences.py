"""What of a provider's map differs from its default rendering, kept so that the map can be rendered exactly.

A residual is ``{"fields": {…}, "without": […], "inside": {…}}``: values that replace or add to the rendering, keys to
leave out of it, and residuals of maps inside it, by key; an empty part is left out. A payload keeps its residual in
``structured`` under the provider's name. Anything may stand in ``structured``, so what does not have exactly this shape
is not ours and is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from agent_memory_log.events.jsonvalue import JsonValue, encode_canonical, own_json
from agent_memory_log.transcript.json_types import is_map

_FIELDS = "fields"
_WITHOUT = "without"
_INSIDE = "inside"
_NO_EXTRA: frozenset[str] = frozenset()


def same_json(one: object, other: object) -> bool:
    """Whether two checked values are equal JSON: key order does not matter, and 1, 1.0 and true are three values."""
    return one is other or encode_canonical(one) == encode_canonical(other)


def difference(
    default: Mapping[str, JsonValue], original: Mapping[str, JsonValue], *inside: str
) -> dict[str, JsonValue]:
    """The residual that ``apply`` needs to make ``original`` of ``default``; empty when they are equal.

    Of the keys named in ``inside`` only what differs within is kept, where both values are maps.
    """
    residual: dict[str, JsonValue] = {}
    fields: dict[str, JsonValue] = {}
    within: dict[str, JsonValue] = {}
    for key, value in original.items():
        known = default.get(key)
        if key in inside and isinstance(known, Mapping) and isinstance(value, Mapping):
            part = difference(known, value)
            if part:
                within[key] = part
        elif key not in default or not same_json(known, value):
            fields[key] = value
    without = [key for key in default if key not in original]
    if fields:
        residual[_FIELDS] = fields
    if without:
        residual[_WITHOUT] = without
    if within:
        residual[_INSIDE] = within
    return residual


def apply(default: dict[str, JsonValue], residual: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """``default`` changed as ``residual`` says, sharing nothing mutable with it."""
    if not residual:
        return default
    without = residual.get(_WITHOUT)
    fields = residual.get(_FIELDS)
    within = residual.get(_INSIDE)
    if isinstance(without, (list, tuple)):
        for key in without:
            default.pop(cast("str", key), None)
    if isinstance(fields, Mapping):
        default.update((key, own_json(value)) for key, value in fields.items())
    if isinstance(within, Mapping):
        for key, part in within.items():
            inner = default.get(key)
            if is_map(inner):
                apply(inner, cast("Mapping[str, JsonValue]", part))
    return default


def residual_of_provider(
    provider: str, structured: object, extra: frozenset[str] = _NO_EXTRA
) -> Mapping[str, JsonValue]:
    """The residual kept under ``provider``, empty if there is none or it is not ours.

    ``extra`` names further parts that a provider's residuals may have; what is in them is for the provider to check.
    """
    if not isinstance(structured, Mapping):
        return {}
    structured_of = cast("Mapping[str, JsonValue]", structured).get(provider)
    return structured_of if is_residual(structured_of, extra) else {}  # type: ignore[return-value]  # what is_residual checks


def is_residual(value: object, extra: frozenset[str] = _NO_EXTRA) -> bool:
    """Whether ``value`` has exactly the shape of a residual, ``extra`` parts aside."""
    if not isinstance(value, Mapping):
        return False
    residual = cast("Mapping[str, object]", value)
    without = residual.get(_WITHOUT, ())
    within = residual.get(_INSIDE, {})
    return (
        all(key in (_FIELDS, _WITHOUT, _INSIDE) or key in extra for key in residual)
        and isinstance(residual.get(_FIELDS, {}), Mapping)
        and isinstance(without, (list, tuple))
        and all(isinstance(key, str) for key in cast("list[object]", without))
        and isinstance(within, Mapping)
        and all(is_residual(part) for part in cast("Mapping[str, object]", within).values())
    )


def structured_of(provider: str, residual: Mapping[str, JsonValue]) -> JsonValue:
    """What a payload keeps of ``residual`` in ``structured``: nothing when it is empty."""
    return {provider: residual} if residual else None
