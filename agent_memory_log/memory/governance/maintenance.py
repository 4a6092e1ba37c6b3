"""Carries out rounds of ``maintain``: bounded slices of work, each in one append with the position that it reached.

A round has four steps: bring back parts of fallen records, age, find conflicts, consolidate. Each slice is decided on
the newest state. A process that finds the position ahead of its own slice leaves the slice out. So after a crash the
next call continues at the stored position, and two processes that work at the same time share one round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from agent_memory_log.memory.conflicts.finding import conflicts_in
from agent_memory_log.memory.governance.ageing import strength_of
from agent_memory_log.memory.governance.consolidation import Consolidating, Plan, Returning, groups_of
from agent_memory_log.memory.governance.summaries import candidate_for
from agent_memory_log.memory.learning.deciding import Decisions
from agent_memory_log.memory.learning.writing import decided
from agent_memory_log.memory.operations import Maintain
from agent_memory_log.memory.records.record import Link, Record
from agent_memory_log.memory.records.reports.conflicts import CONTRADICTS, RECONCILED
from agent_memory_log.memory.records.reports.upkeep import MaintainReport, Upkeep
from agent_memory_log.memory.search.index_files import erase_from_index
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.history import Ledger
from agent_memory_log.memory.stream.payloads import MemoryChanged, MemoryMaintained
from agent_memory_log.memory.stream.purging import settle
from agent_memory_log.memory.stream.state import Live, State
from agent_memory_log.steps import Steps

SLICE = 500
"""The number of records of one slice of ageing and of the search for conflicts."""

GROUPS_AT_ONCE = 25
"""The number of groups that one append consolidates."""

RETURN, AGE, CONFLICTS, CONSOLIDATE, DONE = "return", "age", "conflicts", "consolidate", "done"
STEPS = (RETURN, AGE, CONFLICTS, CONSOLIDATE, DONE)

WEAK = "weak"
"""The reason of a record that was archived because it was weak and unused."""

_Decisions = TypeVar("_Decisions", bound=Decisions)
_Answer = TypeVar("_Answer")


def maintain(context: Context, call: Maintain) -> Steps[MaintainReport]:
    """Carry out a round for each readable scope, or continue it. A dry run changes a copy of the state only."""
    report = _Report(call.limit)
    for scope in context.readable(None):
        subject = context.subject(scope)
        yield from subject.refresh()
        if not call.dry_run:
            report.purged += yield from settle(subject, context.hooks.now())
        yield from _Round(context, scope, call, report).carry_out()
        if not call.dry_run:
            yield from erase_from_index(subject, context.indexes.folder)
            yield from subject.keep_opening_fast(context.hooks.now())
    return report.result()


class _Report:
    """The changes so far, and the number of records that the call may still look at."""

    def __init__(self, limit: int | None) -> None:
        self.left = math.inf if limit is None else limit
        self.purged = self.checked = self.remaining = 0
        self.changes: dict[str, list[Upkeep]] = {}

    def add(self, action: str, record: Record, why: str, parts: Sequence[str] = ()) -> None:
        change = Upkeep(record.id, record.scope, record.kind, record.key, why, tuple(parts))
        self.changes.setdefault(action, []).append(change)

    def count(self, records: int) -> None:
        self.checked += records
        self.left -= records

    def result(self) -> MaintainReport:
        changes = {action: tuple(group) for action, group in self.changes.items()}
        return MaintainReport(**changes, purged=self.purged, checked=self.checked, remaining=self.remaining)


class _Slice(Decisions):
    """The decisions of one slice, the changes for the report, and the position that the round then has."""

    def __init__(self, state: State, scope: str, now: datetime) -> None:
        super().__init__(state, scope, now, None)
        self.changes: list[tuple[str, Record, str, tuple[str, ...]]] = []
        self.handled = 0
        self.reached = MemoryMaintained(now, RETURN)


class _Round:
    """One round for one scope."""

    def __init__(self, context: Context, scope: str, call: Maintain, report: _Report) -> None:
        self._context = context
        self._scope = scope
        self._call = call
        self._report = report
        self._subject = context.subject(scope)
        self._copy = self._subject.ask(_copy_of) if call.dry_run else None
        self._stored = self._ask(lambda state: state.maintained)
        self._position = _next_of(self._stored, context.hooks.now())

    def carry_out(self) -> Steps[None]:
        """Do all steps from the stored position on, until the limit is reached."""
        if not self._subject.ask(lambda state: state.version):
            return  # no memory, so nothing is written
        for step in STEPS[:-1]:
            if STEPS.index(step) < STEPS.index(self._position.step):
                continue
            if self._report.left > 0:
                yield from {
                    RETURN: self._return,
                    AGE: self._age,
                    CONFLICTS: self._find_conflicts,
                    CONSOLIDATE: self._consolidate,
                }[step]()
            if self._position.step == step:
                steps_left = len(STEPS) - 2 - STEPS.index(step)
                active = self._ask(lambda state: len(state.records))
                self._report.remaining += self._to_do() + steps_left * active
                return

    def _to_do(self) -> int:
        after = self._position.after
        return self._ask(lambda state: sum(live.seq > after for live in state.records.values()))

    def _ask(self, question: Callable[[State], _Answer]) -> _Answer:
        return self._subject.ask(question) if self._copy is None else question(self._copy)

    def _decided(self, decide: Callable[[State, datetime], _Decisions]) -> Steps[_Decisions]:
        """Decide and append, or in a dry run fold the events into the copy of the state."""
        if self._copy is None:
            return (yield from decided(self._context, self._scope, decide))
        decisions = decide(self._copy, self._context.hooks.now())
        first = self._copy.version + 1
        events = [msgspec.structs.replace(event, seq=seq) for seq, event in enumerate(decisions.events, first)]
        self._copy.fold(events, self._copy.version + len(events))
        return decisions

    def _slice(self, step: str, do: Callable[[_Slice, State, datetime], tuple[str, int]]) -> Steps[bool]:
        """Carry out one slice of a step, unless another process has moved the stored position.

        ``do`` decides and returns the next position. Returns whether the step continues.
        """

        def decide(state: State, now: datetime) -> _Slice:
            part = _Slice(state, self._scope, now)
            if state.maintained in (self._stored, None):
                next_step, after = do(part, state, now)
                part.reached = msgspec.structs.replace(self._position, step=next_step, after=after)
                part.add(part.reached)
            else:
                part.reached = state.maintained
            return part

        part = yield from self._decided(decide)
        self._position = self._stored = part.reached
        self._report.count(part.handled)
        for change in part.changes:
            self._report.add(*change)
        return self._position.step == step and self._report.left > 0

    def _return(self) -> Steps[None]:
        ledger = yield from self._context.subject(self._scope).ledger()

        def do(part: _Slice, state: State, now: datetime) -> tuple[str, int]:
            returning = Returning(state, self._scope, now, ledger)
            part.events.extend(returning.events)
            part.changes.extend(("returned", record, why, ()) for record, why in returning.returned)
            ended = _ended_conflicts(ledger, self._scope, self._position.since)
            part.changes.extend(("conflicts_resolved", record, why, (other,)) for record, other, why in ended)
            return AGE, 0

        yield from self._slice(RETURN, do)

    def _age(self) -> Steps[None]:
        seqs = self._ask(lambda state: [(live.seq, live.id) for live in state.records.values()])
        begin = next((place for place, (seq, _) in enumerate(seqs) if seq > self._position.after), len(seqs))
        while True:
            end = begin + int(min(SLICE, self._report.left))
            records = [record for _, record in seqs[begin:end]]
            is_last = end >= len(seqs)
            reached = (CONFLICTS, 0) if is_last else (AGE, seqs[end - 1][0])

            def do(part: _Slice, state: State, now: datetime) -> tuple[str, int]:
                self._age_records(part, state, now, records)  # noqa: B023  # called before the next round
                return reached  # noqa: B023

            if not (yield from self._slice(AGE, do)):
                return
            begin = next((place for place in range(begin, len(seqs)) if seqs[place][0] > self._position.after), end)

    def _age_records(self, part: _Slice, state: State, now: datetime, records: Sequence[str]) -> None:
        lives = [state.records[record] for record in records if record in state.records]
        part.handled = len(records)
        expired = [live for live in lives if live.is_expired(now)]
        weak: list[Live] = []
        for live in lives:
            strength = strength_of(live, now)
            record = live.record(self._scope, now)
            idle = f"not stated or used for {strength.idle_days:.0f} days"
            if live.is_expired(now):
                part.changes.append(("expired", record, "its time ended", ()))
            elif strength.retrievability < self._call.weak_below and strength.idle_days >= self._call.unused_days:
                weak.append(live)
                why = f"retrievability {strength.retrievability:.2f}, {idle}"
                part.changes.append(("decayed", record, why, ()))
            else:
                self._note_layer(part, live, record, now)
        if expired:
            part.close(expired, "expired", reason="expired")
        if weak:
            part.close(weak, "archived", reason=WEAK)

    def _note_layer(self, part: _Slice, live: Live, record: Record, now: datetime) -> None:
        """Note a change of the layer since the last round. A record that is new since then was in ``working``."""
        since = self._position.since
        before = "working" if since is None or live.created > since else strength_of(live, since).layer
        strength = strength_of(live, now)
        if strength.layer != before:
            action = "promoted" if strength.layer == "long_term" else "demoted"
            why = (
                f"{before} to {strength.layer}: stability {strength.stability_days:.0f} days, "
                f"used on {strength.used_on_days} days, not stated or used for {strength.idle_days:.0f} days"
            )
            part.changes.append((action, record, why, ()))

    def _find_conflicts(self) -> Steps[None]:
        def do(part: _Slice, state: State, now: datetime) -> tuple[str, int]:
            size = int(min(SLICE, self._report.left))
            conflicts = conflicts_in(state, now, self._position.after, size)
            links: dict[str, list[Link]] = {}
            for conflict in conflicts.conflicts:
                live, link = state.records[conflict.record], Link(CONTRADICTS, conflict.other)
                if not _are_linked(live, state.records[conflict.other]):
                    links.setdefault(live.id, []).append(link)
                    record = live.record(self._scope, now)
                    why = f"{conflict.kind}: {conflict.reason}"
                    part.changes.append(("conflicts_found", record, why, (conflict.other,)))
            for record_id, new in links.items():
                old = state.records[record_id].memory.links
                part.add(MemoryChanged(record=record_id, changed=("links",), links=(*old, *new)))
            if conflicts.more:
                part.handled = size
                return CONFLICTS, conflicts.position
            part.handled = sum(live.seq > self._position.after for live in state.records.values())
            return CONSOLIDATE, 0

        while (yield from self._slice(CONFLICTS, do)):
            pass

    def _consolidate(self) -> Steps[None]:
        lives = self._ask(lambda state: [msgspec.structs.replace(live) for live in state.records.values()])
        groups = yield from groups_of(self._context, lives, self._context.hooks.now(), self._call)
        by_id = {live.id: live for live in lives}
        for begin in range(0, len(groups), GROUPS_AT_ONCE):
            plans: list[Plan] = []
            for group in groups[begin : begin + GROUPS_AT_ONCE]:
                parts = tuple(by_id[record] for record in group.records)
                self._report.count(len(parts))
                candidate = yield from candidate_for(
                    self._context, self._scope, group, parts, may_ask=not self._call.dry_run
                )
                if candidate is not None:
                    plans.append(Plan(group, parts, candidate))
            quotas = self._context.hooks.quotas
            done = yield from self._decided(lambda state, now: Consolidating(state, self._scope, now, plans, quotas))  # noqa: B023  # called at once
            for record, plan in done.consolidated:
                why = f"{len(plan.parts)} {plan.group.kind}" + (f": {plan.group.topic}" if plan.group.topic else "")
                self._report.add("consolidated", record, why, plan.group.records)
            if self._report.left <= 0:
                return
        yield from self._slice(CONSOLIDATE, lambda _part, _state, _now: (DONE, 0))


def _next_of(stored: MemoryMaintained | None, now: datetime) -> MemoryMaintained:
    """Return the position from which to continue: the stored one, or the beginning of a new round."""
    if stored is not None and stored.step != DONE:
        return stored
    return MemoryMaintained(now, RETURN, 0, None if stored is None else stored.started)


def _are_linked(live: Live, other: Live) -> bool:
    """Return whether a conflict between two records is stored, open or resolved."""
    return any(
        link.type in {CONTRADICTS, RECONCILED} and link.target == target.id
        for side, target in ((live, other), (other, live))
        for link in side.memory.links
    )


def _ended_conflicts(ledger: Ledger, scope: str, since: datetime | None) -> Iterator[tuple[Record, str, str]]:
    """Yield the conflicts that ended after ``since``: a record, the other record, and why."""
    lives = {live.id: (live, closed) for live, closed in ledger.lives()}
    for live, closed in lives.values():
        for link in live.memory.links:
            if link.type not in {CONTRADICTS, RECONCILED} or link.target not in lives:
                continue
            ends = [(end.at, end.reason) for end in (closed, lives[link.target][1]) if end is not None]
            if link.type == RECONCILED:
                ends.append((live.updated, "both are kept"))
            if ends and (since is None or min(ends)[0] > since):
                yield live.record_as(scope, "active" if closed is None else closed.status), link.target, min(ends)[1]


def _copy_of(state: State) -> State:
    copy = State(state.fields(), [msgspec.structs.replace(live) for live in state.records.values()])
    copy.unsupported = state.unsupported
    return copy
