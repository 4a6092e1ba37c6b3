"""Masking secrets in JSON text: it stays valid, and what holds no secret stays byte for byte.

A key says what its value is, so each value is read behind its key, as in ``door code: 4821``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, cast

import msgspec

from agent_memory_log.jsonvalue import decode_json, encode_json
from agent_memory_log.secrets.finding import Finding, find_secrets, mask
from agent_memory_log.secrets.names import kind_of_name
from agent_memory_log.secrets.values import MIN_LENGTH, WORD, strength

UNTOUCHED = frozenset(
    "id call_id tool_call_id parent_tool_call_id tool_use_id toolUseId item_id response_id message_id event_id tool_name"
    " queue provider model system_hash tools_hash original_type signature thought_signature thoughtSignature redacted"
    " encrypted_content".split()
)
"""Keys whose values are never masked: ids by which events are paired, and what a provider signed or encrypted."""

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]|[^\s"{}\[\]:,]+')
_NUMBER = re.compile(r"-?[0-9]")
_WORDS_IN_KEY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_-]")
_NAME_KEYS = frozenset({"name", "key", "Name", "Key"})
_VALUE_KEYS = frozenset({"value", "Value"})
_LONG_KEY = 12
_MAX_INSIDE = 4
"""How deep texts that are JSON are looked into when they stand in JSON."""


class _Leaf(NamedTuple):
    """A string or a number in JSON text: where its literal stands, what it says, the key it belongs to."""

    start: int
    end: int
    text: str
    key: str
    is_key: bool


def redact_json(text: str, *, numbers: str | None = None, inside: int = 0) -> str:
    """``text``, JSON, with secrets masked; the same object where it has none. Raises ``DecodeError`` for other text.

    A number that is a secret becomes a mask, or ``numbers`` where that is given.
    """
    leaves = list(_leaves(text))
    changed: list[tuple[_Leaf, str]] = []
    masks: dict[str, int] = {}
    for leaf, findings in zip(leaves, find_in_values([(leaf.key, leaf.text) for leaf in leaves]), strict=True):
        said = leaf.text
        if text[leaf.start] != '"':
            said = mask(findings[0].kind) if findings else said
        elif inside < _MAX_INSIDE and not leaf.is_key and said.lstrip()[:1] in {"{", "[", '"'} and _is_json(said):
            said = redact_json(said, inside=inside + 1)
        elif findings:
            said = _masked(said, findings)
        if said is leaf.text or said == leaf.text:
            continue
        if leaf.is_key:  # two keys may not become one
            masks[said] = masks.get(said, 0) + 1
            said = said if masks[said] == 1 else f"{said} {masks[said]}"
        is_number = text[leaf.start] != '"'
        changed.append((leaf, numbers if is_number and numbers is not None else encode_json(said).decode()))
    if not changed:
        return text
    parts: list[str] = []
    done = 0
    for leaf, literal in changed:
        parts += (text[done : leaf.start], literal)
        done = leaf.end
    return "".join((*parts, text[done:]))


def _masked(text: str, findings: list[Finding]) -> str:
    parts: list[str] = []
    done = 0
    for finding in findings:
        parts += (text[done : finding.start], mask(finding.kind))
        done = finding.end
    return "".join((*parts, text[done:]))


def _leaves(text: str) -> Iterator[_Leaf]:
    """The strings and numbers of valid JSON ``text``, in order, but for those that are never masked."""
    keys: list[str] = [""]  # for each map and list that is open, the latest key
    names: list[str] = [""]  # and what its "name" says, for a "value" beside it
    pending: tuple[int, int, str] | None = None
    for match in (*_TOKEN.finditer(text), None):
        token = "" if match is None else match.group()
        if pending is not None:
            start, end, said = pending
            pending = None
            if token == ":":
                keys[-1] = said
                if len(said) >= _LONG_KEY:
                    yield _Leaf(start, end, said, "", is_key=True)
                continue
            key = keys[-1]
            if key in _NAME_KEYS:
                names[-1] = said
            if key not in UNTOUCHED:
                yield _Leaf(start, end, said, names[-1] if key in _VALUE_KEYS and names[-1] else key, is_key=False)
        if match is None:
            return
        if token in {"{", "["}:
            keys.append(keys[-1])
            names.append("")
        elif token in {"}", "]"}:
            keys.pop()
            names.pop()
        elif token[0] == '"':
            pending = match.start(), match.end(), cast("str", decode_json(token)) if "\\" in token else token[1:-1]
        elif _NUMBER.match(token) and keys[-1] not in UNTOUCHED:
            yield _Leaf(match.start(), match.end(), token, keys[-1], is_key=False)


def find_in_values(values: Sequence[tuple[str, str]]) -> Iterator[list[Finding]]:
    """What is found in each of ``values``: a key, ``""`` where there is none, and the text that belongs to it.

    All are read as one text, a line each, since each reading has its price.
    """
    parts: list[str] = []
    starts: list[int] = []
    length = 0
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
        named = _kind_of(key) if key else None
        if named is not None and _is_value(text, named[1]):
            own = [Finding(named[0], 0, len(text))]
        yield own


@lru_cache(4096)
def _words(key: str) -> str:
    return _WORDS_IN_KEY.sub(" ", key)


@lru_cache(4096)
def _kind_of(key: str) -> tuple[str, int] | None:
    return kind_of_name(key)


def _is_value(text: str, needed: int) -> bool:
    """Whether ``text`` is a secret, given that its key names one."""
    if text.isdecimal():
        return needed == WORD and len(text) >= MIN_LENGTH
    return strength(text, quoted=True) >= needed


def _is_json(text: str) -> bool:
    try:
        decode_json(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
