"""Counts that show the state of a memory and of its search index. Nothing is written to the store."""

from __future__ import annotations

from collections import Counter

from agent_memory_log.memory.governance.ageing import strength_of
from agent_memory_log.memory.governance.maintenance import DONE
from agent_memory_log.memory.governance.resolving import count_open
from agent_memory_log.memory.operations import CheckHealth, CountRecords
from agent_memory_log.memory.records.principals import VECTORS_RUN
from agent_memory_log.memory.records.reports.upkeep import Health
from agent_memory_log.memory.search.index_files import index_maker
from agent_memory_log.memory.search.reading import stats
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.payloads import MemoryVectors
from agent_memory_log.memory.stream.state import State
from agent_memory_log.memory.stream.subjects import Subject
from agent_memory_log.memory.stream.vectors import VECTOR_TYPES, is_alive, name_of
from agent_memory_log.steps import Steps, load, peek, work

WEAK_BELOW = 0.1
"""The retrievability below which ``maintain`` archives unused records by default."""

_VECTORS_AT_ONCE = 500
"""The most events with vectors in memory at the same time."""


def check_health(context: Context, _: CheckHealth) -> Steps[Health]:
    """Return the counts over all readable scopes. Each active record, vector and stream event is read once."""
    counts = yield from stats(context, CountRecords())
    now = context.hooks.now()
    subjects = [context.subject(scope) for scope in context.readable(None)]
    layers: Counter[str] = Counter()
    weak = conflicts = records = vectors = runs = behind = events_behind = 0
    versions: list[int] = []
    for subject in subjects:
        yield from subject.refresh()
    rounds = [subject.ask(lambda state: state.maintained) for subject in subjects]
    for subject in subjects:
        lives = subject.ask(lambda state: [live for live in state.records.values() if not live.is_expired(now)])
        strengths = [strength_of(live, now) for live in lives]
        layers.update(strength.layer for strength in strengths)
        weak += sum(strength.retrievability < WEAK_BELOW for strength in strengths)
        conflicts += subject.ask(lambda state: count_open(state, now))
        records += len(lives)
        versions.append(subject.ask(lambda state: state.version))
        linked = subject.ask(lambda state: {run_id: state.positions.get(run_id, 0) for run_id in state.linked})
        heads = yield from peek(tuple(linked))
        lags = [
            max(0, head.version - seq) for head, seq in zip(heads, linked.values(), strict=True) if head is not None
        ]
        runs, behind, events_behind = runs + len(linked), behind + sum(map(bool, lags)), events_behind + sum(lags)
        vectors += yield from _with_vectors(subject)
    started = [maintained.started for maintained in rounds if maintained is not None]
    return Health(
        counts.active,
        counts.closed,
        dict(sorted(layers.items())),
        weak,
        counts.blocked,
        conflicts,
        runs,
        behind,
        events_behind,
        counts.events,
        max(started, default=None),
        any(maintained is not None and maintained.step != DONE for maintained in rounds),
        (yield from _indexed(context, subjects, versions)),
        round(vectors / records, 3) if vectors else None,
    )


def _with_vectors(subject: Subject) -> Steps[int]:
    """Return the number of active records with stored vectors."""
    with_vectors: set[str] = set()
    after = 0
    while True:
        page = yield from load(subject.agent, VECTORS_RUN, after, types=VECTOR_TYPES, limit=_VECTORS_AT_ONCE)
        names = [name_of(event.data) for event in page.log if isinstance(event.data, MemoryVectors)]

        def alive(state: State) -> set[str]:
            return {name.record for name in names if name.record and is_alive(state, name)}  # noqa: B023  # called at once

        with_vectors |= subject.ask(alive)
        if page.last_seq >= page.version or page.last_seq <= after:
            return len(with_vectors)
        after = page.last_seq


def _indexed(context: Context, subjects: list[Subject], versions: list[int]) -> Steps[float | None]:
    """Return the share of the streams' events that the search indexes have read."""
    make = index_maker()
    if make is None or not sum(versions):
        return None
    with context.indexes.of(subjects, lambda subject: make(subject, context.indexes.folder)) as indexes:
        reached = yield from work(lambda: [index.version() for index in indexes])
    read = sum(min(version, most) for version, most in zip(reached, versions, strict=True))
    return round(read / sum(versions), 3)
