"""Recognises questions and questions about a time, and defines the form in which the index looks up a query."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from agent_memory_log.tables import read_table, with_parts

USER: Final = "user"
ASSISTANT: Final = "assistant"
"""The names of the speakers in a conversation between a user and an assistant."""


class Question(msgspec.Struct, frozen=True):
    """A query in the form in which the index looks it up.

    Attributes:
        words: The words and dates of the query. Each has its possible terms in the index: at most one for each
            language of the index.
        spans: The times that the query names, as start and end in seconds since 1970. The end is exclusive.
        asks_for_time: True if the query asks for a time.
        compounds: True if the query's language writes compounds as one word.
        role: ``user`` if the query asks about the user ("what did I tell you?"), ``assistant`` if it asks about the
            assistant ("what did you suggest?"), or ``""``.
        now: True if the query asks about what holds now, and not about the past.
        kinds: The kinds of values that the query asks for, as bits of ``signs_of``. 0 means any kind.
        wants: The wishes of the query: see ``wants``.
    """

    words: tuple[tuple[str, tuple[str, ...]], ...]
    spans: tuple[tuple[float, float], ...]
    asks_for_time: bool
    compounds: bool
    role: str = ""
    now: bool = False
    kinds: int = 0
    wants: frozenset[str] = frozenset()


_LAST_CHARACTERS: Final = re.compile(r"？|؟|か[。\s]*$|[吗嗎呢][。\s]*$")  # noqa: RUF001  # question marks and endings of other scripts

_TABLE: Final = read_table(__name__, "questions")
_FIRST_WORDS: Final = frozenset(_TABLE["first_words"].split())
_WHEN: Final = frozenset(_TABLE["when"].split())
_AND: Final = frozenset(_TABLE["and"].split())
_TIMES_ASKED: Final = re.compile("|".join(_TABLE["times_asked"]))

_FIRST_PERSON: Final = frozenset(_TABLE["first_person"].split())
_SECOND_PERSON: Final = frozenset(_TABLE["second_person"].split())
_REQUESTS: Final = frozenset(_TABLE["requests"].split())

LATEST: Final = "latest"
FIRST: Final = "first"
EVERY: Final = "every"
CAUSE: Final = "cause"
"""The wishes of questions: the latest of the matching texts, the first, every one, or a cause."""

_WANTED: Final = {
    name: re.compile("|".join(with_parts(pattern, _TABLE["wanted_parts"]) for pattern in patterns))
    for name, patterns in _TABLE["wanted"].items()
}

_KINDS: Final = {name: re.compile(pattern) for name, pattern in _TABLE["kinds"].items()}

_EARLY: Final = 3
"""The number of first words of a question in which "when" asks for a time, as in "until when was it?"."""


def is_question(folded: str, text_words: Sequence[str]) -> bool:
    """Return whether a text is a question. ``text_words`` are the words of the folded text."""
    return (
        "?" in folded
        or (bool(text_words) and text_words[0] in _FIRST_WORDS)
        or (not folded.isascii() and bool(_LAST_CHARACTERS.search(folded)))
    )


def asks_for_time(folded: str, text_words: Sequence[str]) -> bool:
    """Return whether a question asks for a time."""
    # Later in a question, "when" is a conjunction, as in "who spoke when the boat came?".
    first = any(word in _WHEN and (at < _EARLY or text_words[at - 1] in _AND) for at, word in enumerate(text_words))
    return first or bool(_TIMES_ASKED.search(folded))


def wants(folded: str) -> frozenset[str]:
    """Return the wishes of a question: ``LATEST``, ``FIRST``, ``EVERY`` and ``CAUSE``. Most questions have no wish."""
    return frozenset(name for name, pattern in _WANTED.items() if pattern.search(folded))


def kinds_named(folded: str) -> tuple[str, ...]:
    """Return the kinds of records that a question names, such as ``preference``."""
    return tuple(name for name, pattern in _KINDS.items() if pattern.search(folded))


def role_asked_about(text_words: Sequence[str]) -> str:
    """Return the role that a question asks about: the person of its first pronoun, without "can you" and the like."""
    for at, word in enumerate(text_words):
        if word in _FIRST_PERSON:
            return USER
        if word in _SECOND_PERSON and not (at and text_words[at - 1] in _REQUESTS):
            return ASSISTANT
    return ""
