"""Tells which names mean the same person or thing.

Two names are aliases if only case, accents, white space, full stops or a title before a full name differ: ``Dr. Ana
Ruiz`` and ``ana ruíz``. ``Ana`` alone may be another person, so it is another name. ``Mrs. Ruiz`` and ``Mr. Ruiz`` are
two names too.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from agent_memory_log.memory.entities.languages import titles

_FULL_NAME: Final = 2
"""The fewest words of a name that stays the same name without its title."""

_LONGEST_CACHED: Final = 256
"""The most characters of a name in the cache, so that the cache stays small. Names of people and things are shorter."""


def alias_key(name: str) -> str:
    """Return the form of a name that all of its aliases have. It is not for display."""
    return _cached_key(name) if len(name) <= _LONGEST_CACHED else _key(name)


def _key(name: str) -> str:
    folded = _folded(name)
    words = [bare for word in folded.split() if (bare := word.rstrip(".,"))]
    last = max(0, len(words) - _FULL_NAME)  # the titles end before the full name
    begin = next((place for place in range(last) if len(words[place]) == 1 or words[place] not in titles()), last)
    return " ".join(words[begin:]) or folded.strip()


_cached_key = lru_cache(maxsize=16_384)(_key)


def unique_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return one name for each group of aliases: the longest, at the place of the first."""
    longest: dict[str, str] = {}
    for name in names:
        key = alias_key(name)
        if len(name) > len(longest.get(key, "")):
            longest[key] = name
    return tuple(longest.values())


def _folded(name: str) -> str:
    if name.isascii():
        return name.casefold()
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", name).casefold())
    return "".join(character for character in decomposed if unicodedata.category(character) != "Mn")
