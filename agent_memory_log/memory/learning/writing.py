"""Writes memories: redacts, asks policy and execution, decides, and appends. A write that conflicts is retried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

import msgspec

from agent_memory_log.errors import VersionConflict
from agent_memory_log.events.event import new_event
from agent_memory_log.memory.learning.deciding import Decisions
from agent_memory_log.memory.learning.judging import Judged, judge
from agent_memory_log.memory.learning.merging import Merging
from agent_memory_log.memory.operations import NoteStop, Write
from agent_memory_log.memory.records.candidates import Candidate, evidence_of
from agent_memory_log.memory.records.protocols import Origin, Violation
from agent_memory_log.memory.records.record import MERGES, RESTORES, Evidence, links_without
from agent_memory_log.memory.records.reports.conflicts import RECONCILED
from agent_memory_log.memory.records.reports.outcomes import Outcome, WriteReport
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.evidence import erased_evidence
from agent_memory_log.memory.stream.payloads import MemoryBlocked, MemoryDerived, MemoryUsed
from agent_memory_log.memory.stream.purging import settle
from agent_memory_log.memory.stream.state import State
from agent_memory_log.steps import Steps

EVIDENCE_ERASED = "evidence_erased"
"""The reason to block a candidate whose evidence was redacted, or deleted with its run."""

OWN_LINKS = frozenset({MERGES, RESTORES, RECONCILED})
"""The types of links that only the library writes: they decide which records fall, return or are in conflict."""

_ATTEMPTS = 500
_AT_ONCE = 500
"""The most candidates in one append."""

_Answer = TypeVar("_Answer")


def write_candidates(context: Context, call: Write) -> Steps[WriteReport]:
    """Write the candidates of a call."""
    return (yield from write(context, call.candidates, origin=call.origin, phase=call.phase))


def note_stopped(context: Context, call: NoteStop) -> Steps[None]:
    """Record that a caller stopped a memory."""
    violation = Violation(call.reason, call.key, call.scope or "")
    evidence = evidence_of(call.evidence, "evidence")
    yield from note_stop(context, violation, phase=call.phase, evidence=evidence)


def write(
    context: Context,
    candidates: Sequence[Candidate],
    *,
    origin: Origin,
    phase: str,
    position: MemoryDerived | None = None,
    fresh: bool = False,
    kept_links: frozenset[str] = frozenset(),
) -> Steps[WriteReport]:
    """Write the allowed candidates. Candidates of one scope share an append, at most 500 in each.

    Args:
        context: The client's context.
        candidates: The candidates.
        origin: The kind of call that proposes them.
        phase: The phase that is stored with blocked candidates.
        position: The position that was reached in a run. It is stored in the same append, in the home scope and in each
            scope that is written to. Candidates whose evidence is at or before a stored position are left out,
            because they were written with that position.
        fresh: Whether the home scope was just read. It is then read again only after a conflict.
        kept_links: The types of ``OWN_LINKS`` that the candidates keep. Their other links of these types are left out.

    Returns:
        The outcome of each candidate, or the status ``stopped`` if the policy stopped the call.

    Raises:
        InvalidArgument: A candidate cannot be stored. Nothing was written.
    """
    judged = judge(context, candidates, origin)
    if isinstance(judged, Violation):
        yield from note_stop(context, judged, phase=phase)
        return WriteReport("stopped", judged.reason)
    erased = yield from erased_evidence(item for candidate in candidates for item in candidate.evidence)
    merging = None if context.hooks.merger is None else Merging(context, context.hooks.merger, origin)
    outcomes: tuple[Outcome, ...] = ()
    by_scope: dict[str, list[Judged]] = {}
    for item in (_without_links(item, OWN_LINKS - kept_links) for item in judged):
        # A candidate for a scope that is not the principal's is blocked. The block is stored in the home scope.
        scope = item.candidate.scope if item.candidate.scope in context.principal.scopes else context.principal.home
        by_scope.setdefault(scope, []).append(item)
    # Home comes last, because its position means that all scopes were written.
    for scope in reversed(context.all_scopes()):
        group = by_scope.get(scope, [])
        if not group and (position is None or scope != context.principal.home):
            continue
        parts = [group[begin : begin + _AT_ONCE] for begin in range(0, len(group), _AT_ONCE)] or [[]]
        for number, part in enumerate(parts, 1):
            is_fresh = fresh and scope == context.principal.home and number == 1
            reached = position if number == len(parts) else None
            added = yield from _write_scope(context, scope, part, phase, reached, merging, erased, fresh=is_fresh)
            outcomes = _with_latest_records([*outcomes, *added])
    return WriteReport("ok", "", outcomes)


def _with_latest_records(outcomes: Sequence[Outcome]) -> tuple[Outcome, ...]:
    """Return the outcomes, where a record that was only met again is in the last outcome about it.

    Each form of a record has all evidence so far, so a fact that a run states n times would be reported n² times.
    """
    last = {outcome.record.id: place for place, outcome in enumerate(outcomes) if outcome.record is not None}
    return tuple(
        msgspec.structs.replace(outcome, record=None)
        if outcome.action != "written" and outcome.record is not None and last[outcome.record.id] != place
        else outcome
        for place, outcome in enumerate(outcomes)
    )


def _without_links(item: Judged, types: frozenset[str]) -> Judged:
    links = links_without(item.candidate.links, types)
    if len(links) == len(item.candidate.links):
        return item
    return Judged(msgspec.structs.replace(item.candidate, links=links), item.reason)


def _write_scope(
    context: Context,
    scope: str,
    group: Sequence[Judged],
    phase: str,
    position: MemoryDerived | None,
    merging: Merging | None,
    erased: frozenset[Evidence],
    *,
    fresh: bool,
) -> Steps[list[Outcome]]:
    def decide(decisions: Decisions) -> list[Outcome]:
        state = decisions.state
        read = state.positions.get((position.agent, position.run), 0) if position is not None else 0
        for item in group:
            if position is not None and item.candidate.evidence and _is_read(item.candidate, position, read):
                continue
            evidence = item.candidate.evidence
            is_erased = evidence and erased.issuperset(evidence) and not any(map(state.is_forgotten, evidence))
            reason = item.reason or (EVIDENCE_ERASED if is_erased else "")
            if reason:
                decisions.block(item.candidate, reason)
            else:
                decisions.write(item.candidate)
        at_home = scope == context.principal.home
        # A run is linked even if its position did not advance. It may contain context from memory, which forgetting
        # must reach.
        if position is not None and (
            position.seq > read or (at_home and (position.agent, position.run) not in state.linked)
        ):
            decisions.add(position if at_home else msgspec.structs.replace(position, linked=False))
        return decisions.outcomes

    return (yield from decided(context, scope, decide, phase, merging=merging, fresh=fresh))


def _is_read(candidate: Candidate, position: MemoryDerived, read: int) -> bool:
    """Return whether all of the candidate's evidence in the run was read before."""
    seqs = [evidence.seq for evidence in candidate.evidence if evidence.run_id == (position.agent, position.run)]
    return bool(seqs) and max(seqs) <= read


