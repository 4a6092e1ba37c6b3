"""Detects the language of a text, and provides the function words and the stems of each language.

The language of a text is the one with most of its function words, if the text has at least two of them. One is not
enough, because a function word of one language may be a content word of another. Other texts, such as a name or a
number, get the default language of their script. A question is looked up by the stems of every language of the index.
So a wrong guess about a short question does no harm, and a loan word is found in texts of another language.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from itertools import repeat
from typing import Final, Protocol, cast

from agent_memory_log.recall.words import LONGEST_WORD, fold, plain_number, without_accents, words
from agent_memory_log.tables import read_table

ENGLISH: Final = "en"

_TABLE: Final = read_table(__name__, "languages")

_ENGLISH: Final = read_table(__name__, "english")


def _english_rows(name: str) -> list[list[str]]:
    return [row.split() for row in _ENGLISH[name].split(",")]


_IRREGULAR_ENGLISH: Final = (
    {form: row[0] for row in _english_rows("forms") for form in row[1:]}
    | {form + plural: row[0] for row in _english_rows("nouns") for form in row[1:] for plural in ("", "s")}
    | {row[0]: row[1] for row in _english_rows("numbers")}
)
"""The base form of each irregular word form, and the digits of each number word. The stemmer handles other words."""

STEMMERS: Final[dict[str, str]] = _TABLE["stemmers"]
"""The Snowball stemmer of each language (ISO 639-1). It is ``""`` for a language that has only function words here."""

COMPOUNDING: Final = frozenset(_TABLE["compounding"]["languages"].split())
"""The languages that write compounds as one word."""

_LANGUAGES: Final = tuple(STEMMERS)

_VOTE: Final = 60
"""The weight of a function word. The languages that have the word share it equally."""

_FEWEST_FUNCTION_WORDS: Final = 2
"""The fewest function words that decide the language of a text. The list for Czech contains "email", for example."""

_VOTE_BYTES: Final = 4
"""The bytes of a language's count. They suffice for texts with 70 million function words."""

_MOST_REMEMBERED: Final = 100_000
"""The most stems in the cache of a language. A full cache is cleared."""


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802  # the library's name


class _Snowball(Protocol):
    def Stemmer(self, algorithm: str) -> _Stemmer: ...  # noqa: N802  # the library's name


class _StopWords(Protocol):
    def get_stop_words(self, language: str) -> list[str]: ...


# The two libraries have no types. The protocols above declare the functions that this module uses.
_snowball = cast("_Snowball", import_module("Stemmer"))
_stop_words = cast("_StopWords", import_module("stop_words"))


class Stems(dict[str, str]):
    """The index term of each folded word in one language, or ``""`` for a function word. It computes terms on demand.

    A text of an unknown language may use any language, because the same stemmer then changes the question too.
    """

    def __init__(self, language: str) -> None:
        super().__init__()
        self._stop_words = stop_words(language)
        self._irregular = _IRREGULAR_ENGLISH if language == ENGLISH else {}
        algorithm = STEMMERS[language]
        self._stemmer = _snowball.Stemmer(algorithm) if algorithm else None

    def __missing__(self, word: str) -> str:
        if len(self) >= _MOST_REMEMBERED:
            self.clear()
        stem = self._stem(word)
        if len(word) <= LONGEST_WORD:  # a longer word may be a whole file and seldom occurs again
            self[word] = stem
        return stem

    def _stem(self, word: str) -> str:
        if word in self._stop_words:
            return ""
        if word[0].isdecimal():
            return plain_number(word)[:LONGEST_WORD]
        if len(word) > LONGEST_WORD:
            return word[:LONGEST_WORD]
        word = self._irregular.get(word, word)
        return without_accents(word if self._stemmer is None else self._stemmer.stemWord(word))


@cache
def stems(language: str) -> Stems:
    """Return the stems of ``language``, a key of ``STEMMERS``."""
    return Stems(language)


@cache
def stop_words(language: str) -> frozenset[str]:
    """Return the function words of a language, folded and divided by ``words``."""
    if language == ENGLISH:
        return frozenset(_ENGLISH["function_words"].split())
    cut = (words(fold(entry)) for entry in _stop_words.get_stop_words(language))
    # Entries of several words are left out. They are idioms with content words, or words with an apostrophe.
    return frozenset(word for entry in cut if len(entry) == 1 for word in entry)


def language_of(text_words: Sequence[str]) -> str:
    """Return the language of a text, given its ``words``.

    It is the language with the highest count of function words, if the text has two of them. Otherwise it is the
    default language of the script.
    """
    votes = sum(map(_votes().get, text_words, repeat(0)))
    if votes:
        counts = memoryview(votes.to_bytes(_VOTE_BYTES * len(STEMMERS), sys.byteorder)).cast("I").tolist()
        if sys.byteorder == "big":
            counts.reverse()
        for position in sorted(range(len(counts)), key=counts.__getitem__, reverse=True):
            if len(stop_words(_LANGUAGES[position]).intersection(text_words)) >= _FEWEST_FUNCTION_WORDS:
                return _LANGUAGES[position]
    return _default(text_words[0]) if text_words else ENGLISH


@cache
def _votes() -> dict[str, int]:
    # The counts of all languages share one integer, so counting is one sum. That is five times faster than a loop.
    languages: dict[str, list[int]] = {}
    for position, language in enumerate(STEMMERS):
        for word in stop_words(language):
            languages.setdefault(word, []).append(position)
    # A word that many languages share is weak evidence for each of them.
    return {
        word: sum(_VOTE // len(positions) << 8 * _VOTE_BYTES * position for position in positions)
        for word, positions in languages.items()
    }


def _default(word: str) -> str:
    scripts: dict[str, list[str]] = _TABLE["scripts"]
    return next((language for language, (low, high) in scripts.items() if low <= word[0] <= high), ENGLISH)
