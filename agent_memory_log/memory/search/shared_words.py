"""Searching records without the extra ``recall``: those that share words with the question."""

from __future__ import annotations

import re
from datetime import datetime

from agent_memory_log.memory.operations import Search
from agent_memory_log.memory.records.kinds import Preference, fold_key, fold_keys
from agent_memory_log.memory.records.record import Record
from agent_memory_log.memory.records.reports import Hit

SHARED_WORDS = "shared_words"
PREFERENCE = 0.5
"""What a preference gains whose key is boosted, whether it shares a word or not; as with the extra."""

_words = re.compile(r"\w+").findall


def hit_of(record: Record, call: Search) -> Hit | None:
    """The record as a hit, by the share of the question's words that it has; None if it is none."""
    if call.kinds is not None and record.kind not in call.kinds:
        return None
    time = record.valid_from or record.created
    if record.stars < call.min_importance or not _is_within(time, call.since, call.until):
        return None
    words = set(_words(call.query.casefold()))
    text = " ".join((record.text, record.key.replace("_", " "), *record.tags, *record.entities))
    shared = len(words.intersection(_words(text.casefold())))
    parts: dict[str, float] = {}
    if record.kind == Preference.kind and fold_key(record.key) in fold_keys(call.boost_preferences):
        parts["preference"] = PREFERENCE
    if shared:
        parts[SHARED_WORDS] = shared / len(words)
    return Hit(sum(parts.values()), parts, record) if parts else None


def _is_within(time: datetime, since: datetime | None, until: datetime | None) -> bool:
    return (since is None or time >= since) and (until is None or time < until)
