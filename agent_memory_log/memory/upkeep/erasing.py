"""Erases memories: it appends a tombstone first, and then redacts every event that holds the value.

The tombstone tells every client which events are forgotten, by position. If the process dies before the redaction, the
next writer to the stream finishes it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from functools import partial

import msgspec

from agent_memory_log.errors import MemoryStopped, VersionConflict
from agent_memory_log.events.event import Event, new_event
from agent_memory_log.memory.operations import SWEEP_LIMIT
from agent_memory_log.memory.records.messages import RunEvent
from agent_memory_log.memory.records.principals import STREAM_RUN
from agent_memory_log.memory.records.record import Evidence, free_texts
from agent_memory_log.memory.records.reports.outcomes import ForgetReport
from agent_memory_log.memory.search.index_files import erase_from_index
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.evidence import erased_evidence, fallen_with
from agent_memory_log.memory.stream.history import Ledger
from agent_memory_log.memory.stream.payloads import (
    MemoryBlocked,
    MemoryChanged,
    MemoryRemembered,
    MemoryTombstone,
    Until,
)
from agent_memory_log.memory.stream.purging import settle
from agent_memory_log.memory.stream.state import Live, State
from agent_memory_log.memory.stream.subjects import Subject, by_run, folded
from agent_memory_log.memory.stream.vectors import erase_orphans
from agent_memory_log.memory.upkeep.mentions import Values, texts
from agent_memory_log.memory.upkeep.traces import TraceQuery, Traces, find_traces
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.steps import Steps, work

_ATTEMPTS = 500


class Reach(msgspec.Struct, frozen=True):
    """The options of forgetting. See ``Memory.forget`` and ``Memory.forget_all``.

    Attributes:
        evidence: Whether to redact the evidence in the linked runs.
        sweep: Whether to redact every event of the linked runs that holds the value.
        sweep_limit: The largest number of events that a sweep may redact.
        dry_run: Whether to report only.
        runs: More runs to search, with their versions. Events up to these versions are never learnt from again.
    """

    evidence: bool = False
    sweep: bool = False
    sweep_limit: int = SWEEP_LIMIT
    dry_run: bool = False
    runs: Mapping[tuple[str, str], int] = {}


class Target(msgspec.Struct, frozen=True):
    """The memories to erase.

    Attributes:
        choose: A function that takes a ledger and returns the function that chooses records.
        is_about: Chooses the events of blocked candidates.
        everything: Whether the whole memory of the scope is erased, except its consents.
        also: Returns events to append before the tombstone, decided on a state at a time.
    """

    choose: Callable[[Ledger], Callable[[Live], bool]]
    is_about: Callable[[MemoryBlocked], bool]
    everything: bool = False
    also: Callable[[State, datetime], Sequence[Event]] = lambda _state, _now: ()


class _Plan(msgspec.Struct, frozen=True):
    """The plan of an erasure.

    Attributes:
        state: The state of the stream.
        lives: The records to erase.
        remaining: The other records.
        blocked: The events of blocked candidates to erase.
        sources: The statements that must not be learnt from again.
        tombstone: The tombstone without the events of other runs.
    """

    state: State
    lives: list[Live]
    remaining: list[Live]
    blocked: list[tuple[Event, MemoryBlocked]]
    sources: set[Evidence]
    tombstone: MemoryTombstone


def erase(context: Context, scope: str, target: Target, reach: Reach) -> Steps[ForgetReport]:
    """Erase memories of a scope, also from its index, and their traces in linked runs.

    Raises ``MemoryStopped`` if a sweep is too large.
    """
    subject = context.subject(scope)
    report = yield from _erase(context, subject, target, reach)
    yield from erase_from_index(subject, context.indexes.folder)
    return report


def _erase(context: Context, subject: Subject, target: Target, reach: Reach) -> Steps[ForgetReport]:
    query, traces = TraceQuery(), Traces()
    for attempt in itertools.count(1):
        stream = yield from subject.load_all()
        plan = _plan(subject, stream, target, reach.runs)
        new_query = yield from _trace_query(context, plan, target, reach)
        if new_query != query:  # after a version conflict, an equal query keeps its traces
            query = new_query
            traces = yield from find_traces(query)
        records = yield from work(partial(_records_with, query, plan))
        in_runs = traces.to_redact | plan.state.in_runs.keys()
        elsewhere = tuple(Evidence(*event) for event in sorted(traces.elsewhere))
        fallen = yield from _fallen(plan, traces.to_redact)
        report = ForgetReport(len(plan.lives), len(plan.tombstone.erased), len(in_runs), elsewhere, records, fallen)
        if reach.dry_run:
            return report
        _check_sweep(len(traces.to_redact), reach)
        now = context.hooks.now()
        events = [*target.also(plan.state, now)]
        if plan.tombstone.erased or plan.tombstone.until:
            tombstone = msgspec.structs.replace(plan.tombstone, in_runs=by_run(traces.to_redact))
            events.append(new_event(tombstone, timestamp=now))
        if events:
            yield from subject.refresh()
            try:
                yield from subject.commit(events, stream.version)
            except VersionConflict:
                if attempt == _ATTEMPTS:
                    raise
                continue
        elif not (plan.state.pending or in_runs):
            return report
        redacted = yield from _finish(subject, context)
        return msgspec.structs.replace(report, events=redacted)
    raise AssertionError("the loop has no end")


def _check_sweep(events: int, reach: Reach) -> None:
    if reach.sweep and events > reach.sweep_limit:
        raise MemoryStopped(
            f"the sweep would redact {events:,} events of linked runs; the limit is sweep_limit="
            f"{reach.sweep_limit:,}. Nothing was erased: check with dry_run=True, then raise sweep_limit",
            reason="sweep_limit",
        )


def _plan(subject: Subject, stream: Snapshot, target: Target, runs: Mapping[tuple[str, str], int]) -> _Plan:
    ledger = Ledger(stream)
    state = folded(stream)
    is_chosen = target.choose(ledger)
    lives: list[Live] = []
    remaining: list[Live] = []
    for live, _ in ledger.lives():
        (lives if is_chosen(live) else remaining).append(live)
    blocked = [(event, data) for event, data in ledger.blocked if target.is_about(data)]
    until = dict(state.positions) if target.everything else {}
    for run_id, seq in runs.items():
        until[run_id] = max(seq, until.get(run_id, 0))
    until = {run_id: seq for run_id, seq in until.items() if seq > state.until.get(run_id, 0)}
    # In an export, a record without evidence cites its own event. The tombstone names it, so an import skips it.
    own = [
        Evidence(subject.agent, STREAM_RUN, live.seq, event_id=live.id)
        for live in lives
        if not ledger.first_evidence(live)
    ]
    if target.everything and own:
        until[subject.agent, STREAM_RUN] = max(evidence.seq for evidence in own)
    sources = ledger.sources(lives) | {evidence for _, data in blocked for evidence in data.evidence}
    to_ignore = [source for source in sorted(sources.union(own)) if source.seq > until.get(source.run_id, 0)]
    seqs = {seq for live in lives for seq in (live.seq, *live.changed)} | {event.seq for event, _ in blocked}
    if target.everything:
        seqs_to_keep = {seq for live in remaining for seq in (live.seq, *live.changed)}
        seqs |= {event.seq for event in stream.log if isinstance(event.data, _HOLDING)} - state.pending - seqs_to_keep
    tombstone = MemoryTombstone(
        erased=tuple(sorted(seqs | state.chunks)) if seqs else (),
        sources=tuple(to_ignore),
        until=tuple(Until(*run_id, seq) for run_id, seq in sorted(until.items())),
    )
    return _Plan(state, lives, remaining, blocked, sources, tombstone)


def _trace_query(context: Context, plan: _Plan, target: Target, reach: Reach) -> Steps[TraceQuery]:
    """Return the traces to look for in the linked runs. Runs that are not linked stay unchanged.

    A run also counts as linked if it was read for this scope and is linked to the principal's home scope. A sweep does
    not include such a run.
    """
    if not (reach.evidence or reach.sweep) or not (plan.lives or plan.blocked or target.everything):
        return TraceQuery()
    home, state = context.subject(context.principal.home), plan.state
    yield from home.refresh()
    own = home.ask(lambda at_home: {run: seq for run, seq in state.positions.items() if run in at_home.linked})
    return TraceQuery(
        frozenset({*state.linked, *own, *reach.runs}),
        frozenset(map(_value, plan.lives)),
        frozenset(live.id for live in plan.lives),
        frozenset(
            source
            for source in plan.sources
            if source.run_id in state.linked or source.seq <= own.get(source.run_id, 0)
        ),
        frozenset(state.linked if reach.sweep else ()),
        frozenset({*state.linked, *reach.runs} if target.everything else ()),
    )


_HOLDING = (MemoryRemembered, MemoryChanged, MemoryBlocked)
"""The events that hold a value or a key, except snapshots. The state's ``chunks`` are the seqs of the snapshots."""


