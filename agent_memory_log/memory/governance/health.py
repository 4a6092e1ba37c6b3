"""Counts that show the state of a memory and of its search index. Nothing is written to the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from agent_memory_log.events.event import Event
from agent_memory_log.memory.governance.ageing import Strength, strength_of
from agent_memory_log.memory.governance.maintenance import DONE
from agent_memory_log.memory.governance.resolving import count_open
from agent_memory_log.memory.operations import CheckHealth, CountRecords, Maintain
from agent_memory_log.memory.records.principals import VECTORS_RUN
from agent_memory_log.memory.records.reports.upkeep import Health
from agent_memory_log.memory.search.index_files import index_maker
from agent_memory_log.memory.search.reading import stats
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.payloads import MemoryMaintained, MemoryVectors
from agent_memory_log.memory.stream.state import State
from agent_memory_log.memory.stream.subjects import Subject
from agent_memory_log.memory.stream.vectors import VECTOR_TYPES, is_alive, name_of
from agent_memory_log.steps import Steps, load, peek, work

WEAK_BELOW = Maintain().weak_below
"""The retrievability below which ``maintain`` archives unused records by default."""

_VECTORS_AT_ONCE = 500
"""The most events with vectors in memory at the same time."""


def check_health(context: Context, _: CheckHealth) -> Steps[Health]:
    """Return the counts over all readable scopes. Each active record, vector and stream event is read once."""
    counts = yield from stats(context, CountRecords())
    now = context.hooks.now()
    subjects = [context.subject(scope) for scope in context.readable(None)]
    layers: Counter[str] = Counter()
    lags: list[int] = []
    weak = conflicts = vectors = 0
    versions: list[int] = []
    rounds: list[MemoryMaintained] = []
    for subject in subjects:
        yield from subject.refresh()
        strengths = subject.ask(partial(_strengths, now))
        layers += Counter(strength.layer for strength in strengths.values())
        weak += sum(strength.retrievability < WEAK_BELOW for strength in strengths.values())
        conflicts += subject.ask(lambda state: count_open(state, now))
        versions.append(subject.ask(lambda state: state.version))
        rounds += filter(None, [subject.ask(lambda state: state.maintained)])
        linked = subject.ask(lambda state: {run_id: state.positions.get(run_id, 0) for run_id in state.linked})
        heads = zip((yield from peek(tuple(linked))), linked.values(), strict=True)
        lags += (0 if head is None else max(0, head.version - max(seq, head.first_seq - 1)) for head, seq in heads)
        vectors += len(strengths.keys() & (yield from _with_vectors(subject)))
    return Health(
        active=counts.active,
        closed=counts.closed,
        layers=dict(sorted(layers.items())),
        weak=weak,
        blocked=counts.blocked,
        conflicts_open=conflicts,
        runs=len(lags),
        runs_behind=sum(map(bool, lags)),
        events_behind=sum(lags),
        events=counts.events,
        maintained_at=max((maintained.started for maintained in rounds), default=None),
        maintenance_open=any(maintained.step != DONE for maintained in rounds),
        indexed=(yield from _indexed(context, subjects, versions)),
        with_vectors=round(vectors / layers.total(), 3) if vectors else None,
    )


def _strengths(now: datetime, state: State) -> dict[str, Strength]:
    return {live.id: strength_of(live, now) for live in state.records.values() if not live.is_expired(now)}


def _with_vectors(subject: Subject) -> Steps[set[str]]:
    """Return the records with stored vectors."""
    with_vectors: set[str] = set()
    after = 0
    while True:
        page = yield from load(subject.agent, VECTORS_RUN, after, types=VECTOR_TYPES, limit=_VECTORS_AT_ONCE)
        with_vectors |= subject.ask(partial(_records_of, page.log))
        if page.last_seq >= page.version or page.last_seq <= after:
            return with_vectors
        after = page.last_seq


def _records_of(vectors: Sequence[Event], state: State) -> set[str]:
    """Return the records whose vectors are among some events."""
    names = (name_of(event.data) for event in vectors if isinstance(event.data, MemoryVectors))
    return {name.record for name in names if name.record and is_alive(state, name)}


def _indexed(context: Context, subjects: list[Subject], versions: list[int]) -> Steps[float | None]:
    """Return the share of the streams' events that the search indexes have read."""
    make = index_maker()
    if make is None or not sum(versions):
        return None
    with context.indexes.of(subjects, lambda subject: make(subject, context.indexes.folder)) as indexes:
        reached = yield from work(lambda: [index.version() for index in indexes])
    read = sum(min(version, most) for version, most in zip(reached, versions, strict=True))
    return round(read / sum(versions), 3)