def decided(
    context: Context,
    scope: str,
    decide: Callable[[Decisions], _Answer],
    phase: str = "",
    *,
    merging: Merging | None = None,
    fresh: bool = False,
    uses_alone: bool = False,
) -> Steps[_Answer]:
    """Decide on the newest state, append the decided events, and return the result of ``decide``.

    After a version conflict, the state is read and decided on again. If the decisions need a merger, it is asked
    first, and then everything is decided again with its answer. The append also notes which records were used since
    the last one.

    Args:
        context: The client's context.
        scope: The scope.
        decide: Makes the decisions. It is called again for each attempt.
        phase: The phase that is stored with blocked candidates.
        merging: The merger's answers. None: there is no merger.
        fresh: Whether the state was just read. Then the first attempt does not read it.
        uses_alone: Whether to append the uses of records even if nothing was decided.
    """
    subject = context.subject(scope)
    attempt = 0

    def attempt_at(now: datetime, state: State) -> tuple[int, Decisions, _Answer]:
        decisions = Decisions(context, scope, state, now, phase, merging)
        return state.version, decisions, decide(decisions)

    while True:
        if not fresh or attempt:
            yield from subject.refresh()
        now = context.hooks.now()
        yield from settle(subject, now)
        version, decisions, answer = subject.ask(partial(attempt_at, now))
        if decisions.question is not None:
            yield from decisions.question()
            fresh = False  # a merger is slow, so read the state again
            continue
        used = subject.uses_to_store(now) if decisions.events or uses_alone else ()
        events = [new_event(MemoryUsed(used), timestamp=now), *decisions.events] if used else decisions.events
        if not events:
            return answer
        try:
            yield from subject.commit(events, version)
        except VersionConflict:
            attempt += 1
            if attempt == _ATTEMPTS:
                raise
            continue
        subject.drop_uses(used)
        yield from subject.keep_opening_fast(now)
        return answer


def store_uses(context: Context) -> Steps[None]:
    """Store which records were used, if the context has noted uses."""
    for scope in context.all_scopes():
        if context.subject(scope).has_uses:
            yield from decided(context, scope, lambda _: None, uses_alone=True)


def note_stop(
    context: Context, violation: Violation, *, phase: str, evidence: tuple[Evidence, ...] = ()
) -> Steps[None]:
    """Record a stopped call in the violation's scope if it is the principal's, otherwise in the home scope."""
    scope = violation.scope if violation.scope in context.principal.scopes else context.principal.home
    note = MemoryBlocked(
        reason=violation.reason,
        key=violation.key,
        scope=violation.scope or scope,
        stopped=True,
        phase=phase,
        evidence=evidence,
    )
    yield from decided(context, scope, lambda decisions: decisions.add(note))


def change(context: Context, scope: str, record: str, candidate: Candidate, names: Sequence[str]) -> Steps[WriteReport]:
    """Change the named fields of a record. The changed record passes the same checks as every candidate."""
    judged = judge(context, [candidate], "remember")
    if isinstance(judged, Violation):
        yield from note_stop(context, judged, phase="update")
        return WriteReport("stopped", judged.reason)
    (item,) = judged

    def decide(decisions: Decisions) -> tuple[Outcome, ...]:
        live = decisions.state.records.get(record)
        if item.reason:
            decisions.block(item.candidate, item.reason)
        elif live is not None:
            decisions.change(live, item.candidate, names)
        return tuple(decisions.outcomes)

    return WriteReport("ok", "", (yield from decided(context, scope, decide, "update")))
