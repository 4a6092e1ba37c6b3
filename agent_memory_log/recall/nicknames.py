"""Finds the names that a first name may stand for: Liz for Elizabeth, and Elizabeth for Liz."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from agent_memory_log.tables import read_table

_ROWS: Final = [row.split() for row in read_table(__name__, "nicknames")["names"].split(",")]


def names_like(word: str) -> Sequence[str]:
    """Return the full names of a short form, or the short forms of a full name. ``word`` is folded."""
    return _names().get(word, ())


@cache
def _names() -> Mapping[str, Sequence[str]]:
    names: dict[str, list[str]] = {}
    for full, *short_forms in _ROWS:
        for short in short_forms:
            names.setdefault(short, []).append(full)
            names.setdefault(full, []).append(short)
    return names
