"""Type guards for the parts of a message, which may be any JSON; they tell type checkers what the parts hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

MAPS = (dict, Mapping)
"""For ``isinstance``: checking for ``dict`` first is several times faster than checking for ``Mapping`` alone."""


def is_map(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether ``value`` is a map, as messages and blocks are. Its keys are text, as in all JSON."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether ``value`` is a list, as content in parts is."""
    return isinstance(value, list)


def map_in(value: object) -> dict[str, Any]:
    """Return ``value`` if it is a map, and an empty map otherwise."""
    return value if is_map(value) else {}


def list_in(value: object) -> list[Any]:
    """Return ``value`` if it is a list, and an empty list otherwise."""
    return value if is_list(value) else []
