"""What depends on the language of a text: which it is, its function words, and the stem of a word.

A text is of the language whose function words it uses most, if it has two of them: lists of function words hold some
words that another language talks about, and such a word must not decide alone. Any other text, a name or a number, is
taken for the default of its script. A question is looked up by the stems of every language that the index holds, so
that a wrong guess about a short question costs nothing, and a text in one language finds its loan words in another.
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
"""Word form -> base form, and number word -> digits; what is not in it is left to the stemmer."""

STEMMERS: Final[dict[str, str]] = _TABLE["stemmers"]
"""Language (ISO 639-1) -> its Snowball stemmer; "" for those with known function words alone."""

COMPOUNDING: Final = frozenset(_TABLE["compounding"]["languages"].split())
"""The languages that write compounds as one word."""

_LANGUAGES: Final = tuple(STEMMERS)

_VOTE: Final = 60
"""What a function word counts, divided among the languages that have it."""

_ENOUGH: Final = 2
"""How many function words of a language a text has at least; "email" is one in a list for Czech."""

_VOTE_BYTES: Final = 4
"""The room of a count: texts of 70 million function words fit."""

_MOST_REMEMBERED: Final = 100_000
"""Words of a language whose stems are remembered; then it starts again."""


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802  # the library's name


class _Snowball(Protocol):
    def Stemmer(self, algorithm: str) -> _Stemmer: ...  # noqa: N802  # the library's name


class _StopWords(Protocol):
    def get_stop_words(self, language: str) -> list[str]: ...


# Neither has types: what is used of them is said above.
_snowball = cast("_Snowball", import_module("Stemmer"))
_listed = cast("_StopWords", import_module("stop_words"))


class Stems(dict[str, str]):
    """Word (folded) -> what it is found by in one language, "" for a function word; worked out when first asked for.

    A text of an unknown language may be given any: what its stemmer does to words, it does to both sides.
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
        if len(word) <= LONGEST_WORD:  # a longer one may be a whole file, and seldom comes again
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
    """The stems of a language, one of ``STEMMERS``."""
    return Stems(language)


@cache
def stop_words(language: str) -> frozenset[str]:
    """The function words of a language, folded and cut as ``words`` cuts them."""
    if language == ENGLISH:
        return frozenset(_ENGLISH["function_words"].split())
    cut = (words(fold(entry)) for entry in _listed.get_stop_words(language))
    # An entry of several words is an idiom of content words, unless it is one that an apostrophe cuts.
    return frozenset(word for entry in cut if len(entry) == 1 for word in entry)


def language_of(found: Sequence[str]) -> str:
    """The language of a text by its ``words``: the one that has most of them for function words, from two."""
    votes = sum(map(_votes().get, found, repeat(0)))
    if votes:
        counts = memoryview(votes.to_bytes(_VOTE_BYTES * len(STEMMERS), sys.byteorder)).cast("I").tolist()
        if sys.byteorder == "big":
            counts.reverse()
        for place in sorted(range(len(counts)), key=counts.__getitem__, reverse=True):
            if len(stop_words(_LANGUAGES[place]).intersection(found)) >= _ENOUGH:
                return _LANGUAGES[place]
    return _default(found[0]) if found else ENGLISH


@cache
def _votes() -> dict[str, int]:
    # The counts of all languages share one integer, so that counting is one sum: five times faster than a loop.
    speakers: dict[str, list[int]] = {}
    for place, language in enumerate(STEMMERS):
        for word in stop_words(language):
            speakers.setdefault(word, []).append(place)
    # A word that many languages share tells little.
    return {
        word: sum(_VOTE // len(places) << 8 * _VOTE_BYTES * place for place in places)
        for word, places in speakers.items()
    }


def _default(word: str) -> str:
    scripts: dict[str, list[str]] = _TABLE["scripts"]
    return next((language for language, (low, high) in scripts.items() if low <= word[0] <= high), ENGLISH)
