"""The phrases by which users state things, in a few languages: ``data/phrases.toml``, read for ``statements``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from agent_memory_log.tables import read_table, with_parts

Topic = Literal["prefers", "habit", "instead", "called", "language", "name", "user_id", "email", "home"]
"""What a phrase is about."""

_TABLE = read_table(__name__, "phrases")

LANGUAGES = {name: language for language, names in _TABLE["languages"].items() for name in names.split()}
"""What languages are called, and the one name each is remembered by."""

WORDS = {name: frozenset(words.split()) for name, words in _TABLE["words"].items()}
"""Words that are no part of what is stated: ``not_a_name``, ``fillers``, ``phrase_ends``."""


class Caseless:
    """A pattern that stands in any case, looked for in a third of the time where the text is ASCII, as most are.

    Its source has no capital letters: an ASCII text in lower case is searched as it is, at the same places.
    """

    __slots__ = ("_any", "_lower")

    def __init__(self, source: str) -> None:
        self._lower = re.compile(source)
        self._any = re.compile(source, re.IGNORECASE)

    def search(self, text: str) -> re.Match[str] | None:
        """The first place where it stands."""
        return self._lower.search(text.lower()) if text.isascii() else self._any.search(text)

    def finditer(self, text: str, start: int) -> Iterator[re.Match[str]]:
        """All places from ``start`` on."""
        return self._lower.finditer(text.lower(), start) if text.isascii() else self._any.finditer(text, start)


class Phrases(msgspec.Struct, frozen=True):
    """One language's.

    - ``hints``: lower-case text of which some must be there, or none of the patterns can match.
    - ``patterns``: what is stated, and how, at the beginning of a clause; ``openers``: what may stand before it.
    - ``joint``: what begins another clause.
    - ``unreal``: makes a whole sentence something that is not the case. ``reported``: before a phrase, says that it is
      somebody else's.
    - ``end``: where a value ends. ``passing``: in a value, ties it to this conversation.
    """

    hints: tuple[str, ...]
    openers: re.Pattern[str]
    joint: Caseless
    unreal: Caseless
    reported: Caseless
    end: Caseless
    passing: Caseless
    patterns: tuple[tuple[Topic, re.Pattern[str]], ...]

    def may_stand_in(self, plain: str) -> bool:
        """Whether one of the patterns could match in a text that ``plain_form`` made: cheap, as most states nothing."""
        for hint in self.hints:  # noqa: SIM110  # twice as fast as any(), and each user message passes here
            if hint in plain:
                return True
        return False


def plain_form(text: str) -> str:
    """A text in lower case, with single blanks."""
    return " ".join(text.lower().split())


def _words(text: str) -> Caseless:
    return Caseless(rf"\b(?:{'|'.join(text.split())})\b".replace("_", r"\s"))


def _openers(text: str) -> re.Pattern[str]:
    longest_first = "|".join(sorted(text.split(), key=len, reverse=True))
    return re.compile(rf"(?:(?:{longest_first})\b[,:.!]?\s+){{0,4}}".replace("_", r"\s"), re.IGNORECASE)


def _joint(text: str) -> Caseless:
    return Caseless(rf"[,;\u2013\u2014(]\s+|\s-\s|\b(?:{'|'.join(text.split())})\s+")


def _pattern(text: str) -> re.Pattern[str]:
    """Blanks stand for white space; that a value is capitalised is asked for where it is read, not here."""
    return re.compile(with_parts(text, _TABLE["parts"]).replace(" ", r"\s+"), re.IGNORECASE)


def _phrases(table: dict[str, Any]) -> Phrases:
    return Phrases(
        hints=tuple(table["hints"]),
        openers=_openers(table["openers"]),
        joint=_joint(table["joint"]),
        unreal=_words(table["unreal"]),
        reported=_words(table["reported"]),
        end=Caseless("|".join(table["end"])),
        passing=Caseless("|".join(table["passing"])),
        patterns=tuple((topic, _pattern(pattern)) for topic, pattern in table["patterns"]),
    )


ALL = tuple(map(_phrases, _TABLE["phrases"].values()))
