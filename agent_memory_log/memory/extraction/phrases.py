"""Loads ``data/phrases.toml``, the phrases with which users state preferences and facts. ``statements`` uses them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from agent_memory_log.tables import read_table, with_parts

Topic = str
"""The topic of a phrase, such as ``prefers`` or ``habit``, or a kind and a key such as ``fact:diet``.

``data/phrases.toml`` describes the forms of a key.
"""

_TABLE = read_table(__name__, "phrases")

LANGUAGES = {name: language for language, names in _TABLE["languages"].items() for name in names.split()}
"""The names of languages, mapped to the one name that is stored."""

WORDS = {name: frozenset(words.split()) for name, words in _TABLE["words"].items()}
"""Words that are not part of a statement: ``not_a_name``, ``fillers``, ``phrase_ends``."""

_SPELLINGS: dict[str, str] = _TABLE["spellings"]
_SPELLED = re.compile(r"\[[^\]]*\]|[" + "".join(_SPELLINGS) + "]")  # a letter, but not in a set of characters


class Caseless:
    """A case-insensitive pattern. On ASCII text, it is three times as fast as ``re.IGNORECASE``.

    Most texts are ASCII. The pattern has no capital letters, so it can search the lower-case copy of an ASCII text. The
    copy has the same positions.
    """

    __slots__ = ("_any", "_lower")

    def __init__(self, source: str) -> None:
        self._lower = re.compile(source)
        self._any = re.compile(source, re.IGNORECASE)

    def search(self, text: str) -> re.Match[str] | None:
        """Return the first match."""
        return self._lower.search(text.lower()) if text.isascii() else self._any.search(text)

    def finditer(self, text: str, start: int) -> Iterator[re.Match[str]]:
        """Return all matches from ``start``."""
        return self._lower.finditer(text.lower(), start) if text.isascii() else self._any.finditer(text, start)


class Phrases(msgspec.Struct, frozen=True):
    """The phrases of one language.

    Attributes:
        hints: Lower-case texts. If a message has none of them, no pattern can match.
        openers: Words that may come before a pattern.
        joint: The beginning of a new clause.
        unreal: Words that make what follows them hypothetical.
        once: Words that make the sentence true only once, or a joke.
        withdrawn: Words that take back the whole message, or ask not to store it.
        asks: The beginning of a question after a statement in the same sentence.
        contrast: Words between a preferred thing and the other one.
        head_first: Whether the noun comes before its adjectives.
        reported: Words before a phrase that attribute it to someone else.
        end: The end of a value.
        momentary: Words in an order that tie it to the current message.
        passing: Words in a value that tie it to the current conversation.
        situation: Words in a fact that tie it to the task or the day, such as ``my code`` or ``since this morning``.
        mentions: Facts that a sentence names in passing, also in a question, such as ``my cat Luna``.
        patterns: Pairs of a topic and the pattern of a statement, matched at the beginning of a clause.
    """

    hints: tuple[str, ...]
    openers: re.Pattern[str]
    joint: Caseless
    unreal: Caseless
    once: Caseless
    withdrawn: Caseless
    asks: Caseless
    contrast: Caseless
    head_first: bool
    reported: Caseless
    end: Caseless
    momentary: Caseless
    passing: Caseless
    situation: Caseless
    mentions: re.Pattern[str]
    patterns: tuple[tuple[Topic, re.Pattern[str]], ...]

    def may_stand_in(self, plain: str) -> bool:
        """Return whether a pattern could match in a text from ``plain_form``. A cheap filter for most messages."""
        for hint in self.hints:  # noqa: SIM110  # twice as fast as any(), and each user message passes here
            if hint in plain:
                return True
        return False


def plain_form(text: str) -> str:
    """Return the text in lower case, with single spaces."""
    return " ".join(text.lower().split())


def _words(text: str) -> Caseless:
    return Caseless(rf"\b(?:{'|'.join(text.split())})\b".replace("_", r"\s"))


def _openers(text: str) -> re.Pattern[str]:
    longest_first = "|".join(sorted(text.split(), key=len, reverse=True))
    return re.compile(rf"(?:(?:{longest_first})\b[,:.!]?\s+){{0,4}}".replace("_", r"\s"), re.IGNORECASE)


def _joint(text: str) -> Caseless:
    return Caseless(rf"[,;\u2013\u2014(]\s+|\s-\s|\b(?:{'|'.join(text.split())})\s+")


def _source(text: str, parts: dict[str, Any]) -> str:
    """Return the source of a pattern. A space in it matches any white space. A letter matches its other spellings."""
    source = with_parts(text, parts).replace(" ", r"\s+")
    return _SPELLED.sub(lambda match: _SPELLINGS.get(match.group(), match.group()), source)


def _alternatives(sources: list[str], parts: dict[str, Any]) -> str:
    """Return the source of alternatives. A list without alternatives never matches."""
    return "|".join(_source(source, parts) for source in sources) or "(?!)"


def _phrases(table: dict[str, Any]) -> Phrases:
    parts = _TABLE["parts"] | table.get("parts", {})
    return Phrases(
        hints=tuple(table["hints"]),
        openers=_openers(table["openers"]),
        joint=_joint(table["joint"]),
        unreal=_words(table["unreal"]),
        once=_words(table["once"]),
        withdrawn=_words(table["withdrawn"]),
        asks=Caseless(rf"[,;\u2013\u2014-]\s+(?:(?:and|so|but|und|y|et)\s+)?(?:{'|'.join(table['asks'].split())})\b"),
        contrast=Caseless(rf"\s(?:{'|'.join(table['contrast'].split())})\s".replace("_", r"\s")),
        head_first=table["head_first"],
        reported=_words(table["reported"]),
        end=Caseless("|".join(table["end"])),
        momentary=_words(table["momentary"]),
        passing=Caseless("|".join(table["passing"])),
        situation=Caseless(_alternatives(table.get("situation", []), parts)),
        mentions=re.compile(_alternatives(table.get("mentions", []), parts), re.IGNORECASE),
        patterns=tuple(
            (topic, re.compile(_source(pattern, parts), re.IGNORECASE))  # capital letters are checked with the value
            for topic, pattern in table["patterns"]
        ),
    )


ALL = tuple(map(_phrases, _TABLE["phrases"].values()))
