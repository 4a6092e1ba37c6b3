"""Reads the linked runs of an index: only the runs that have changed since they were read, and only new events.

One ``peek_runs`` call finds the changed runs: a change of events also changes the run's version or ``first_seq``.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from agent_memory_log.errors import CursorOutOfRange, RunExpired
from agent_memory_log.memory.records.messages import MESSAGE_TYPES
from agent_memory_log.memory.records.record import RunId
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.steps import Steps, each, load, peek
from agent_memory_log.store import RunHead

UNREAD = RunHead(0, 0)
"""The placeholder head of a run that has not been read yet. No store returns this head."""

_RUNS_AT_ONCE = 64
_EVENTS_AT_ONCE = 4_096
"""The most runs, and messages of each run, that are read before they are indexed."""


class News(msgspec.Struct, frozen=True):
    """The new events of a linked run.

    Attributes:
        run_id: The run.
        snapshot: The events that were read, or None if the run has expired.
        from_start: Whether the run was read again from its first event.
    """

    run_id: RunId
    snapshot: Snapshot | None
    from_start: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether the run has no events after these."""
        return self.snapshot is None or self.snapshot.last_seq >= self.snapshot.version

    def is_newer_than(self, head: RunHead | None) -> bool:
        """Return whether the index, which last read the run at ``head``, has to apply these events."""
        if head is None or self.snapshot is None or self.from_start:
            return head is not None or self.snapshot is not None
        return self.snapshot.last_seq > head.version or self.snapshot.first_seq != head.first_seq


class KnownRuns(msgspec.Struct, frozen=True):
    """Linked runs with their heads when they were read.

    A head is ``UNREAD`` if the run has not been read yet, and None if it had expired.
    """

    run_ids: tuple[RunId, ...]
    heads: tuple[RunHead | None, ...]

    def __iter__(self) -> Iterator[tuple[RunId, RunHead | None]]:
        return zip(self.run_ids, self.heads, strict=True)


class AllNews(msgspec.Struct, frozen=True):
    """The new events of some linked runs.

    Attributes:
        news: The new events.
        is_complete: Whether no linked run has other new events.
    """

    news: list[News]
    is_complete: bool


def read_new(runs: KnownRuns) -> Steps[AllNews]:
    """Read new events of linked runs, at most as many as fit into memory easily. Call it again for the rest.

    One ``peek_runs`` call finds the runs that have not changed.
    """
    unread = [item for item in runs if item[1] is UNREAD] if UNREAD in runs.heads else []
    read = [item for item in runs if item[1] is not UNREAD] if unread else runs
    run_ids = tuple([run_id for run_id, _ in read]) if unread else runs.run_ids
    heads = (yield from peek(run_ids)) if run_ids else ()
    if not unread and heads == runs.heads:
        return AllNews([], is_complete=True)
    changed = [item for item, head in zip(read, heads, strict=True) if item[1] != head] + unread
    some = changed[:_RUNS_AT_ONCE]
    news = yield from each(_read(run_id, 0 if head is None else head.version) for run_id, head in some)
    return AllNews(news, len(some) == len(changed) and all(item.is_complete for item in news))


def _read(run_id: RunId, after: int) -> Steps[News]:
    try:
        newer = yield from load(*run_id, after, MESSAGE_TYPES, _EVENTS_AT_ONCE)
    except RunExpired:
        return News(run_id, None)
    except CursorOutOfRange:  # the run was deleted, or the store lost its last events
        newer = yield from load(*run_id, 0, MESSAGE_TYPES, _EVENTS_AT_ONCE)
        return News(run_id, newer, from_start=True)
    return News(run_id, newer)
