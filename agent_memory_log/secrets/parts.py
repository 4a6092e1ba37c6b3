"""Loads data that the rules share: parts of patterns (``data/parts.toml``) and words (``data/words.toml``)."""

from __future__ import annotations

import re
from functools import cache

from agent_memory_log.tables import read_table, with_parts


@cache
def words() -> dict[str, frozenset[str]]:
    """Return the words of each table of ``words.toml``."""
    return {
        table: frozenset(" ".join(groups.values()).split()) for table, groups in read_table(__name__, "words").items()
    }


def compiled(pattern: str) -> re.Pattern[str]:
    """Return the compiled ``pattern`` with its ``{parts}`` filled in."""
    return re.compile(with_parts(pattern, _parts()))


@cache
def _parts() -> dict[str, str | list[str]]:
    parts: dict[str, str | list[str]] = read_table(__name__, "parts")["parts"]
    return parts
