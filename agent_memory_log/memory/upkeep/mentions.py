"""Whether a text holds a value as whole words, however it is written.

Case, accents, width, white space, typographic quotes and hyphens are folded. Needs no extra. Folds more than
``kinds.fold_text``, by which values are compared: what is erased may be spelled freely.
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
"""Accents and vowel signs that people leave out, and characters that nobody sees."""

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
    "\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\uac00-\ud7ff\uf900-\ufaff\U00020000-\U000323af"
)
"""Scripts without spaces, or with endings glued to their words: each character counts as a word."""

_words = re.compile(rf"\d+(?:[.,:]\d+)+|[{_UNSPACED}]|[^\W_{_UNSPACED}]+").finditer
"""The words of a folded text; a number with separators is one."""


_TYPED = str.maketrans(
    dict.fromkeys("\u2018\u2019\u201b\u02bc", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u201f", '"')
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
)
"""Typographic quotes and hyphens, as models write them, as keyboards have them."""


def fold(text: str) -> str:
    """The form in which a text is searched for values."""
    if not text.isascii():
        typed = unicodedata.normalize("NFKC", text.translate(_TYPED))
        apart = unicodedata.normalize("NFKD", typed.casefold())
        text = unicodedata.normalize("NFKC", _IGNORED.sub("", apart))
    return " ".join(text.casefold().split())


_BEFORE = " \"'("
_AFTER = " .,;:!?\"')"
"""What may stand before and after a value and is no part of it."""


class _Value(msgspec.Struct, frozen=True):
    """A folded value: its ``text``, its ``words``, and how many characters stand before the first of them."""

    text: str
    words: list[str]
    before: int


class Values:
    """Values to look for in texts. How long that takes depends on the texts, not on how many values there are."""

    def __init__(self, values: Iterable[str]) -> None:
        """Leaves out values that are white space or punctuation alone."""
        self._by_first_word: dict[str, list[_Value]] = {}
        self._without_words: list[str] = []
        for value in {text for value in values if (text := fold(value).lstrip(_BEFORE).rstrip(_AFTER))}:
            words = list(_words(value))
            if words:
                entry = _Value(value, [word[0] for word in words], words[0].start())
                self._by_first_word.setdefault(words[0][0], []).append(entry)
            else:
                self._without_words.append(value)  # as an emoji is

    def are_in(self, text: str) -> bool:
        """Whether the text holds one of the values, as whole words."""
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
        """Whether the data or a label of an event holds one of the values. The names of a type's own fields do not."""
        data = event.data.to_map()
        content = data if isinstance(event.data, UnknownPayload) else list(data.values())
        return any(map(self.are_in, (*texts(content), *event.labels.values())))


def texts(data: JsonValue) -> Iterator[str]:
    """The texts and numbers of a JSON value, names in maps among them, and of JSON that stands in a text."""
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
                waiting.append(decoded)  # in JSON a word may be hidden by escapes
        elif value is not None and not isinstance(value, bool):
            yield str(value)
