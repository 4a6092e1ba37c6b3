"""What a value of a transcript is, said so that type checkers know what is in it: anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

MAPS = (dict, Mapping)
"""For ``isinstance``: whether a dict is a ``Mapping`` takes several times as long to tell as whether it is a dict."""


def is_map(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether ``value`` is a map, as messages and blocks are. Its keys are text, as in all JSON."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether ``value`` is a list, as content in parts is."""
    return isinstance(value, list)
