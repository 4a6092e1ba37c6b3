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


@lru_cache(maxsize=16_384)
def alias_key(name: str) -> str:
    """Return the form of a name that all of its aliases have. It is not for display."""
    folded = _folded(name)
    words = [bare for word in folded.split() if (bare := word.rstrip(".,"))]
    while len(words) > _FULL_NAME and len(words[0]) > 1 and words[0] in titles():
        del words[0]
    return " ".join(words) or folded.strip()


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
