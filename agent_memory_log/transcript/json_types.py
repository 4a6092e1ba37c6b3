"""Type guards for parts of messages, which may be any JSON. They let type checkers narrow the type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

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
