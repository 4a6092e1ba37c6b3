"""What shows that an answer follows a memory: a table from keys to tests of the text.

A key without a verifier proves nothing and blocks nothing, and so does a value that its verifier has no test for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from agent_memory_log.memory.policy import Verifier
from agent_memory_log.memory.records.kinds import fold_text

_CONCISE_WORDS = 80
_CONCISE_SENTENCES = 3
_ENGLISH_OPENING = "Incident update:"

# The point inside a number or a name ends no sentence: white space must follow. A row of marks is looked at once.
_sentence_end = re.compile(r"(?<![.!?])[.!?]++[\"')\]]*+(?=\s|\Z)")


def names_channel(value: str, answer: str) -> bool | None:
    """Whether the channel is named, as a word of its own."""
    named = fold_text(value)
    return re.search(rf"(?<!\w){re.escape(named)}(?!\w)", fold_text(answer)) is not None if named else None


def is_concise(value: str, answer: str) -> bool | None:
    """For ``concise``: at most 80 words and 3 sentences."""
    if fold_text(value) != "concise":
        return None
    return len(answer.split()) <= _CONCISE_WORDS and _sentences(answer) <= _CONCISE_SENTENCES


def is_english_update(value: str, answer: str) -> bool | None:
    """For ``english``: begins with ``Incident update:``."""
    if fold_text(value) not in {"english", "en"}:
        return None
    return answer.lstrip().startswith(_ENGLISH_OPENING)


VERIFIERS: Mapping[str, Verifier] = {
    "update_channel": names_channel,
    "response_style": is_concise,
    "language": is_english_update,
}
"""The verifiers by key, compared trimmed and case-folded."""


def _sentences(text: str) -> int:
    ends = len(_sentence_end.findall(text))
    rest = _sentence_end.split(text)[-1]
    return ends + bool(rest.strip())
