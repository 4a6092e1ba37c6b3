"""Computes and applies residuals, the differences between a provider's map and the map that a builder would render.

A residual is ``{"fields": {…}, "without": […], "inside": {…}}``. ``fields`` holds values that replace or extend the
rendering. ``without`` lists keys to remove. ``inside`` holds the residuals of nested maps by key. Empty parts are left
out. A payload stores its residual in ``structured`` under the provider's name, so that the map can be rebuilt exactly.
No text is stored twice, and a redaction of the event erases the residual too.
``structured`` may hold any JSON. A value without exactly this shape is not a residual and is ignored.
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


def same_json(value: object, other: object) -> bool:
    """Return whether two checked values are equal JSON. Key order does not matter; 1, 1.0 and true are three values."""
    return value is other or encode_canonical(value) == encode_canonical(other)


def difference(
    default: Mapping[str, JsonValue], original: Mapping[str, JsonValue], *inside: str
) -> dict[str, JsonValue]:
    """Return the residual that ``apply`` needs to turn ``default`` into ``original``; empty when they are equal.

    Args:
        default: The map that is rendered without a residual.
        original: The map that the provider sent or received.
        inside: Keys whose values are compared field by field if both are maps. Other values are compared as a whole.
    """
    residual: dict[str, JsonValue] = {}
    fields: dict[str, JsonValue] = {}
    within: dict[str, JsonValue] = {}
    for key, value in original.items():
        default_value = default.get(key)
        if key in inside and isinstance(default_value, Mapping) and isinstance(value, Mapping):
            part = difference(default_value, value)
            if part:
                within[key] = part
        elif key not in default or not same_json(default_value, value):
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
    """Apply ``residual`` to ``default`` in place and return it. The result shares nothing mutable with ``residual``."""
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
    """Return the residual stored under ``provider``; empty if no valid residual is stored.

    ``extra`` names further parts that the provider's residuals may have. The provider checks the content of these
    parts.
    """
    if not isinstance(structured, Mapping):
        return {}
    residual = cast("Mapping[str, JsonValue]", structured).get(provider)
    return residual if is_residual(residual, extra) else {}  # type: ignore[return-value]  # is_residual checks the type


def is_residual(value: object, extra: frozenset[str] = _NO_EXTRA) -> bool:
    """Return whether ``value`` has exactly the shape of a residual, apart from parts named in ``extra``."""
    if not isinstance(value, Mapping):
        return False
    for key, part in cast("Mapping[str, object]", value).items():
        if key == _FIELDS:
            fits = isinstance(part, Mapping)
        elif key == _WITHOUT:
            fits = isinstance(part, (list, tuple)) and all(isinstance(name, str) for name in cast("list[object]", part))
        elif key == _INSIDE:
            fits = isinstance(part, Mapping) and all(map(is_residual, cast("Mapping[str, object]", part).values()))
        else:
            fits = key in extra
        if not fits:
            return False
    return True


def structured_of(provider: str, residual: Mapping[str, JsonValue]) -> JsonValue:
    """Return the ``structured`` value that stores ``residual``; None when the residual is empty."""
    return {provider: residual} if residual else None
