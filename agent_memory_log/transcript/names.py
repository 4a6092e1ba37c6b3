"""Converts tool names and call ids to the small alphabet that providers allow, and converts tool names back.

Tool names in the log are ``toolset.tool``. On the wire, a dot becomes two hyphens, as in ``toolset--tool``. Any other
character outside the alphabet becomes ``-_``, its code point in hex, and ``-``. A hyphen that would look like the start
of either form is escaped in the same way. Therefore two different names never become equal, and every name can be
decoded. Most names that providers allow do not change, for example ``mcp__server__tool``. Call ids are encoded in the
same way but are never decoded, because the log pairs calls with results itself.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from agent_memory_log.transcript.vendors.profiles import VENDORS

PROVIDERS = frozenset({"anthropic", "bedrock", "gemini", "openai-chat", "openai-responses"}) | VENDORS.keys()
"""The provider names under which payloads store their residuals in ``structured``."""

_PLAIN = re.compile(r"[a-zA-Z0-9_]*(?:-[a-zA-Z0-9][a-zA-Z0-9_]*)*-?", re.ASCII)
_ALLOWED = re.compile(r"[a-zA-Z0-9_-]+", re.ASCII)
is_in_alphabet = _ALLOWED.fullmatch
"""Match text that is not empty and has only the characters that every provider allows in names."""

_ESCAPE = re.compile(r"--|-_([0-9a-f]{1,6})-", re.ASCII)
_DIGEST_SIZE = 6
_LARGEST_CODE_POINT = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


class WireRules(msgspec.Struct, frozen=True):
    """A provider's limits for tool names and call ids.

    Attributes:
        longest_name: The longest tool name, in characters.
        name_pattern: The pattern of tool names.
        longest_id: The longest call id, in characters; 0 means any length.
        id_pattern: The pattern of call ids; None means any text that is not empty.
        id_key: The key of the id in a call.
        unique_ids: Whether a call id may be used only once in a transcript.
        optional_ids: Whether calls may have no id.
    """

    longest_name: int
    name_pattern: re.Pattern[str] = _ALLOWED
    longest_id: int = 0
    id_pattern: re.Pattern[str] | None = _ALLOWED
    id_key: str = "id"
    unique_ids: bool = False
    optional_ids: bool = False

    def allows_name(self, name: str) -> bool:
        """Return whether the provider accepts ``name``, a name in wire form."""
        return len(name) <= self.longest_name and self.name_pattern.fullmatch(name) is not None

    def allows_id(self, call_id: str) -> bool:
        """Return whether the provider accepts ``call_id``, an id in wire form."""
        if self.longest_id and len(call_id) > self.longest_id:
            return False
        return bool(call_id) if self.id_pattern is None else self.id_pattern.fullmatch(call_id) is not None

    def wire_id(self, call_id: str) -> str:
        """Return the wire form of ``call_id``. An id that the provider accepts does not change."""
        if self.allows_id(call_id) or not call_id:
            return call_id
        written = call_id if self.id_pattern is None else encode_name(call_id)
        if self.allows_id(written):
            return written
        digested = _with_digest(written, call_id, self.longest_id)
        return digested if self.allows_id(digested) else _digest(call_id)[: self.longest_id]

    def short_name(self, name: str) -> str:
        """Return a name that the provider accepts in place of the wire name ``name``. Only repair uses it.

        Characters outside the alphabet are escaped. A name that is too long is cut and ends in a digest of the full
        name, so it cannot be decoded.
        """
        written = name if self.name_pattern.fullmatch(name) else encode_name(name) or "unnamed"
        return written if len(written) <= self.longest_name else _with_digest(written, name, self.longest_name)


class UnusedIds:
    """Gives each call a wire id that no other call has. It adds a number to an id that is already used."""

    __slots__ = ("_numbers", "_rules", "used")

    def __init__(self, rules: WireRules, used: Iterable[str] = ()) -> None:
        """Start with the ids in ``used``, which are not available."""
        self.used = set(used)
        self._rules = rules
        self._numbers: dict[str, int] = {}

    def unused(self, wire: str) -> str:
        """Return ``wire``, or its first numbered form that is not used yet. The returned id becomes used."""
        unused = wire
        while unused in self.used:
            self._numbers[wire] = number = self._numbers.get(wire, 1) + 1
            unused = self._rules.wire_id(f"{wire}-{number}")
        self.used.add(unused)
        return unused


@lru_cache(maxsize=1024)
def encode_name(name: str) -> str:
    """Return the wire form of a tool name; ``decode_name`` reverses it."""
    if _PLAIN.fullmatch(name):
        return name
    return "".join(_encoded(name))


def _encoded(name: str) -> list[str]:
    written: list[str] = []
    follower = ""
    for character in reversed(name):  # the next character decides how a hyphen is written
        if character == ".":
            piece = "--"
        elif character == "-":
            piece = _escaped(character) if follower in ("-", "_") else character
        else:
            piece = character if _ALLOWED.fullmatch(character) else _escaped(character)
        written.append(piece)
        follower = piece[0]
    written.reverse()
    return written


@lru_cache(maxsize=1024)
def decode_name(name: str) -> str:
    """Return the tool name in the log for the wire name ``name``.

    It reverses ``encode_name`` exactly. Names that ``encode_name`` did not write are decoded too. Encoding such a name
    again may give another text. In that case, the caller stores the wire name too.
    """
    return name if "-" not in name else _ESCAPE.sub(_unescaped, name)


def _escaped(character: str) -> str:
    return f"-_{ord(character):x}-"


def _unescaped(match: re.Match[str]) -> str:
    digits = match.group(1)
    if digits is None:
        return "."
    code_point = int(digits, 16)
    if code_point > _LARGEST_CODE_POINT or code_point in _SURROGATES:
        return match.group()
    return chr(code_point)


def _with_digest(written: str, name: str, longest: int) -> str:
    digest = _digest(name)
    return f"{written[: max(longest - len(digest) - 1, 0)]}-{digest}"


def _digest(name: str) -> str:
    return hashlib.blake2b(name.encode(), digest_size=_DIGEST_SIZE).hexdigest()
