"""Checks whether an answer follows a memory. A table maps the keys of memories to functions that test the text.

An audit ignores keys that have no verifier, and values that a verifier cannot test. A verifier returns None for those.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from agent_memory_log.memory.policy import Verifier
from agent_memory_log.memory.records.kinds import fold_text

_CONCISE_WORDS = 80
_CONCISE_SENTENCES = 3
_ENGLISH_OPENING = "incident update:"

# White space must follow the mark, because a point inside a number or a name ends no sentence. The possessive
# quantifiers read a row of marks only once.
_sentence_end = re.compile(r"(?<![.!?])[.!?]++[\"')\]]*+(?=\s|\Z)")

_marks = re.compile(r"\*+|`+|~~|(?<!\w)_+|_+(?!\w)|^[ \t]*(?:#{1,6}|>)[ \t]+", re.MULTILINE)


def names_channel(value: str, answer: str) -> bool | None:
    """Return whether the answer contains the channel as a separate word."""
    channel = fold_text(value)
    return re.search(rf"(?<!\w){re.escape(channel)}(?!\w)", _plain(answer)) is not None if channel else None


def is_concise(value: str, answer: str) -> bool | None:
    """Return for ``concise`` whether the answer has at most 80 words and 3 sentences."""
    if fold_text(value) != "concise":
        return None
    plain = _plain(answer)
    return len(plain.split()) <= _CONCISE_WORDS and _sentences(plain) <= _CONCISE_SENTENCES


def is_english_update(value: str, answer: str) -> bool | None:
    """Return for ``english`` whether the answer begins with ``Incident update:``, in any case and markup."""
    if fold_text(value) not in {"english", "en"}:
        return None
    return _plain(answer).startswith(_ENGLISH_OPENING)


VERIFIERS: Mapping[str, Verifier] = {
    "update_channel": names_channel,
    "response_style": is_concise,
    "language": is_english_update,
}
"""The verifiers by key. The audit compares trimmed and case-folded keys."""


def _plain(answer: str) -> str:
    """Return the text without Markdown marks, in lower case."""
    return fold_text(_marks.sub("", answer))


def _sentences(text: str) -> int:
    ends = len(_sentence_end.findall(text))
    rest = _sentence_end.split(text)[-1]
    return ends + bool(rest.strip())
