"""Carries out rounds of ``maintain``: bounded slices of work, each in one append with the position that it reached.

A round has four steps: bring back parts of fallen records, age, find conflicts, consolidate. Each slice is decided on
the newest state. A process that finds the position ahead of its own slice leaves the slice out. So after a crash the
next call continues at the stored position, and two processes that work at the same time share one round.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import TypeVar

import msgspec

from agent_memory_log.memory.conflicts.finding import conflicts_in
from agent_memory_log.memory.conflicts.index import worded_at
from agent_memory_log.memory.governance.ageing import strength_of
from agent_memory_log.memory.governance.consolidation import Plan, bring_back, consolidate, groups_of
from agent_memory_log.memory.governance.summaries import candidate_for
from agent_memory_log.memory.learning.deciding import Decisions
from agent_memory_log.memory.learning.writing import decided
from agent_memory_log.memory.operations import Maintain
from agent_memory_log.memory.records.record import Link
from agent_memory_log.memory.records.reports.conflicts import CONTRADICTS, RECONCILED
from agent_memory_log.memory.records.reports.upkeep import Layer, MaintainReport, Upkeep
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

_PHASE = "maintain"
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
        self._changes: dict[str, list[Upkeep]] = {}

    def add(self, part: _Slice) -> None:
        self.checked += part.handled
        self.left -= part.handled
        for action, change in part.changes:
            self._changes.setdefault(action, []).append(change)

    def slice_size(self) -> int:
        return int(min(SLICE, self.left))

    def result(self) -> MaintainReport:
        changes = {action: tuple(group) for action, group in self._changes.items()}
        return MaintainReport(**changes, purged=self.purged, checked=self.checked, remaining=self.remaining)


class _Slice:
    """The decisions of one slice, its changes for the report, and the number of records that it looked at."""

    def __init__(self, decisions: Decisions) -> None:
        self.decisions = decisions
        self.changes: list[tuple[str, Upkeep]] = []
        self.handled = 0

    def note(self, action: str, live: Live, why: str, *parts: str) -> None:
        change = Upkeep(live.id, self.decisions.scope, live.memory.kind, live.memory.key, why, parts)
        self.changes.append((action, change))


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
        functions = (self._return, self._age, self._find_conflicts, self._consolidate)
        for number, step in enumerate(functions):
            if number < STEPS.index(self._position.step):
                continue
            if self._report.left > 0:
                yield from step()
            if self._position.step == STEPS[number]:
                to_do, records = self._ask(partial(_records_after, self._position))
                self._report.remaining += to_do + (len(functions) - 1 - number) * records
                return

    def _ask(self, question: Callable[[State], _Answer]) -> _Answer:
        return self._subject.ask(question) if self._copy is None else question(self._copy)

    def _append(self, do: Callable[[_Slice], _Answer]) -> Steps[_Answer]:
        """Decide and append, or in a dry run fold the events into the copy of the state. Then report the changes."""

        def decide(decisions: Decisions) -> tuple[_Slice, _Answer]:
            part = _Slice(decisions)
            return part, do(part)

        if self._copy is None:
            part, answer = yield from decided(self._context, self._scope, decide, _PHASE)
        else:
            part, answer = decide(Decisions(self._context, self._scope, self._copy, self._context.hooks.now(), _PHASE))
            events = [
                msgspec.structs.replace(event, seq=seq)
                for seq, event in enumerate(part.decisions.events, self._copy.version + 1)
            ]
            self._copy.fold(events, self._copy.version + len(events))
        self._report.add(part)
        return answer

    def _slice(self, step: str, do: Callable[[_Slice], tuple[str, int]]) -> Steps[bool]:
        """Carry out one slice of a step, unless another process has moved the stored position.

        ``do`` decides and returns the next position. Returns whether the step continues.
        """

        def move(part: _Slice) -> MemoryMaintained:
            stored = part.decisions.state.maintained
            if stored is not None and stored != self._stored:
                return stored
            next_step, after = do(part)
            position = msgspec.structs.replace(self._position, step=next_step, after=after)
            part.decisions.add(position)
            return position

        self._position = self._stored = yield from self._append(move)
        return self._position.step == step and self._report.left > 0

    def _return(self) -> Steps[None]:
        ledger = yield from self._subject.ledger()
        yield from self._slice(RETURN, partial(self._bring_back, ledger))

    def _bring_back(self, ledger: Ledger, part: _Slice) -> tuple[str, int]:
        for live, why in bring_back(part.decisions, ledger):
            part.note("returned", live, why)
        for outcome in part.decisions.outcomes:
            if outcome.action == "archived" and outcome.record is not None:
                record = outcome.record
                change = Upkeep(record.id, record.scope, record.kind, record.key, "the memory is over its limit")
                part.changes.append(("decayed", change))
        for live, other, why in _ended_conflicts(ledger, self._position.since):
            part.note("conflicts_resolved", live, why, other)
        return AGE, 0

    def _age(self) -> Steps[None]:
        ids = self._ask(lambda state: {live.seq: live.id for live in state.records.values()})
        seqs = list(ids)
        is_open = True
        while is_open:
            begin = bisect_right(seqs, self._position.after)
            end = begin + self._report.slice_size()
            records = [ids[seq] for seq in seqs[begin:end]]
            reached = (CONFLICTS, 0) if end >= len(seqs) else (AGE, seqs[end - 1])
            is_open = yield from self._slice(AGE, partial(self._age_records, records, reached))

    def _age_records(self, records: Sequence[str], reached: tuple[str, int], part: _Slice) -> tuple[str, int]:
        state, now = part.decisions.state, part.decisions.now
        part.handled = len(records)
        expired: list[Live] = []
        weak: list[Live] = []
        for live in (state.records[record] for record in records if record in state.records):
            strength = strength_of(live, now)
            idle = f"not stated or used for {strength.idle_days:.0f} days"
            if live.is_expired(now):
                expired.append(live)
                part.note("expired", live, "its time ended")
            elif strength.retrievability < self._call.weak_below and strength.idle_days >= self._call.unused_days:
                weak.append(live)
                part.note("decayed", live, f"retrievability {strength.retrievability:.2f}, {idle}")
            elif strength.layer != (before := self._layer_before(live)):
                days = f"stability {strength.stability_days:.0f} days, used on {strength.used_on_days} days"
                action = "promoted" if strength.layer == "long_term" else "demoted"
                part.note(action, live, f"{before} to {strength.layer}: {days}, {idle}")
        if expired:
            part.decisions.close(expired, "expired", reason="expired")
        if weak:
            part.decisions.close(weak, "archived", reason=WEAK)
        return reached

    def _layer_before(self, live: Live) -> Layer:
        """Return the layer of a record in the last round. A record that is new since then was in ``working``."""
        since = self._position.since
        return "working" if since is None or live.created > since else strength_of(live, since).layer

    def _find_conflicts(self) -> Steps[None]:
        while (yield from self._slice(CONFLICTS, self._link_conflicts)):
            pass

    def _link_conflicts(self, part: _Slice) -> tuple[str, int]:
        state, after, size = part.decisions.state, self._position.after, self._report.slice_size()
        conflicts = conflicts_in(state, part.decisions.now, after, size)
        links: dict[str, list[Link]] = {}
        for conflict in conflicts.conflicts:
            live, other = state.records[conflict.record], state.records[conflict.other]
            if not _are_linked(live, other):
                links.setdefault(live.id, list(live.memory.links)).append(Link(CONTRADICTS, other.id))
                part.note("conflicts_found", live, f"{conflict.kind}: {conflict.reason}", other.id)
        for record, all_links in links.items():
            part.decisions.add(MemoryChanged(record=record, changed=("links",), links=tuple(all_links)))
        if conflicts.more:
            part.handled = size
            return CONFLICTS, conflicts.position
        part.handled = sum(worded_at(live) > after for live in state.records.values())
        return CONSOLIDATE, 0

    def _consolidate(self) -> Steps[None]:
        lives = self._ask(lambda state: [msgspec.structs.replace(live) for live in state.records.values()])
        groups = yield from groups_of(self._context, lives, self._context.hooks.now(), self._call)
        by_id = {live.id: live for live in lives}
        may_ask = not self._call.dry_run
        for begin in range(0, len(groups), GROUPS_AT_ONCE):
            plans: list[Plan] = []
            handled = 0
            for group in groups[begin : begin + GROUPS_AT_ONCE]:
                parts = tuple(by_id[record] for record in group.records)
                handled += len(parts)
                candidate = yield from candidate_for(self._context, self._scope, group, parts, may_ask=may_ask)
                if candidate is not None:
                    plans.append(Plan(group, parts, candidate))
            yield from self._append(partial(_carry_out, plans, handled))
            if self._report.left <= 0:
                return
        yield from self._slice(CONSOLIDATE, lambda _: (DONE, 0))


def _carry_out(plans: Sequence[Plan], handled: int, part: _Slice) -> None:
    part.handled = handled
    for live, plan in consolidate(plans, part.decisions):
        topic = f": {plan.group.topic}" if plan.group.topic else ""
        part.note("consolidated", live, f"{len(plan.parts)} {plan.group.kind}{topic}", *plan.group.records)


def _next_of(stored: MemoryMaintained | None, now: datetime) -> MemoryMaintained:
    """Return the position from which to continue: the stored one, or the beginning of a new round."""
    if stored is not None and stored.step != DONE:
        return stored
    return MemoryMaintained(now, RETURN, 0, None if stored is None else stored.started)


def _records_after(position: MemoryMaintained, state: State) -> tuple[int, int]:
    """Return the number of records that the step of a position still has to look at, and the number of all records."""
    place = worded_at if position.step == CONFLICTS else attrgetter("seq")
    return sum(place(live) > position.after for live in state.records.values()), len(state.records)


def _are_linked(live: Live, other: Live) -> bool:
    """Return whether a conflict between two records is stored, open or resolved."""
    return any(
        link.type in {CONTRADICTS, RECONCILED} and link.target == target.id
        for side, target in ((live, other), (other, live))
        for link in side.memory.links
    )


def _ended_conflicts(ledger: Ledger, since: datetime | None) -> Iterator[tuple[Live, str, str]]:
    """Yield the conflicts that ended after ``since``: a record, the other record, and why."""
    lives = ledger.by_id()
    for live, closed in lives.values():
        for link in live.memory.links:
            if link.type not in {CONTRADICTS, RECONCILED} or link.target not in lives:
                continue
            ends = [(end.at, end.reason) for end in (closed, lives[link.target][1]) if end is not None]
            if link.type == RECONCILED:
                ends.append((live.updated, "both are kept"))
            if ends and (since is None or min(ends)[0] > since):
                yield live, link.target, min(ends)[1]


def _copy_of(state: State) -> State:
    copy = State(state.fields(), [msgspec.structs.replace(live) for live in state.records.values()])
    copy.unsupported = state.unsupported
    return copy
