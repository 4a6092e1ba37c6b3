"""Tool names and call ids on the wire: every provider allows a small alphabet, ours are any text.

Our tool names are ``toolset.tool``. On the wire a dot is two hyphens, as in ``toolset--tool``, any other foreign
character ``-_``, its code point in hex and ``-``; a hyphen that would be read as the beginning of either is written
like a foreign character. So no two names meet, every name can be read back, and names a provider takes stand for
themselves but for a few odd ones (``mcp__server__tool`` is none of them). Call ids are written alike, but need not be
read back: the log pairs them itself.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache

import msgspec

PROVIDERS = frozenset({"anthropic", "bedrock", "openai-chat", "openai-responses"})
"""The names under which payloads keep in ``structured`` what a provider had beside them."""

_PLAIN = re.compile(r"[a-zA-Z0-9_]*(?:-[a-zA-Z0-9][a-zA-Z0-9_]*)*-?", re.ASCII)
_ALLOWED = re.compile(r"[a-zA-Z0-9_-]+", re.ASCII)
is_in_alphabet = _ALLOWED.fullmatch
"""Whether text is not empty and of the characters alone that names may have everywhere."""

_ESCAPE = re.compile(r"--|-_([0-9a-f]{1,6})-", re.ASCII)
_DIGEST_SIZE = 6
_LARGEST_CODE_POINT = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


class WireRules(msgspec.Struct, frozen=True):
    """What a provider allows in its messages.

    ``longest_name`` and ``longest_id`` in characters (0: any length); ``ids_in_alphabet``: whether ids are limited to
    letters, digits, ``_`` and ``-``, as tool names are everywhere; ``unique_ids``: whether an id may stand for one call
    only in a whole transcript.
    """

    longest_name: int
    longest_id: int = 0
    ids_in_alphabet: bool = True
    unique_ids: bool = False

    def allows_name(self, name: str) -> bool:
        """Whether ``name``, as it stands on the wire, is one the provider takes."""
        return len(name) <= self.longest_name and _ALLOWED.fullmatch(name) is not None

    def allows_id(self, call_id: str) -> bool:
        """Whether ``call_id``, as it stands on the wire, is one the provider takes."""
        if self.longest_id and len(call_id) > self.longest_id:
            return False
        return _ALLOWED.fullmatch(call_id) is not None if self.ids_in_alphabet else bool(call_id)

    def wire_id(self, call_id: str) -> str:
        """The id on the wire of a call with our ``call_id``; itself where the provider takes it."""
        if self.allows_id(call_id) or not call_id:
            return call_id
        written = encode_name(call_id) if self.ids_in_alphabet else call_id
        if not self.longest_id or len(written) <= self.longest_id:
            return written
        return _with_digest(written, call_id, self.longest_id)

    def short_name(self, name: str) -> str:
        """A name the provider takes in place of ``name``, which stands on the wire and is not; for repair alone.

        Foreign characters are escaped, what is too long is cut and ends in a digest of the whole: not to be read back.
        """
        written = name if _ALLOWED.fullmatch(name) else encode_name(name) or "unnamed"
        return written if len(written) <= self.longest_name else _with_digest(written, name, self.longest_name)


class UnusedIds:
    """Gives calls ids on the wire that no other call has: one that is taken gets a number."""

    __slots__ = ("_numbers", "_rules", "used")

    def __init__(self, rules: WireRules, used: Iterable[str] = ()) -> None:
        """``used`` are the ids that are taken."""
        self.used = set(used)
        self._rules = rules
        self._numbers: dict[str, int] = {}

    def unused(self, wire: str) -> str:
        """``wire``, or else the first id made of it that is not taken; it is taken then."""
        unused = wire
        while unused in self.used:
            self._numbers[wire] = number = self._numbers.get(wire, 1) + 1
            unused = self._rules.wire_id(f"{wire}-{number}")
        self.used.add(unused)
        return unused


@lru_cache(maxsize=1024)
def encode_name(name: str) -> str:
    """Our tool name as it stands on the wire; ``decode_name`` gives it back."""
    if _PLAIN.fullmatch(name):
        return name
    return "".join(_encoded(name))


def _encoded(name: str) -> list[str]:
    written: list[str] = []
    follower = ""
    for character in reversed(name):  # what follows a hyphen decides how it is written
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
    """Our name of a tool that is called ``name`` on the wire.

    For any name that ``encode_name`` wrote, the name it was given. Of others the escapes are read too; where that could
    not be written the same way again, the caller keeps the wire's name beside ours.
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


def _with_digest(written: str, whole: str, longest: int) -> str:
    digest = hashlib.blake2b(whole.encode(), digest_size=_DIGEST_SIZE).hexdigest()
    return f"{written[: longest - len(digest) - 1]}-{digest}"