def _finish(subject: Subject, context: Context) -> Steps[int]:
    yield from subject.refresh()
    erased = yield from settle(subject, context.hooks.now())
    erased += yield from erase_orphans(subject)
    yield from subject.keep_opening_fast(context.hooks.now())
    return erased


def _records_with(query: TraceQuery, plan: _Plan) -> tuple[str, ...]:
    """Return the ids of the other records that hold one of the values."""
    if not query.values:
        return ()
    values = Values(query.values)
    return tuple(live.id for live in plan.remaining if any(map(values.are_in, _texts(live.memory))))


def _fallen(plan: _Plan, redacted: AbstractSet[RunEvent]) -> Steps[tuple[str, ...]]:
    """Return the ids of the other active records that lose the rest of their evidence with some events."""
    lives = sorted((*plan.lives, *plan.remaining), key=lambda live: live.seq)
    lost = {item for live in lives for item in live.memory.evidence if (*item.run_id, item.seq) in redacted}
    if not lost:
        return ()
    weakened = [live for live in lives if not lost.isdisjoint(live.memory.evidence)]
    erased = yield from erased_evidence(item for live in weakened for item in live.memory.evidence)
    fallen = yield from work(lambda: fallen_with(lost | erased, lives))
    return tuple(live.id for live in plan.remaining if live.id in fallen and live.id in plan.state.records)


def _texts(memory: MemoryRemembered) -> tuple[str, ...]:
    return (*free_texts(memory), *texts(list(memory.data.values())))


def _value(live: Live) -> str:
    """Return the value to look for in other texts: the record's value, or its words if the kind has no keys."""
    data = live.data
    return data.record_value or live.memory.text or data.describe()
