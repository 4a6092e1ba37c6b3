"""Finds the conflicts of one record when it is written, and of all records in slices of bounded work."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from agent_memory_log.memory.conflicts.claims import Claim, read_claim
from agent_memory_log.memory.conflicts.comparing import Difference, compare
from agent_memory_log.memory.conflicts.index import Claims, claims_of, is_clause, lives_of, sentence_of, worded_at
from agent_memory_log.memory.records.reports.conflicts import RECONCILED, Conflict, ConflictsSlice
from agent_memory_log.memory.stream.state import Live, State

MOST_CONFLICTS = 8
"""The most conflicts of a record with older ones. The most similar ones count."""


def conflicts_of(state: State, live: Live, now: datetime) -> tuple[Conflict, ...]:
    """Return the conflicts of a record with older active records of the state, the most similar first.

    The record may be new, so that the state does not hold it yet. Its work is bounded, however many records there are.
    """
    claims = claims_of(state)
    return conflicts_among(claims, live, lives_of(state, claims.candidates(live)), now)


def conflicts_in(state: State, now: datetime, after: int, limit: int) -> ConflictsSlice:
    """Return the conflicts of the next records of a state, each with older records. So each pair is found once.

    Args:
        state: The state.
        now: The current time. Records that have expired have no conflicts.
        after: The position of the earlier slice. 0: begin with the first record.
        limit: The most records of the slice.
    """
    conflicts: list[Conflict] = []
    position, count = after, 0
    for live in lives_of(state, claims_of(state).after(after)):
        if count == limit:
            return ConflictsSlice(tuple(conflicts), position, more=True)
        conflicts += conflicts_of(state, live, now)
        position, count = worded_at(live), count + 1
    return ConflictsSlice(tuple(conflicts), position, more=False)


def conflicts_among(claims: Claims, live: Live, older_lives: Iterable[Live], now: datetime) -> tuple[Conflict, ...]:
    """Return the conflicts of a record with some older records."""
    if live.is_expired(now):
        return ()
    conflicts: list[Conflict] = []
    claim: Claim | None = None
    for other in older_lives:
        if other.is_expired(now) or not _overlap(other, live) or _is_reconciled(other, live):
            continue
        claims.compared += 1
        claim = claim or claims.claim(live)
        difference = compare(claims.claim(other), claim)
        # Two keys are two attributes, so each has its own value.
        if difference is None or (difference.kind == "changed" and not (is_clause(other) or is_clause(live))):
            continue
        conflicts.append(Conflict(live.id, other.id, difference.kind, difference.reason))
        if len(conflicts) == MOST_CONFLICTS:
            break
    return tuple(conflicts)


def difference_of(older: Live, newer: Live) -> Difference | None:
    """Return the difference between two records, or None if the words of both can be true."""
    return compare(read_claim(sentence_of(older)), read_claim(sentence_of(newer)))


def _overlap(older: Live, newer: Live) -> bool:
    """Return whether the times at which both are true overlap."""
    first, second = older.memory, newer.memory
    begins_in_time = first.valid_until is None or second.valid_from is None or second.valid_from < first.valid_until
    ends_in_time = second.valid_until is None or first.valid_from is None or first.valid_from < second.valid_until
    return begins_in_time and ends_in_time


def _is_reconciled(older: Live, newer: Live) -> bool:
    return any(link.type == RECONCILED and link.target == older.id for link in newer.memory.links)
