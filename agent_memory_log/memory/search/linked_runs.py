"""Linked runs as an index reads them: where each stood when it was read, and what is new since.

One ``peek_runs`` call finds the runs whose version or ``first_seq`` changed, because no event changes without one of
the two.
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
"""Where a run stands of which nothing was read: nowhere that a store would say."""


class LinkedRun(msgspec.Struct):
    """A linked run: where it stood when it was read, None where it had expired; messages that can be found, by seq."""

    head: RunHead | None
    ids: dict[int, str]


class News(msgspec.Struct, frozen=True):
    """What was read of a linked run: ``snapshot`` is None where it expired; ``anew``: from its first event."""

    place: RunId
    snapshot: Snapshot | None
    anew: bool = False

    def is_news(self, head: RunHead | None) -> bool:
        """Whether it says anything to who knows that the run stood there."""
        if head is None or self.snapshot is None or self.anew:
            return head is not None or self.snapshot is not None
        return self.snapshot.last_seq > head.version or self.snapshot.first_seq != head.first_seq


class KnownRuns(msgspec.Struct, frozen=True):
    """Linked runs, and where each stood when it was read: ``UNREAD``, or None where it had expired."""

    places: tuple[RunId, ...]
    heads: tuple[RunHead | None, ...]

    def __iter__(self) -> Iterator[tuple[RunId, RunHead | None]]:
        return zip(self.places, self.heads, strict=True)


def read_new(runs: KnownRuns) -> Steps[list[News]]:
    """What is new in linked runs. Runs that stand where they did are left out, by one look at the store."""
    unread = [one for one in runs if one[1] is UNREAD] if UNREAD in runs.heads else []
    known = [one for one in runs if one[1] is not UNREAD] if unread else runs
    places = tuple([place for place, _ in known]) if unread else runs.places
    heads = (yield from peek(places)) if places else ()
    if not unread and heads == runs.heads:
        changed = []
    else:
        changed = [one for one, head in zip(known, heads, strict=True) if one[1] != head] + unread
    if not changed:
        return []
    return (yield from each(_read(place, 0 if head is None else head.version) for place, head in changed))


def _read(place: RunId, after: int) -> Steps[News]:
    try:
        newer = yield from load(*place, after, MESSAGE_TYPES)
    except RunExpired:
        return News(place, None)
    except CursorOutOfRange:  # the store has forgotten it
        newer = yield from load(*place, 0, MESSAGE_TYPES)
        return News(place, newer, anew=True)
    return News(place, newer)
