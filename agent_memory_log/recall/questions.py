"""What a text asks: whether it is a question, whether it asks for a time, and the words it is looked up by."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from agent_memory_log.tables import read_table


class Question(msgspec.Struct, frozen=True):
    """A query as it is looked up.

    ``words`` are its words and dates, each with the terms it may stand as in the index: one for each language that
    the index holds. ``spans`` are the times it names, in seconds; ``when`` says that it asks for one, ``compounds``
    that its language writes compounds as one word.
    """

    words: tuple[tuple[str, tuple[str, ...]], ...]
    spans: tuple[tuple[float, float], ...]
    when: bool
    compounds: bool


_LAST_CHARACTERS: Final = re.compile(r"？|؟|か[。\s]*$|[吗嗎呢][。\s]*$")  # noqa: RUF001  # the marks of other scripts are meant

_TABLE: Final = read_table(__name__, "questions")
_FIRST_WORDS: Final = frozenset(_TABLE["first_words"].split())
_WHEN: Final = frozenset(_TABLE["when"].split())
_AND: Final = frozenset(_TABLE["and"].split())
_TIMES_ASKED: Final = re.compile("|".join(_TABLE["times_asked"]))

_EARLY: Final = 3
"""Words of a question among which one for "when" asks: when was it, and until when was it?"""


def is_question(folded: str, found: Sequence[str]) -> bool:
    """Whether a text asks something; ``found`` are its words."""
    return (
        "?" in folded
        or (bool(found) and found[0] in _FIRST_WORDS)
        or (not folded.isascii() and bool(_LAST_CHARACTERS.search(folded)))
    )


def asks_when(folded: str, found: Sequence[str]) -> bool:
    """Whether a question asks for a time."""
    # Further on it is a conjunction: what did she say when the boat came?
    first = any(word in _WHEN and (at < _EARLY or found[at - 1] in _AND) for at, word in enumerate(found))
    return first or bool(_TIMES_ASKED.search(folded))
