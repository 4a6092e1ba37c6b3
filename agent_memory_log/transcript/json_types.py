"""Type guards for parts of messages, which may be any JSON. They let type checkers narrow the type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard, cast

from agent_memory_log.errors import DecodeError
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue, NotJson, own_json

MAPS = (dict, Mapping)
"""For ``isinstance``: checking for ``dict`` first is several times faster than checking for ``Mapping`` alone."""


def is_map(value: object) -> TypeGuard[dict[str, Any]]:
    """Return whether ``value`` is a dict. Its keys are text, as in all JSON."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Return whether ``value`` is a list."""
    return isinstance(value, list)


def map_in(value: object) -> dict[str, Any]:
    """Return ``value`` if it is a map, and an empty map otherwise."""
    return value if is_map(value) else {}


def list_in(value: object) -> list[Any]:
    """Return ``value`` if it is a list, and an empty list otherwise."""
    return value if is_list(value) else []


def own_map(value: object, path: str) -> dict[str, JsonValue]:
    """Return a copy of a map. Raise ``DecodeError`` with its path if it is not a map or not JSON."""
    if not isinstance(value, Mapping):
        raise DecodeError(f"{path} must be a map, got {describe(value)}")
    try:
        return cast("dict[str, JsonValue]", own_json(cast("object", value)))
    except NotJson as error:
        raise DecodeError(f"{path}{error.path} {error}") from error
