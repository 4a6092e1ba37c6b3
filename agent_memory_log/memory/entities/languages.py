"""The words of each language that help to tell names from other words, and the language of a text."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

import msgspec

from agent_memory_log.tables import read_table

_DEFAULT: Final = "en"


class Language(msgspec.Struct, frozen=True):
    """The words of one language, in lower case. ``data/languages.toml`` describes each field."""

    function_words: frozenset[str]
    ordinary: frozenset[str]
    openers: frozenset[str]
    endings: tuple[str, ...]
    titles: frozenset[str]
    joints: frozenset[str]
    verbs: frozenset[str]
    capital_nouns: bool = False
    cues: frozenset[str] = frozenset()
    places: frozenset[str] = frozenset()


@cache
def languages() -> dict[str, Language]:
    """Return the words of every language, by its ISO 639-1 code."""
    return {code: _language(fields) for code, fields in read_table(__name__, "languages").items()}


def _language(fields: dict[str, Any]) -> Language:
    split = {name: value.casefold().split() if isinstance(value, str) else value for name, value in fields.items()}
    return msgspec.convert(split, Language)


@cache
def known_names() -> frozenset[str]:
    """Return common given names and places, in lower case."""
    return given_names() | frozenset(read_table(__name__, "names")["places"].casefold().split())


@cache
def given_names() -> frozenset[str]:
    """Return common given names, in lower case."""
    return frozenset(read_table(__name__, "names")["given"].casefold().split())


@cache
def titles() -> frozenset[str]:
    """Return the words before the name of a person, in all languages, without the full stop."""
    return frozenset[str]().union(*(language.titles for language in languages().values()))


def language_of(words: Iterable[str]) -> Language:
    """Return the language that has most of the words as function words. Without one, return English."""
    distinct = frozenset(words)
    tables = languages()
    votes = {code: len(language.function_words & distinct) for code, language in tables.items()}
    best = max(votes, key=votes.__getitem__)
    return tables[best if votes[best] > votes[_DEFAULT] else _DEFAULT]
