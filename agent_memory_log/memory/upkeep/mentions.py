"""Finds values as whole words in texts, in any spelling.

It ignores case, accents, width, white space, and typographic quotes and hyphens. It ignores more than
``kinds.fold_text``, which compares values, because an erasure must also find other spellings of a value.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

import msgspec

from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue, json_or_text
from agent_memory_log.events.payloads import UnknownPayload

_IGNORED = re.compile(
    "[\u00ad\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061c\u064b-\u065f\u0670\u180e"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]"
)
"""Accents and vowel signs that people often omit, and invisible characters."""

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
    "\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\uac00-\ud7ff\uf900-\ufaff\U00020000-\U000323af"
)
"""Scripts without spaces between words, or with endings attached to words. Each character counts as a word."""

_words = re.compile(rf"\d+(?:[.,:]\d+)+|[{_UNSPACED}]|[^\W_{_UNSPACED}]+").finditer
"""The words of a folded text. A number with separators is one word."""

_TYPED = str.maketrans(
    dict.fromkeys("\u2018\u2019\u201b\u02bc", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u201f", '"')
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
)
"""Maps typographic quotes and hyphens to those of a keyboard."""


def fold(text: str) -> str:
    """Return a text in the form in which texts and values are compared."""
    if not text.isascii():
        typed = unicodedata.normalize("NFKC", text.translate(_TYPED))
        apart = unicodedata.normalize("NFKD", typed.casefold())
        text = unicodedata.normalize("NFKC", _IGNORED.sub("", apart))
    return " ".join(text.casefold().split())


def words_in(text: str) -> list[str]:
    """Return the folded words of a text, in their order."""
    return [word[0] for word in _words(fold(text))]


_BEFORE = " \"'("
_AFTER = " .,;:!?\"')"
"""The characters that are removed before and after a value."""


class _Value(msgspec.Struct, frozen=True):
    """A folded value: its ``text``, its ``words``, and the number of characters ``before`` the first word."""

    text: str
    words: list[str]
    before: int


class Values:
    """Values to look for in texts. The time depends on the texts, not on the number of values."""

    def __init__(self, values: Iterable[str]) -> None:
        """Prepare the values. Values of only white space or punctuation are ignored."""
        self._by_first_word: dict[str, list[_Value]] = {}
        self._without_words: list[str] = []
        for value in {text for value in values if (text := fold(value).lstrip(_BEFORE).rstrip(_AFTER))}:
            words = list(_words(value))
            if words:
                entry = _Value(value, [word[0] for word in words], words[0].start())
                self._by_first_word.setdefault(words[0][0], []).append(entry)
            else:
                self._without_words.append(value)  # such as an emoji

    def are_in(self, text: str) -> bool:
        """Return whether the text holds one of the values as whole words."""
        folded = fold(text)
        if any(value in folded for value in self._without_words):
            return True
        matches = list(_words(folded))
        words = [match[0] for match in matches]
        candidates = [
            value
            for first in self._by_first_word.keys() & set(words)
            for value in self._by_first_word[first]
            if value.text in folded
        ]
        return any(
            word == value.words[0]
            and words[at : at + len(value.words)] == value.words
            and folded.startswith(value.text, max(matches[at].start() - value.before, 0))
            for value in candidates
            for at, word in enumerate(words)
        )

    def are_in_event(self, event: Event) -> bool:
        """Return whether the data or a label of an event holds one of the values. Field names do not count."""
        data = event.data.to_map()
        content = data if isinstance(event.data, UnknownPayload) else list(data.values())
        return any(map(self.are_in, (*texts(content), *event.labels.values())))


def texts(data: JsonValue) -> Iterator[str]:
    """Yield the texts, numbers and map keys of a JSON value, and of JSON inside its texts."""
    waiting: list[JsonValue] = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield from value
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, str):
            yield value
            if "\\" in value and (decoded := json_or_text(value)) != value:
                waiting.append(decoded)  # JSON escapes may hide a word
        elif value is not None and not isinstance(value, bool):
            yield str(value)
