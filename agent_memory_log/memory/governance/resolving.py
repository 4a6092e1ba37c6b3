"""Lists the conflicts of a memory, resolves them and opens them again. Nothing is erased, so all can be undone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import cache, partial
from typing import Literal

import msgspec

from agent_memory_log.errors import InvalidArgument, MemoryStopped
from agent_memory_log.events.fields import in_quotes
from agent_memory_log.memory.conflicts.finding import difference_of
from agent_memory_log.memory.conflicts.trust import trust_in
from agent_memory_log.memory.learning.deciding import Decisions
from agent_memory_log.memory.learning.judging import judge_one
from agent_memory_log.memory.learning.merging import can_merge, combined
from agent_memory_log.memory.learning.writing import decided
from agent_memory_log.memory.operations import ListConflicts, Resolve, Unresolve
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.kinds import Fact, Preference
from agent_memory_log.memory.records.record import RESTORES, Link, Source, envelope_of, links_without
from agent_memory_log.memory.records.reports.conflicts import CONTRADICTS, RECONCILED, ConflictPair
from agent_memory_log.memory.records.reports.outcomes import Outcome
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.history import Closed, record_of
from agent_memory_log.memory.stream.payloads import MemoryChanged
from agent_memory_log.memory.stream.state import Live, State
from agent_memory_log.memory.upkeep.archiving import repeated
from agent_memory_log.steps import Steps, work

RESOLVED = "resolved"
"""The reason of a record that is archived because ``resolve`` kept another one."""

REOPENED = "reopened"
"""The reason of a merged record that is archived because ``unresolve`` brought its parts back."""

_Lives = Mapping[str, tuple[Live, Closed | None]]


class _Linked(msgspec.Struct, frozen=True):
    """Two records with a link ``contradicts`` or ``reconciled``, and why each was closed, if it was."""

    newer: Live
    older: Live
    link: str
    newer_end: Closed | None
    older_end: Closed | None

    @property
    def records(self) -> frozenset[str]:
        """The ids of the two records."""
        return frozenset((self.newer.id, self.older.id))

    @property
    def resolution(self) -> Literal["", "newer", "older", "both", "merged"] | None:
        """The record that was kept, ``""`` for an open conflict, or None if a record ended for another reason."""
        newer_end, older_end = self.newer_end, self.older_end
        if newer_end is None and older_end is None:
            return "both" if self.link == RECONCILED else ""
        if any(closed is not None and closed.reason != RESOLVED for closed in (newer_end, older_end)):
            return None
        if newer_end is not None and older_end is not None:
            return "merged" if newer_end.by == older_end.by else None
        return "newer" if newer_end is None else "older"


def _linked(lives: _Lives) -> Iterator[_Linked]:
    """Yield the pairs in conflict, also the resolved ones, without records that were restored since."""
    restored = {link.target for live, _ in lives.values() for link in live.memory.links if link.type == RESTORES}
    for live, closed in lives.values():
        for link in live.memory.links:
            if link.type in {CONTRADICTS, RECONCILED} and link.target in lives:
                other, other_closed = lives[link.target]
                if live.id not in restored and other.id not in restored:
                    first, second = (live, closed), (other, other_closed)
                    (older, older_end), (newer, newer_end) = sorted((first, second), key=lambda side: _stated(side[0]))
                    yield _Linked(newer, older, link.type, newer_end, older_end)


def _stated(live: Live) -> tuple[datetime, int]:
    return live.memory.valid_from or live.created, live.seq


def list_conflicts(context: Context, call: ListConflicts) -> Steps[tuple[ConflictPair, ...]]:
    """Return the open or the resolved conflicts, by scope, then in the order of the stream."""
    pairs: list[ConflictPair] = []
    for scope in context.readable(call.scopes):
        subject = context.subject(scope)
        if call.status == "resolved":
            ledger = yield from subject.ledger()
            pairs += _pairs(ledger.state, ledger.by_id(), scope, context.hooks.now(), is_open=False)
        else:
            yield from subject.refresh()
            pairs += subject.ask(partial(_open_pairs, scope, context.hooks.now()))
    return tuple(pairs)


def _open_pairs(scope: str, now: datetime, state: State) -> list[ConflictPair]:
    return _pairs(state, _of_state(state, now), scope, now, is_open=True)


def count_open(state: State, now: datetime) -> int:
    """Return the number of open conflicts."""
    return sum(linked.resolution == "" for linked in _linked(_of_state(state, now)))


def _of_state(state: State, now: datetime) -> _Lives:
    return {live.id: (live, None) for live in state.records.values() if not live.is_expired(now)}


def _pairs(state: State, lives: _Lives, scope: str, now: datetime, *, is_open: bool) -> list[ConflictPair]:
    trust = _trust_at(state, now)
    return [
        _pair(lives, linked, scope, now, trust)
        for linked in _linked(lives)
        if (linked.resolution == "") == is_open and linked.resolution is not None
    ]


def _trust_at(state: State, now: datetime) -> Callable[[str], float]:
    """Return a function that computes the trust in each record once. A closed record has no trust."""

    @cache
    def trust(record: str) -> float:
        return trust_in(state, state.records[record], now).value if record in state.records else 0.0

    return trust


def _pair(lives: _Lives, linked: _Linked, scope: str, now: datetime, trust: Callable[[str], float]) -> ConflictPair:
    difference = difference_of(linked.older, linked.newer)
    end = linked.newer_end
    merged = lives.get(end.by) if end is not None and linked.resolution == "merged" else None
    return ConflictPair(
        record_of(linked.newer, end, scope, now),
        record_of(linked.older, linked.older_end, scope, now),
        "contradiction" if difference is None else difference.kind,
        "linked" if difference is None else difference.reason,
        (trust(linked.newer.id), trust(linked.older.id)),
        "resolved" if linked.resolution else "open",
        linked.resolution or "",
        None if merged is None else merged[0].record(scope, now),
    )


def resolve(context: Context, call: Resolve) -> Steps[ConflictPair]:
    """End a conflict, unless it has ended. Returns the pair as it is then."""
    records = frozenset((call.id, call.other))
    scope, linked = yield from _find(context, records)
    if not linked.resolution:
        candidate = (yield from _merged(context, scope, linked, call)) if call.keep == "merged" else None

        def decide(decisions: Decisions) -> list[Outcome]:
            first, second = (decisions.state.active(record, decisions.now) for record in (call.id, call.other))
            if first is not None and second is not None:
                _end(decisions, call, first, second, candidate)
            return decisions.outcomes

        for blocked in (yield from decided(context, scope, decide, "resolve")):
            raise MemoryStopped(f"the memory is not allowed: {blocked.reason}", reason=blocked.reason)
    return (yield from _one_pair(context, scope, records))


def _end(decisions: Decisions, call: Resolve, first: Live, second: Live, merged: Candidate | None) -> None:
    if merged is not None:
        decisions.consolidate(merged, (first, second), RESOLVED)
    elif call.keep == "both":
        _relink(decisions, (first, second), CONTRADICTS, RECONCILED)
    else:
        winner, loser = (first, second) if call.keep == "first" else (second, first)
        decisions.close([loser], "archived", by=winner.id, reason=RESOLVED)


def _relink(decisions: Decisions, lives: tuple[Live, Live], old: str, new: str) -> None:
    """Change the type of the links between two records."""
    for live, other in (lives, lives[::-1]):
        links = tuple(Link(new, other.id) if link == Link(old, other.id) else link for link in live.memory.links)
        if links != live.memory.links:
            decisions.add(MemoryChanged(live.id, ("links",), links=links))


def unresolve(context: Context, call: Unresolve) -> Steps[ConflictPair]:
    """Open a resolved conflict again, unless it is open. Returns the pair as it is then."""
    records = frozenset((call.id, call.other))
    scope, linked = yield from _find(context, records)
    if linked.resolution:
        archived = [
            (live.id, _checked(context, repeated(live.record_as(scope, "archived"))))
            for live, closed in ((linked.older, linked.older_end), (linked.newer, linked.newer_end))
            if closed is not None
        ]

        def decide(decisions: Decisions) -> list[str]:
            active = decisions.state.records
            if not archived:
                _relink(decisions, (linked.newer, linked.older), RECONCILED, CONTRADICTS)
            merged = active.get(linked.newer_end.by) if linked.resolution == "merged" and linked.newer_end else None
            if merged is not None:
                decisions.close([merged], "archived", reason=REOPENED)
            other = next((record for record in records if record in active), "")
            written: list[str] = []
            for _, candidate in archived:
                other = _bring_back(decisions, candidate, other)
                written.append(other)
            archiving = (outcome.record for outcome in decisions.outcomes if outcome.action == "archived")
            if any(record is not None and record.id in (*records, *written) for record in archiving):
                raise InvalidArgument(
                    "the conflict cannot be opened again: the memory is full, so one of its records would be archived. "
                    "Delete another record first, or raise the limit"
                )
            return written

        written = yield from decided(context, scope, decide, "unresolve")
        records = (records - {record for record, _ in archived}).union(written)
    return (yield from _one_pair(context, scope, records))


def _bring_back(decisions: Decisions, candidate: Candidate, other: str) -> str:
    """Write an archived record again, with a link to the other one of the pair. Returns its new id."""
    links = links_without(candidate.links, {CONTRADICTS})
    if other:
        links = (*links, Link(CONTRADICTS, other))
    outcome = decisions.write(msgspec.structs.replace(candidate, links=links))
    if outcome is None or outcome.record is None or outcome.action != "written":
        problem = outcome and outcome.action
        raise InvalidArgument(f"the conflict cannot be opened again: the archived record is {problem}")
    return outcome.record.id


def _find(context: Context, records: frozenset[str]) -> Steps[tuple[str, _Linked]]:
    """Return the conflict between two records, open or resolved, and its scope. Raises ``InvalidArgument``."""
    for scope in context.readable(None):
        ledger = yield from context.subject(scope).ledger()
        for linked in _linked(ledger.by_id()):
            if linked.records == records and linked.resolution is not None:
                return scope, linked
    raise InvalidArgument(f"there is no conflict between the records {' and '.join(map(in_quotes, sorted(records)))}")


def _one_pair(context: Context, scope: str, records: frozenset[str]) -> Steps[ConflictPair]:
    ledger = yield from context.subject(scope).ledger()
    lives = ledger.by_id()
    for linked in _linked(lives):
        if linked.records == records:
            now = context.hooks.now()
            return _pair(lives, linked, scope, now, _trust_at(ledger.state, now))
    raise InvalidArgument("a record of the conflict is no longer there: another writer changed or forgot it")


def _merged(context: Context, scope: str, linked: _Linked, call: Resolve) -> Steps[Candidate]:
    """Return the checked candidate that replaces both records, with the evidence of both."""
    now = context.hooks.now()
    newer, older = linked.newer.record(scope, now), linked.older.record(scope, now)
    candidate = Candidate(newer.data, scope, **envelope_of(newer, links=(), valid_from=None))
    text, merger = call.text.strip(), context.hooks.merger
    if text:
        candidate = msgspec.structs.replace(candidate, source=Source("user"))
    elif merger is not None and can_merge(older.data, newer.data):
        try:
            text = (yield from work(lambda: merger.merge(older, candidate))) or ""
        except Exception as error:  # a merger is user code
            raise InvalidArgument(
                f"the merger raised {type(error).__name__}: pass text, the statement to keep"
            ) from error
    if not text:
        raise InvalidArgument("text is missing: pass the statement that replaces the two records")
    if isinstance(newer.data, (Preference, Fact)):
        merged = msgspec.structs.replace(candidate, data=msgspec.structs.replace(newer.data, value=text), text="")
    else:
        merged = msgspec.structs.replace(candidate, text=text)
    return _checked(context, combined(older, merged))


def _checked(context: Context, candidate: Candidate) -> Candidate:
    """Return a candidate after redaction, policy and execution. Raises ``MemoryStopped`` if one of them refuses it."""
    judged = judge_one(context, candidate, "remember")
    if judged.reason:
        raise MemoryStopped(f"the memory is not allowed: {judged.reason}", reason=judged.reason)
    return judged.candidate
