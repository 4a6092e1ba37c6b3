"""What only English needs: its function words, its irregular forms, its numbers in words (``data/english.toml``)."""

from __future__ import annotations

from typing import Final

from agent_memory_log.tables import read_table

_TABLE: Final = read_table(__name__, "english")


def _rows(name: str) -> list[list[str]]:
    return [row.split() for row in _TABLE[name].split(",")]


STOP_WORDS: Final = frozenset(_TABLE["function_words"].split())
"""Words that say how a sentence is built and not what it is about; contractions are cut at apostrophes."""

IRREGULAR: Final = (
    {form: row[0] for row in _rows("forms") for form in row[1:]}
    | {form + plural: row[0] for row in _rows("nouns") for form in row[1:] for plural in ("", "s")}
    | {row[0]: row[1] for row in _rows("numbers")}
)
"""Word form -> base form, and number word -> digits; what is not in it is left to the stemmer."""
