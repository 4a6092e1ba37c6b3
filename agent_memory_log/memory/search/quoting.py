"""Writes stored text as JSON in which it cannot end its quotes, its line or the block, and cannot pass for a mark.

Invisible characters are escaped, and so are characters that could pass for a mark of a block or of a model's turn. This
also holds after Unicode normalization, which some tokenizers apply.
"""

from __future__ import annotations

import re
import unicodedata

from agent_memory_log.events.jsonvalue import encode_json

_MARKS = frozenset('<>"\\[]')
"""Characters that no other character may normalize to. Some tokenizers use NFKC, which makes U+FF1C a ``<``."""

_turn = re.compile(r"\[(?=/?[A-Z_]+])")
"""The start of a mark such as ``[INST]``, which begins a turn for some models."""

_invisible = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Characters that Python considers printable but that are invisible. Text could be hidden in them."""


def safe_json(value: object) -> str:
    """Return a JSON value as one line of JSON, with every character escaped that could start or end a mark."""
    encoded = _turn.sub(r"\\u005b", encode_json(value).decode())
    return "".join(character if _is_safe(character) else _escaped(character) for character in encoded)


def quoted(text: str, longest: int) -> str:
    """Return a text as a JSON string. A text of more than ``longest`` characters is cut."""
    return safe_json(text if len(text) <= longest else text[: longest - 1] + "…")


def _is_safe(character: str) -> bool:
    if character.isascii():
        return character.isprintable() and character not in "<>"
    return (
        character.isprintable()
        and not _invisible.match(character)
        and _MARKS.isdisjoint(unicodedata.normalize("NFKD", character))
    )


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[index] << 8 | units[index + 1]:04x}" for index in range(0, len(units), 2))
