"""What of a provider's map differs from its default rendering, kept so that the map can be rendered exactly.

A residual is ``{"fields": {…}, "without": […]}``: values that replace or add to the rendering, and keys to leave out of
it; an empty part is left out. A payload keeps its residual in ``structured`` under the provider's name. Anything may
stand in ``structured``, so what does not have exactly this shape is not ours and is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from agent_memory_log.jsonvalue import JsonValue, encode_canonical, own_json

_FIELDS = "fields"
_WITHOUT = "without"


def same_json(one: object, other: object) -> bool:
    """Whether two checked values are equal JSON: key order does not matter, and 1, 1.0 and true are three values."""
    return one is other or encode_canonical(one) == encode_canonical(other)


def difference(default: Mapping[str, JsonValue], original: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The residual that ``apply`` needs to make ``original`` of ``default``; empty when they are equal."""
    residual: dict[str, JsonValue] = {}
    fields = {key: value for key, value in original.items() if key not in default or not same_json(default[key], value)}
    without = [key for key in default if key not in original]
    if fields:
        residual[_FIELDS] = fields
    if without:
        residual[_WITHOUT] = without
    return residual


def apply(default: dict[str, JsonValue], residual: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """``default`` changed as ``residual`` says, sharing nothing mutable with it."""
    without = residual.get(_WITHOUT)
    fields = residual.get(_FIELDS)
    if isinstance(without, (list, tuple)):
        for key in without:
            default.pop(cast("str", key), None)
    if isinstance(fields, Mapping):
        default.update((key, own_json(value)) for key, value in fields.items())
    return default


def kept_for(provider: str, structured: object, extra: frozenset[str] = frozenset()) -> Mapping[str, JsonValue]:
    """The residual kept under ``provider``, empty if there is none or it is not ours.

    ``extra`` names further parts that a provider's residuals may have; what is in them is for the provider to check.
    """
    if not isinstance(structured, Mapping):
        return {}
    kept = cast("Mapping[str, JsonValue]", structured).get(provider)
    return kept if is_residual(kept, extra) else {}  # type: ignore[return-value]  # what is_residual checks


def is_residual(value: object, extra: frozenset[str] = frozenset()) -> bool:
    """Whether ``value`` has exactly the shape of a residual, ``extra`` parts aside."""
    if not isinstance(value, Mapping):
        return False
    residual = cast("Mapping[str, object]", value)
    without = residual.get(_WITHOUT, ())
    return (
        all(key in (_FIELDS, _WITHOUT) or key in extra for key in residual)
        and isinstance(residual.get(_FIELDS, {}), Mapping)
        and isinstance(without, (list, tuple))
        and all(isinstance(key, str) for key in cast("list[object]", without))
    )
