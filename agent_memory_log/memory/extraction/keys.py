"""Statements, and the keys that are made from their words."""

from __future__ import annotations

import hashlib
import re

import msgspec

from agent_memory_log.memory.extraction.phrases import WORDS, Phrases
from agent_memory_log.memory.records.kinds import Fact, Preference

_MAX_KEY_WORDS = 16
_MAX_STATED_WORDS = 10
_MAX_CONTRAST_WORDS = 3
_WORD = re.compile(r"\w+(?:[.+#/-]\w+)*[+#]*")
_ENDING = re.compile(r"['\u2019](?=(?:[dmst]|ll|re|ve)\b)")


class Statement(msgspec.Struct, frozen=True):
    """A statement of the user. ``confidence``, from 0 to 1, is the certainty that the user meant it."""

    data: Preference | Fact
    confidence: float


def keyed(first: str, words: list[str], value: str, confidence: float) -> Statement | None:
    """Return a preference with a key made from the words, or None if there are no words.

    The same words always give the same key, so a new value supersedes the old one.
    """
    if not words:
        return None
    return Statement(Preference(_joined([first, *words] if first else words), value), confidence)


_PLACE = re.compile(r"\b(?:of|from|at|with|by|via)\s+(?=[^\W\d_a-zß-öø-ÿ])")


def key_words(text: str) -> list[str]:
    """Return the words of a key. A name after a preposition is the value and no part of the key: ``fly out of``."""
    place = _PLACE.search(text)
    if place is not None:
        text = text[: place.end()]
    return _words(text)[:_MAX_KEY_WORDS]


def whole_key(text: str) -> str:
    """Return the key of a text that is stored whole: its words, and a digest in place of the last words of a long text.

    Two different texts have two keys. The words that say only that an order holds, such as ``always``, are left out at
    the beginning, so ``never use tabs`` supersedes ``always use tabs``.
    """
    words = _words(text)
    while len(words) > 1 and words[0] in WORDS["order_fillers"]:
        del words[0]
    return _joined(words)


def _words(text: str) -> list[str]:
    """Return the words of a text without an apostrophe, so that a person can type the key: ``cant`` for ``can't``."""
    return [word for word in _WORD.findall(_ENDING.sub("", text.casefold())) if word not in WORDS["fillers"]]


def _joined(words: list[str]) -> str:
    """Return a key of the words, with a digest in place of the last words if there are many."""
    if len(words) > _MAX_STATED_WORDS:
        digest = hashlib.sha256(" ".join(words).encode(errors="replace")).hexdigest()[:8]
        words = [*words[: _MAX_STATED_WORDS - 1], digest]
    return "_".join(words)


def category(phrases: Phrases, value: str) -> list[str]:
    """Return the category of a preference as key words: two things in sorted order, so that both orders agree."""
    contrast = phrases.contrast.search(value)
    if contrast is not None:
        sides = [value[: contrast.start()], value[contrast.end() :]]
        heads = [_head(side, head_first=phrases.head_first) for side in sides]
        if all(heads) and all(len(side.split()) <= _MAX_CONTRAST_WORDS for side in sides):
            return "_or_".join(sorted({"_".join(head) for head in heads})).split("_")
    return _head(value, head_first=phrases.head_first)


def _head(text: str, *, head_first: bool) -> list[str]:
    """Return the category of a value as key words: ``seat`` for ``window seats``, so that another seat replaces it."""
    words = _WORD.findall(_ENDING.sub("", text.casefold()))
    if words[:1] == ["to"] or words[:2] == ["not", "to"]:
        return key_words(" ".join(words[1 + (words[0] == "not") :]))[:3]
    phrase: list[str] = []
    for word in words:
        if word in WORDS["phrase_ends"]:
            break
        if word not in WORDS["fillers"]:
            phrase.append(word)
    return [_singular(phrase[0 if head_first else -1])] if phrase else []


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word  # noqa: PLR2004  # keeps "gas"
