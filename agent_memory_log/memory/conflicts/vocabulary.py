"""The words by which statements are compared, for each language, and the form in which a text is compared.

``data/claims.toml`` has the words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from agent_memory_log.tables import read_table

_TABLE: dict[str, Any] = read_table(__name__, "claims")

MAX_TEXT = 600
"""The most characters of a text that are read. Statements are shorter. Longer texts are usually pasted."""

_DIGIT = re.compile(r"\d")
_CLOCK = re.compile(r"\b(\d{1,2})(?:[:.h](\d\d))? ?([ap])\.?m\b\.?")
_HOURS = re.compile(r"(?<![:.])\b(\d{1,2})(?: ?h ?(\d\d)?| uhr(?: (\d\d))?| o'clock)\b")
_ORDINAL = re.compile(r"\b(\d+)(?:st|nd|rd|th|er|eme)\b")
_THOUSANDS = re.compile(r"\b(\d{1,3})[.,'](\d{3})\b")
_NOON = 12

NOT, WITHOUT, ENDED, BEGAN, LIKES, DISLIKES, BREAK = "NOT", "WITHOUT", "ENDED", "BEGAN", "LIKES", "DISLIKES", "BREAK"
_MARKS = (DISLIKES, ENDED, NOT, WITHOUT, BEGAN, LIKES)


class Language:
    """The words and the patterns of a language."""

    def __init__(self, table: dict[str, Any]) -> None:
        self.function_words = frozenset(table["function_words"].split())
        self.light = frozenset(table["light_words"].split())
        self.first_person = frozenset(table["first_person"].split())
        self.mine = frozenset(table["mine"].split())
        self.determiners = self.mine | frozenset(f"{table['articles']} {table['theirs']}".split())
        self.others = frozenset(table["others"].split())
        self.pronouns = frozenset(table["pronouns"].split())
        self.theirs = frozenset(table["theirs"].split())
        self.for_whom = table["for_whom"]
        self.limits = frozenset(table["limits"].split())
        self.ignored = self.function_words | self.limits
        self.vocabulary = self.function_words | self.light | self.others | self.first_person | self.mine
        self.unreal = re.compile(table["unreal"])
        self.attributes = re.compile(_any_of(table["attributes"]))
        self._endings = re.compile(table["endings"])
        self._irregular: dict[str, str] = {
            form: row.split()[0] for row in table["irregular"].split(",") for form in row.split()[1:]
        }
        self.vocabulary |= {word for mark in _MARKS for word in table[mark.lower()] if word.isalpha()}
        marks = [f"(?P<{mark}>{_any_of(table[mark.lower()])})" for mark in _MARKS]
        self._marks = re.compile("|".join((f"(?P<{BREAK}>{table['break']})", *marks)))
        self._stems: dict[str, str] = {}

    def marked(self, folded: str) -> str:
        """Return a folded text with its marks in capital letters."""
        return self._marks.sub(lambda match: f" {match.lastgroup} ", folded)

    def person(self, word: str) -> str:
        """Return the one word for a person who has more than one: ``mother`` for ``mum``."""
        return self._irregular.get(word, word)

    def stem(self, word: str) -> str:
        """Return the stem of a word."""
        stem = self._stems.get(word)
        if stem is None:
            stem = self._irregular.get(word) or self._without_ending(word)
            if len(self._stems) >= _MOST_STEMS:
                self._stems.clear()
            self._stems[word] = stem
        return stem

    def _without_ending(self, word: str) -> str:
        bare = self._endings.sub("", word)
        if len(bare) < _SHORT:
            return word
        if len(bare) > _SHORT and bare[-1] == bare[-2]:
            bare = bare[:-1]
        return bare.rstrip("ey") if len(bare) > _SHORT else bare


_MOST_STEMS = 20_000
_SHORT = 3


def _any_of(patterns: Sequence[str]) -> str:
    return rf"\b(?:{'|'.join(patterns)})\b(?!-)"


@cache
def _languages() -> tuple[Language, ...]:
    return tuple(Language(table) for table in _TABLE["languages"].values())


def _names_of(rows: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Return the names of the rows that each word is in."""
    names: dict[str, set[str]] = {}
    for name, words in rows.items():
        for word in words.replace("|", " ").split():
            names.setdefault(word, set()).add(name)
    return {word: frozenset(of_word) for word, of_word in names.items()}


def _sides_of(rows: Mapping[str, str]) -> dict[str, tuple[str, int]]:
    """Return the row and the side of each word."""
    return {
        word: (row, side)
        for row, sides in rows.items()
        for side, words in enumerate(sides.split("|"))
        for word in words.split()
    }


GROUPS = _names_of(_TABLE["groups"])
GROUP_NAMES = _names_of({name: row.split("|")[0] for name, row in _TABLE["groups"].items()})
TOPICS = _names_of(_TABLE["topics"])
OWNED = frozenset(_TABLE["owned"]["groups"].split())
DENIALS = {word: frozenset(groups.split()) for word, groups in _TABLE["denials"].items()}
NUMBERS = {word: number for number, words in _TABLE["numbers"].items() for word in words.split()}
UNITS = {word: unit for unit, words in _TABLE["units"].items() for word in words.split()}
STATES = _sides_of(_TABLE["states"])
OPPOSITES = _sides_of(_TABLE["opposites"])
SCOPES = _sides_of(_TABLE["scopes"])
_PHRASES = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _TABLE["phrases"].items()))

PREFIXES = tuple(_TABLE["prefixes"].split())
"""The prefixes that deny a word in one of the languages."""


def fold(text: str) -> str:
    """Return the first characters of a text in the form in which they are compared.

    That is lower case, without accents, with clock times, ordinals and large numbers in one form.
    """
    text = text[:MAX_TEXT]
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text.replace("\u2019", "'").replace("ß", "ss").replace("œ", "oe"))
        text = "".join(character for character in text if not unicodedata.combining(character))
    text = _PHRASES.sub(lambda match: str(match.lastgroup), text.casefold())
    if _DIGIT.search(text) is None:
        return text
    text = _CLOCK.sub(_clock, text)
    text = _HOURS.sub(lambda match: f"{int(match[1])}:{match[2] or match[3] or '00'}", text)
    text = _ORDINAL.sub(r"\1", text)
    return _THOUSANDS.sub(r"\1\2", text)


def _clock(match: re.Match[str]) -> str:
    hour = int(match[1]) % _NOON + (_NOON if match[3] == "p" else 0)
    return f"{hour}:{match[2] or '00'}"


def language_of(words: Sequence[str]) -> Language:
    """Return the language that knows most of the words."""
    distinct = set(words)
    return max(_languages(), key=lambda language: len(language.vocabulary & distinct))
