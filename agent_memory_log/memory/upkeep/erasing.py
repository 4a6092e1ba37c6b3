"""Erasing: a tombstone first, so that every client knows, and then the redaction of all that holds the value.

The tombstone names it all, by position. A process that dies between the two leaves that unfinished: whoever writes next
to the stream finishes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import msgspec

from agent_memory_log.errors import MemoryStopped, VersionConflict
from agent_memory_log.events.event import Event, new_event
from agent_memory_log.memory.operations import SWEEP_LIMIT
from agent_memory_log.memory.records.principals import STREAM_RUN
from agent_memory_log.memory.records.record import Evidence, free_texts
from agent_memory_log.memory.records.reports import ForgetReport
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.history import Ledger
from agent_memory_log.memory.stream.payloads import (
    MemoryBlocked,
    MemoryChanged,
    MemoryRemembered,
    MemoryTombstone,
    Until,
)
from agent_memory_log.memory.stream.state import Live, State
from agent_memory_log.memory.stream.subjects import Subject, by_run, folded
from agent_memory_log.memory.stream.vectors import erase_orphans
from agent_memory_log.memory.upkeep.mentions import Values, texts
from agent_memory_log.memory.upkeep.traces import Traces, Wanted, find_traces
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.steps import Steps, work

_ATTEMPTS = 500


class Reach(msgspec.Struct, frozen=True):
    """How far a forgetting goes beyond memory's own streams; see ``Memory.forget``. ``runs`` are looked at as well."""

    evidence: bool = False
    sweep: bool = False
    sweep_limit: int = SWEEP_LIMIT
    dry_run: bool = False
    runs: Mapping[tuple[str, str], int] = {}


class Target(msgspec.Struct, frozen=True):
    """What is to be erased: which records of a ledger, and which notes of what was blocked; or ``everything``."""

    choose: Callable[[Ledger], Callable[[Live], bool]]
    is_about: Callable[[MemoryBlocked], bool]
    everything: bool = False


class _Plan(msgspec.Struct, frozen=True):
    """What an erasure does to a stream in this ``state``: the records that go, those that stay, the notes that go."""

    state: State
    lives: list[Live]
    others: list[Live]
    blocked: list[tuple[Event, MemoryBlocked]]
    tombstone: MemoryTombstone


def erase(context: Context, scope: str, target: Target, reach: Reach) -> Steps[ForgetReport]:
    """Erase records of a scope, and what linked runs hold of them. Raises ``MemoryStopped`` for too large a sweep."""
    subject = context.subject(scope)
    wanted, traces = Wanted(), Traces()
    for attempt in itertools.count(1):
        stream = yield from subject.load_all()
        plan = _plan(subject, stream, target, reach.runs)
        now_wanted = yield from _wanted(context, plan, reach)
        if now_wanted != wanted:  # else a faster writer changed nothing about what was found
            wanted = now_wanted
            traces = yield from find_traces(wanted)
        records = yield from work(lambda: _records_with(wanted, plan))  # noqa: B023  # done at once
        in_runs = traces.to_redact | plan.state.in_runs.keys()
        elsewhere = tuple(Evidence(*event) for event in sorted(traces.elsewhere))
        report = ForgetReport(len(plan.lives), len(plan.tombstone.erased), len(in_runs), elsewhere, records)
        if reach.dry_run:
            return report
        if reach.sweep and len(traces.to_redact) > reach.sweep_limit:
            raise MemoryStopped(
                f"the sweep would redact {len(traces.to_redact):,} events of linked runs, more than sweep_limit="
                f"{reach.sweep_limit:,}, so nothing was erased: look with dry_run=True, then raise sweep_limit",
                reason="sweep_limit",
            )
        if plan.tombstone.erased or plan.tombstone.until:
            tombstone = msgspec.structs.replace(plan.tombstone, in_runs=by_run(traces.to_redact))
            now = context.hooks.now()
            yield from subject.refresh()
            try:
                yield from subject.commit([new_event(tombstone, timestamp=now)], stream.version)
            except VersionConflict:
                if attempt == _ATTEMPTS:
                    raise
                continue
        elif not (plan.state.pending or in_runs):
            return report
        events = yield from _finish(subject, context)
        return msgspec.structs.replace(report, events=events)
    raise AssertionError("counting ends")


