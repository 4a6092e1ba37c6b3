"""Archives old episodes of little importance, and rebuilds the state from the stream."""

from __future__ import annotations

from datetime import datetime, timedelta

from agent_memory_log.capabilities import IndexFolder
from agent_memory_log.events.event import shift_time
from agent_memory_log.memory.learning.deciding import Decisions
from agent_memory_log.memory.learning.writing import decided
from agent_memory_log.memory.operations import Cleanup, Purge, Rebuild
from agent_memory_log.memory.records.kinds import Episode
from agent_memory_log.memory.records.record import Record, stars_of
from agent_memory_log.memory.records.reports import CleanupReport, PurgeReport, RebuildReport
from agent_memory_log.memory.search.index_files import erase_from_index, erase_from_indexes
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.purging import owes_erasure, settle
from agent_memory_log.memory.stream.state import Live, State
from agent_memory_log.memory.stream.subjects import Subject, folded, list_subjects
from agent_memory_log.steps import Steps


def cleanup(context: Context, call: Cleanup) -> Steps[CleanupReport]:
    """Archive old episodes with few stars, and record which memories have expired."""
    archived: list[Record] = []
    expired: list[Record] = []
    for scope in context.readable(None):

        def decide(state: State, now: datetime) -> _Cleaning:
            return _Cleaning(state, scope, now, timedelta(days=call.older_than_days), call.below_stars)  # noqa: B023  # called before the next round

        cleaning = yield from decided(context, scope, decide)
        archived.extend(live.record_as(scope, "archived") for live in cleaning.old)
        expired.extend(live.record_as(scope, "expired") for live in cleaning.ended)
        yield from context.subject(scope).keep_opening_fast(context.hooks.now())
    return CleanupReport(tuple(archived), tuple(expired))


class _Cleaning(Decisions):
    """The records that a cleanup closes in one scope."""

    def __init__(self, state: State, scope: str, now: datetime, age: timedelta, stars: float) -> None:
        super().__init__(state, scope, now, None)
        before = shift_time(now, -age)
        self.ended = [live for live in state.records.values() if live.is_expired(now)]
        self.old = [
            live for live in state.records.values() if not live.is_expired(now) and _is_old(live, before, stars)
        ]
        if self.ended:
            self.close(self.ended, "expired", reason="expired")
        if self.old:
            self.close(self.old, "archived", reason="cleanup")


def _is_old(live: Live, before: datetime, stars: float) -> bool:
    if live.memory.kind != Episode.kind or stars_of(live.memory.importance) >= stars:
        return False
    data = live.data
    occurred = data.occurred_at if isinstance(data, Episode) else None
    return (occurred or live.created) < before


def rebuild(context: Context, _: Rebuild) -> Steps[RebuildReport]:
    """Finish interrupted erasures, then fold every stream from its first event and cache that state."""
    records = events = 0
    equal = True
    for scope in context.readable(None):
        subject = context.subject(scope)
        yield from subject.refresh()
        yield from settle(subject, context.hooks.now())
        version, cached = subject.ask(lambda state: (state.version, state.to_bytes()))
        stream = yield from subject.load_all()
        fresh = folded(stream)
        # If another writer appended before this read, the two states cannot be compared.
        equal = equal and (fresh.version != version or fresh.to_bytes() == cached)
        subject.hold(fresh)
        records += len(fresh.records)
        events += len(stream.log)
        yield from subject.keep_opening_fast(context.hooks.now())
    return RebuildReport(records, events, equal)


def purge(context: Context, _: Purge) -> Steps[PurgeReport]:
    """Erase the memories that have lost their evidence."""
    events = 0
    for scope in context.readable(None):
        subject = context.subject(scope)
        events += yield from _purge(subject, context.hooks.now())
        yield from erase_from_index(subject, context.indexes.folder)
    return PurgeReport(events)


def purge_all(now: datetime) -> Steps[int]:
    """Erase the memories of all subjects that have lost their evidence. Return how many events were redacted."""
    events = 0
    for subject in (yield from list_subjects(None)):
        events += yield from _purge(Subject(subject), now)
    return events


def purge_indexes(folder: IndexFolder | None) -> Steps[None]:
    """Bring all index files of a store up to date, and remove files that belong to no subject."""
    subjects = yield from list_subjects(None)
    yield from erase_from_indexes(map(Subject, subjects), folder)


def owing_streams() -> Steps[list[str]]:
    """Return the agents of the memory streams that still hold memories without evidence."""
    agents: list[str] = []
    for subject_id in (yield from list_subjects(None)):
        subject = Subject(subject_id)
        if (yield from owes_erasure(subject)):
            agents.append(subject.agent)
    return agents


def _purge(subject: Subject, now: datetime) -> Steps[int]:
    yield from subject.refresh()
    return (yield from settle(subject, now))
