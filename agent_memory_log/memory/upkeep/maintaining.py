"""Erases the memories that have lost their evidence, and rebuilds the state from the stream."""

from __future__ import annotations

from datetime import datetime

from agent_memory_log.capabilities import IndexFolder
from agent_memory_log.memory.operations import Purge, Rebuild
from agent_memory_log.memory.records.reports.outcomes import PurgeReport, RebuildReport
from agent_memory_log.memory.search.index_files import erase_from_index, erase_from_indexes
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.purging import owes_erasure, settle
from agent_memory_log.memory.stream.subjects import Subject, folded, list_subjects
from agent_memory_log.steps import Steps


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
