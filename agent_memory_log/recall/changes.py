"""Recognises texts that may change what an earlier text says, and questions about what holds now.

A user who says "we are on pitch 31" after "I booked pitch 18" need not repeat the words of a question about the pitch.
So the index keeps for each text whether it has words of a change, and which kinds of values it has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from agent_memory_log.recall.dates import DATED
from agent_memory_log.tables import read_table

CHANGE: Final = 1
DATE: Final = 2
CLOCK: Final = 4
NUMBER: Final = 8
NAME: Final = 16
"""The bits of ``signs_of``: words of a change, and the kinds of values."""

_TABLE: Final = read_table(__name__, "changes")
_CHANGED: Final = re.compile("|".join(_TABLE["changed"]))
_PAST: Final = frozenset(_TABLE["past"].split())
_ASKED: Final = {
    CLOCK: re.compile("|".join(_TABLE["asked"]["clock"])),
    NUMBER: re.compile("|".join(_TABLE["asked"]["number"])),
}
_VALUES: Final = {
    kind: frozenset(_TABLE["values"][name].split())
    for kind, name in ((DATE, "date"), (CLOCK, "clock"), (NUMBER, "number"))
}
_CLOCK: Final = re.compile(
    r"\b[0-9]{1,2}(?:[:.][0-5][0-9]\b| ?(?:am|pm|uhr|h)\b|h[0-5][0-9]\b| o.clock)|\bat [0-9]{1,2}\b"
)
_DAY: Final = re.compile(r"\b(?:[12]?[0-9]|3[01])(?:st|nd|rd|th)\b")
_DIGIT: Final = re.compile(r"[0-9]")
_NAME: Final = re.compile(r"(?<![.!?:] )(?<!^)\b[A-Z][a-zà-ÿ]+")


def signs_of(text: str, folded: str, text_words: Sequence[str], terms: Iterable[str]) -> int:
    """Return the signs of a text as bits: ``CHANGE``, and the kinds of values that it has.

    Args:
        text: The text.
        folded: The text, folded by ``fold``.
        text_words: The words of the folded text.
        terms: The terms of its words and dates.
    """
    kinds = sum(kind for kind, value_words in _VALUES.items() if not value_words.isdisjoint(text_words))
    if any(term[0] == DATED for term in terms):
        kinds |= DATE
    if _DIGIT.search(folded):
        kinds |= NUMBER | CLOCK * bool(_CLOCK.search(folded)) | DATE * bool(_DAY.search(folded))
    return kinds | CHANGE * bool(_CHANGED.search(folded)) | NAME * bool(_NAME.search(text))


def kinds_asked(folded: str, *, asks_for_time: bool) -> int:
    """Return the kinds of values that a question asks for, as bits. 0 means any kind."""
    kinds = next((kind for kind, pattern in _ASKED.items() if pattern.search(folded)), 0)
    return kinds or (DATE | CLOCK if asks_for_time else 0)


def asks_for_now(text_words: Sequence[str]) -> bool:
    """Return whether a question asks about what holds now, and not about the past."""
    return _PAST.isdisjoint(text_words)
