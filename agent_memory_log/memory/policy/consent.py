"""Decides whether the consents of a subject allow a memory.

A consent is a record of the kind ``consent`` about a kind of memory, or about one key of a kind. The consent for the
key comes first. Without a consent, a memory is allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.kinds import Consent
from agent_memory_log.memory.stream.state import Live

ONLY_BY_CONSENT_CALLS = "consent_by_its_own_calls_only"
"""The reason to block a consent that comes from ``remember``, ``write`` or an extractor."""

FindByKey = Callable[[str, str], Live | None]
"""A function that returns the active record of a kind with a key."""


def consent_of(kind: str, key: str, find: FindByKey) -> Live | None:
    """Return the consent that decides about a kind and a key. Return None without one."""
    for about in dict.fromkeys((key, "")):
        live = find(Consent.kind, Consent(kind, about).record_key)
        if live is not None:
            return live
    return None


def consent_refusal(candidate: Candidate, find: FindByKey, now: datetime) -> str:
    """Return the reason to block a candidate for which consent was asked or withdrawn or has expired, or ``""``."""
    if candidate.data.kind == Consent.kind:
        return ""
    live = consent_of(candidate.data.kind, candidate.key, find)
    if live is None:
        return ""
    data = live.data
    status = data.status if isinstance(data, Consent) else "unknown"
    if status != "given":
        return f"consent_{status}"
    return "consent_expired" if live.is_expired(now) else ""
