"""The one way a memory is written: redact, ask policy, ask execution, decide, append; again when another was faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from agent_memory_log.errors import VersionConflict
from agent_memory_log.memory.learning.deciding import Decisions
from agent_memory_log.memory.learning.judging import Judged, judge
from agent_memory_log.memory.learning.merging import Merging
from agent_memory_log.memory.operations import NoteStop, Write
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.protocols import Origin, Violation
from agent_memory_log.memory.records.record import Evidence
from agent_memory_log.memory.records.reports import Outcome, WriteReport
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.payloads import MemoryBlocked, MemoryDerived
from agent_memory_log.memory.stream.state import State
from agent_memory_log.steps import Steps

_ATTEMPTS = 500
_AT_ONCE = 500
_Decisions = TypeVar("_Decisions", bound=Decisions)


def write_candidates(context: Context, call: Write) -> Steps[WriteReport]:
    """Write what a caller proposes."""
    return (yield from write(context, call.candidates, origin=call.origin, phase=call.phase))


def note_stopped(context: Context, call: NoteStop) -> Steps[None]:
    """Note what a caller stopped."""
    violation = Violation(call.reason, call.key, call.scope or "")
    yield from note_stop(context, violation, phase=call.phase, evidence=call.evidence)


def write(
    context: Context,
    candidates: Sequence[Candidate],
    *,
    origin: Origin,
    phase: str,
    position: MemoryDerived | None = None,
    fresh: bool = False,
) -> Steps[WriteReport]:
    """Write what may be written, each scope's in one append, or several where there are hundreds.

    ``position`` is noted in the same append, in each scope that is written to and at home; candidates whose evidence
    lies at or before a position that was noted already are left out, as they were written then. ``fresh``: home was
    read a moment ago, so that what it is like is looked at again only if another writer was faster. Raises
    ``InvalidArgument`` for a candidate that cannot be stored, before anything is written.
    """
    judged = judge(context, candidates, origin)
    if isinstance(judged, Violation):
        yield from note_stop(context, judged, phase=phase)
        return WriteReport("stopped", judged.reason)
    merging = None if context.hooks.merger is None else Merging(context, context.hooks.merger, origin)
    outcomes: list[Outcome] = []
    by_scope: dict[str, list[Judged]] = {}
    for one in judged:
        # What is for a scope that is not the principal's is noted at home.
        scope = one.candidate.scope if one.candidate.scope in context.principal.scopes else context.principal.home
        by_scope.setdefault(scope, []).append(one)
    # Home comes last: the position there says that all is done.
    for scope in reversed(context.all_scopes()):
        group = by_scope.get(scope, [])
        if not group and (position is None or scope != context.principal.home):
            continue
        parts = [group[begin : begin + _AT_ONCE] for begin in range(0, len(group), _AT_ONCE)] or [[]]
        for number, part in enumerate(parts, 1):
            seen = fresh and scope == context.principal.home and number == 1
            reached = position if number == len(parts) else None
            outcomes += yield from _write_scope(context, scope, part, phase, reached, merging, fresh=seen)
    return WriteReport("ok", "", tuple(outcomes))


def _write_scope(
    context: Context,
    scope: str,
    group: Sequence[Judged],
    phase: str,
    position: MemoryDerived | None,
    merging: Merging | None,
    *,
    fresh: bool,
) -> Steps[list[Outcome]]:
    agent = context.subject(scope).agent

    def decide(state: State, now: datetime) -> Decisions:
        decisions = Decisions(state, scope, now, context.hooks.max_keyed, agent, merging)
        read = state.positions.get((position.agent, position.run), 0) if position is not None else 0
        for one in group:
            if position is not None and one.candidate.evidence and _is_read(one.candidate, position, read):
                continue
            if one.reason:
                decisions.block(one.candidate, one.reason, phase=phase)
            else:
                decisions.write(one.candidate, phase=phase)
        at_home = scope == context.principal.home
        # A run that waits for more is noted too: what it was told from memory is to be found when that is forgotten.
        if position is not None and (
            position.seq > read or (at_home and (position.agent, position.run) not in state.linked)
        ):
            decisions.add(position if at_home else msgspec.structs.replace(position, linked=False))
        return decisions

    decisions = yield from decided(context, scope, decide, fresh=fresh)
    return decisions.outcomes


def _is_read(candidate: Candidate, position: MemoryDerived, read: int) -> bool:
    seqs = [one.seq for one in candidate.evidence if one.run_id == (position.agent, position.run)]
    return bool(seqs) and max(seqs) <= read


def decided(
    context: Context, scope: str, decide: Callable[[State, datetime], _Decisions], *, fresh: bool = False
) -> Steps[_Decisions]:
    """Append what ``decide`` makes of the newest state; again with a newer one when another writer was faster.

    What is left to a merger is asked before anything is appended, and decided again with the answer.
    ``fresh``: the state was read a moment ago; nothing is appended to one that is not the newest.
    """
    subject = context.subject(scope)
    attempt = 0
    while True:
        if not fresh or attempt:
            yield from subject.refresh()
        now = context.hooks.now()
        yield from subject.finish_erasure(now)
        version, decisions = subject.ask(lambda state: (state.version, decide(state, now)))  # noqa: B023  # asked at once
        if decisions.question is not None:
            yield from decisions.question()
            fresh = False  # a merger takes its time
            continue
        if not decisions.events:
            return decisions
        try:
            yield from subject.commit(decisions.events, version)
        except VersionConflict:
            attempt += 1
            if attempt == _ATTEMPTS:
                raise
            continue
        yield from subject.keep_opening_fast(now)
        return decisions


def note_stop(
    context: Context, violation: Violation, *, phase: str, evidence: tuple[Evidence, ...] = ()
) -> Steps[None]:
    """Note that a call was stopped: in the scope it is about, where that is the principal's, else at home."""
    scope = violation.scope if violation.scope in context.principal.scopes else context.principal.home

    def decide(state: State, now: datetime) -> Decisions:
        decisions = Decisions(state, scope, now, None)
        decisions.add(
            MemoryBlocked(
                reason=violation.reason,
                key=violation.key,
                scope=violation.scope or scope,
                stopped=True,
                phase=phase,
                evidence=evidence,
            )
        )
        return decisions

    yield from decided(context, scope, decide)


def change(context: Context, scope: str, record: str, candidate: Candidate, names: Sequence[str]) -> Steps[WriteReport]:
    """Write the named fields of a record's new form, which passes what every candidate passes."""
    judged = judge(context, [candidate], "remember")
    if isinstance(judged, Violation):
        yield from note_stop(context, judged, phase="update")
        return WriteReport("stopped", judged.reason)
    (one,) = judged

    def decide(state: State, now: datetime) -> Decisions:
        decisions = Decisions(state, scope, now, context.hooks.max_keyed)
        live = state.records.get(record)
        if one.reason:
            decisions.block(one.candidate, one.reason, phase="update")
        elif live is not None:
            decisions.change(live, one.candidate, names)
        return decisions

    decisions = yield from decided(context, scope, decide)
    return WriteReport("ok", "", tuple(decisions.outcomes))
