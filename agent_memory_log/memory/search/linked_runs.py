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
        from_start: True if the run was read again from its first event.
    """

    run_id: RunId
    snapshot: Snapshot | None
    from_start: bool = False

    @property
    def is_complete(self) -> bool:
        """True if the run has no events after these."""
        return self.snapshot is None or self.snapshot.last_seq >= self.snapshot.version

    def is_newer_than(self, head: RunHead | None) -> bool:
        """Return whether the index, which last read the run at ``head``, has to apply these events."""
        if head is None or self.snapshot is None or self.from_start:
            return head is not None or self.snapshot is not None
        return self.snapshot.last_seq > head.version or self.snapshot.first_seq != head.first_seq


class Reached(msgspec.Struct, frozen=True, array_like=True):
    """The point up to which a run was read.

    Attributes:
        head: The run's head when it was read, or None if it had expired.
        seq: The seq of the last message that was read, or 0.
        event_id: The id of that message's event. A store that was replaced by a backup has another event there.
        read_in: A number of the refresh that read the run last. Later refreshes have higher numbers.
    """

    head: RunHead | None
    seq: int = 0
    event_id: str = ""
    read_in: int = 0


NOTHING = Reached(UNREAD)
"""The value for a run that has not been read yet."""


class KnownRuns(msgspec.Struct, frozen=True):
    """Linked runs, the point up to which each was read, and its head. See ``Reached``, ``NOTHING`` and ``UNREAD``."""

    run_ids: tuple[RunId, ...]
    reached: tuple[Reached, ...]
    heads: tuple[RunHead | None, ...]

    def __iter__(self) -> Iterator[tuple[RunId, Reached]]:
        return zip(self.run_ids, self.reached, strict=True)


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
    unread = [item for item in runs if item[1] is NOTHING] if UNREAD in runs.heads else []
    read = [item for item in runs if item[1] is not NOTHING] if unread else runs
    run_ids = tuple([run_id for run_id, _ in read]) if unread else runs.run_ids
    heads = (yield from peek(run_ids)) if run_ids else ()
    if not unread and heads == runs.heads:
        return AllNews([], is_complete=True)
    changed = [item for item, head in zip(read, heads, strict=True) if item[1].head != head] + unread
    some = changed[:_RUNS_AT_ONCE]
    news = yield from each(_read(*item) for item in some)
    return AllNews(news, len(some) == len(changed) and all(item.is_complete for item in news))


def read_otherwise(runs: KnownRuns) -> Steps[list[RunId]]:
    """Return the runs that hold another event where the last message was read.

    Only a store that was replaced by a backup has such runs, if it then got as many events as it had lost. It lost all
    events from some time on, so it is enough to look at the runs of the last refresh.
    """
    last = max((reached.read_in for reached in runs.reached), default=0)
    unsure = [(run_id, reached) for run_id, reached in runs if reached.seq and reached.read_in == last]
    are_same = yield from each(_is_same(*item) for item in unsure)
    return [run_id for (run_id, _), is_same in zip(unsure, are_same, strict=True) if not is_same]


def _is_same(run_id: RunId, reached: Reached) -> Steps[bool]:
    try:
        snapshot = yield from load(*run_id, reached.seq - 1, MESSAGE_TYPES, 1)
    except RunExpired:
        return True
    except CursorOutOfRange:
        return False
    return _continues(snapshot, reached)


def _continues(snapshot: Snapshot, reached: Reached) -> bool:
    """Return whether a snapshot from the last known message on has this message, or tells that it was erased."""
    return (
        not reached.seq
        or reached.seq < snapshot.first_seq
        or reached.seq in snapshot.redactions
        or any((event.seq, event.event_id) == (reached.seq, reached.event_id) for event in snapshot.log[:1])
    )


def _read(run_id: RunId, reached: Reached) -> Steps[News]:
    version = 0 if reached.head is None else reached.head.version
    try:
        newer = yield from load(*run_id, reached.seq - 1 if reached.seq else version, MESSAGE_TYPES, _EVENTS_AT_ONCE)
        if _continues(newer, reached) and newer.version >= version:
            return News(run_id, newer)
    except RunExpired:
        return News(run_id, None)
    except CursorOutOfRange:
        pass
    # The run was deleted, or the store lost its last events.
    newer = yield from load(*run_id, 0, MESSAGE_TYPES, _EVENTS_AT_ONCE)
    return News(run_id, newer, from_start=True)
