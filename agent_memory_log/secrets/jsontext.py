"""Masks secrets in JSON text. The result is valid JSON, and text without secrets does not change.

Each value is searched together with its key, for example ``door code: 4821``, because the key shows the kind of secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, cast

import msgspec

from agent_memory_log.events.jsonvalue import decode_json, encode_json
from agent_memory_log.secrets.finding import MASK_BEGINS, Finding, find_secrets, mask, masked
from agent_memory_log.secrets.names import kind_of_name
from agent_memory_log.secrets.values import MIN_LENGTH, WORD, strength

_UNTOUCHED_TEXT = """
    id call_id tool_call_id parent_tool_call_id tool_use_id toolUseId item_id response_id message_id event_id
    tool_name queue provider model system_hash tools_hash original_type signature thought_signature
    thoughtSignature redacted encrypted_content
"""
UNTOUCHED = frozenset(_UNTOUCHED_TEXT.split())
"""Keys whose values are never masked: ids that pair events, and content that a provider signed or encrypted."""

_TOKEN = re.compile(r'(?P<literal>"[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9][0-9.eE+-]*)(?P<colon>\s*:)?|(?P<bracket>[{}\[\]])')
_WORDS_IN_KEY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_-]")
_NAME_KEYS = frozenset({"name", "key", "Name", "Key"})
_VALUE_KEYS = frozenset({"value", "Value"})
_LONG_KEY = 12
_MAX_INSIDE = 4
"""The number of levels to search when a JSON string holds JSON text."""


class _Leaf(NamedTuple):
    """A string or number in JSON text: the span of its literal, its value, and its key."""

    start: int
    end: int
    text: str
    key: str
    is_key: bool


def redact_json(text: str, *, numbers: str | None = None, inside: int = 0) -> str:
    """Return valid JSON ``text`` with its secrets masked; the same object if it has no secrets.

    A number that is a secret becomes a mask, or ``numbers`` if that argument is not None.
    """
    leaves = list(_leaves(text))
    changed: list[tuple[_Leaf, str]] = []
    masks: dict[str, int] = {}
    for leaf, findings in zip(leaves, find_in_values([(leaf.key, leaf.text) for leaf in leaves]), strict=True):
        new_text = leaf.text
        if text[leaf.start] != '"':
            new_text = mask(findings[0].kind) if findings else new_text
        elif (
            inside < _MAX_INSIDE and not leaf.is_key and new_text.lstrip()[:1] in {"{", "[", '"'} and _is_json(new_text)
        ):
            new_text = redact_json(new_text, inside=inside + 1)
        elif findings:
            new_text = masked(new_text, findings)
        if new_text is leaf.text or new_text == leaf.text:
            continue
        if leaf.is_key:  # masked keys must stay different
            masks[new_text] = masks.get(new_text, 0) + 1
            new_text = new_text if masks[new_text] == 1 else f"{new_text} {masks[new_text]}"
        is_number = text[leaf.start] != '"'
        changed.append((leaf, numbers if is_number and numbers is not None else encode_json(new_text).decode()))
    if not changed:
        return text
    parts: list[str] = []
    done = 0
    for leaf, literal in changed:
        parts += (text[done : leaf.start], literal)
        done = leaf.end
    return "".join((*parts, text[done:]))


class _Place:
    """The current position in JSON text: for each open map, its latest key and the latest value of its ``name``."""

    def __init__(self) -> None:
        self._keys = [""]
        self._names = [""]

    def turn(self, bracket: str) -> None:
        """Begin or end a map or a list."""
        if bracket in "{[":
            self._keys.append(self._keys[-1])
            self._names.append("")
        else:
            self._keys.pop()
            self._names.pop()

    def enter(self, key: str) -> None:
        """Set the key of the next value."""
        self._keys[-1] = key

    def key_of(self, value: str) -> str | None:
        """Return the key that describes ``value``; None if the value is never masked."""
        key = self._keys[-1]
        if key in _NAME_KEYS:
            self._names[-1] = value
        if key in UNTOUCHED:
            return None
        return self._names[-1] if key in _VALUE_KEYS and self._names[-1] else key


def _leaves(text: str) -> Iterator[_Leaf]:
    """Yield the strings and numbers of valid JSON in order, except those that are never masked."""
    place = _Place()
    for match in _TOKEN.finditer(text):
        literal, is_key = match["literal"], match["colon"] is not None
        if match["bracket"]:
            place.turn(match["bracket"])
        elif literal:
            value = literal
            if literal[0] == '"':
                value = cast("str", decode_json(literal)) if "\\" in literal else literal[1:-1]
            if is_key:
                place.enter(value)
            key = "" if is_key else place.key_of(value)
            if key is not None and (not is_key or len(value) >= _LONG_KEY):
                yield _Leaf(match.start("literal"), match.end("literal"), value, key, is_key)


def find_in_values(values: Sequence[tuple[str, str]]) -> Iterator[list[Finding]]:
    """Yield the findings in the text of each pair of key and text; the key is ``""`` if there is no key.

    All pairs are joined to one text with one line for each, because each search has a fixed cost.
    """
    parts: list[str] = []
    starts: list[int] = []
    length = 0
    values = [("" if key.startswith(MASK_BEGINS) else key, text) for key, text in values]
    for key, text in values:
        lead = f"{_words(key)}: " if key else ""
        starts.append(length + len(lead))
        parts += (lead, text, "\n")
        length += len(lead) + len(text) + 1
    findings = find_secrets("".join(parts))
    place = 0
    for (key, text), start in zip(values, starts, strict=True):
        end = start + len(text)
        own: list[Finding] = []
        while place < len(findings) and findings[place].start < end:
            finding = findings[place]
            if finding.end > start:
                own.append(Finding(finding.kind, max(0, finding.start - start), min(finding.end, end) - start))
            if finding.end > end:
                break
            place += 1
        kind_and_strength = _kind_of(key) if key else None
        if kind_and_strength is not None and _is_value(text, kind_and_strength[1]):
            own = [Finding(kind_and_strength[0], 0, len(text))]
        yield own


@lru_cache(4096)
def _words(key: str) -> str:
    return _WORDS_IN_KEY.sub(" ", key)


@lru_cache(4096)
def _kind_of(key: str) -> tuple[str, int] | None:
    return kind_of_name(key)


def _is_value(text: str, needed: int) -> bool:
    """Return whether ``text``, the value of a key for secrets, is a secret."""
    if text.isdecimal():
        return needed == WORD and len(text) >= MIN_LENGTH
    return strength(text, quoted=True) >= needed


def _is_json(text: str) -> bool:
    try:
        decode_json(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