def _plan(subject: Subject, stream: Snapshot, target: Target, runs: Mapping[tuple[str, str], int]) -> _Plan:
    ledger = Ledger(stream)
    state = folded(stream)
    is_chosen = target.choose(ledger)
    lives: list[Live] = []
    others: list[Live] = []
    for live, _ in ledger.lives():
        (lives if is_chosen(live) else others).append(live)
    blocked = [(event, data) for event, data in ledger.blocked if target.is_about(data)]
    until = {**(state.positions if target.everything else {})}
    for place, seq in runs.items():
        until[place] = max(seq, until.get(place, 0))
    until = {place: seq for place, seq in until.items() if seq > state.until.get(place, 0)}
    # What rested on nothing in the log is known by its own place, so that an older export does not bring it back.
    own = [
        Evidence(subject.agent, STREAM_RUN, live.seq, event_id=live.id)
        for live in lives
        if not ledger.first_evidence(live)
    ]
    if target.everything and own:
        until[subject.agent, STREAM_RUN] = max(one.seq for one in own)
    sources = sorted({*_sources(lives, blocked), *own})
    sources = [one for one in sources if one.seq > max(until.get((one.agent, one.run), 0), 0)]
    seqs = {seq for live in lives for seq in (live.seq, *live.changed)} | {event.seq for event, _ in blocked}
    if target.everything:
        seqs |= {event.seq for event in stream.log if isinstance(event.data, _HOLDING)} - state.pending
    tombstone = MemoryTombstone(
        erased=tuple(sorted(seqs | state.chunks)) if seqs else (),
        sources=tuple(sources),
        until=tuple(Until(*place, seq) for place, seq in sorted(until.items())),
    )
    return _Plan(state, lives, others, blocked, tombstone)


def _wanted(context: Context, plan: _Plan, reach: Reach) -> Steps[Wanted]:
    """What to look for, in the runs that are linked here. Evidence may name any event: that of other runs is left.

    A run that was read for this scope by the principal, at whose home it is linked, counts as linked; not for a sweep.
    """
    if not (reach.evidence or reach.sweep) or not (plan.lives or plan.blocked):
        return Wanted()
    home, state = context.subject(context.principal.home), plan.state
    yield from home.refresh()
    own = home.ask(lambda at_home: {place: seq for place, seq in state.positions.items() if place in at_home.linked})
    return Wanted(
        frozenset({*state.linked, *own, *reach.runs}),
        frozenset(map(_value, plan.lives)),
        frozenset(live.id for live in plan.lives),
        frozenset(
            one
            for one in _sources(plan.lives, plan.blocked)
            if (one.agent, one.run) in state.linked or one.seq <= own.get((one.agent, one.run), 0)
        ),
        frozenset(state.linked if reach.sweep else ()),
    )


_HOLDING = (MemoryRemembered, MemoryChanged, MemoryBlocked)
"""The events that hold a value or a key; what snapshots hold is in the state's chunks."""


def _finish(subject: Subject, context: Context) -> Steps[int]:
    yield from subject.refresh()
    erased = yield from subject.finish_erasure(context.hooks.now())
    erased += yield from erase_orphans(subject)
    yield from subject.keep_opening_fast(context.hooks.now())
    return erased


def _sources(lives: Sequence[Live], blocked: Sequence[tuple[Event, MemoryBlocked]]) -> list[Evidence]:
    """The statements that are not to be learnt from again."""
    return sorted(
        {
            *(one for live in lives for one in live.memory.evidence),
            *(one for _, data in blocked for one in data.evidence),
        }
    )


def _records_with(wanted: Wanted, plan: _Plan) -> tuple[str, ...]:
    """The ids of the records that hold a value that was looked for, and are not forgotten with it."""
    if not wanted.values:
        return ()
    values = Values(wanted.values)
    return tuple(live.id for live in plan.others if any(map(values.are_in, _texts(live.memory))))


def _texts(memory: MemoryRemembered) -> tuple[str, ...]:
    return (*free_texts(memory), *texts(list(memory.data.values())))


def _value(live: Live) -> str:
    """What a record says that others may repeat: its value, or its words where its kind has no keys."""
    data = live.data
    return data.record_value or live.memory.text or data.describe()
