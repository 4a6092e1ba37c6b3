"""Linked runs as an index reads them: where each stood when it was read, and what is new since."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agent_memory_log.errors import CursorOutOfRange, RunExpired
from agent_memory_log.memory.messages import MESSAGE_TYPES
from agent_memory_log.memory.state import Place
from agent_memory_log.memory.steps import Load, Peek, Steps, each, load, peek
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import RunHead

UNREAD = RunHead(0, 0)
"""Where a run stands of which nothing was read: nowhere that a store would say."""


class LinkedRun(msgspec.Struct):
    """A linked run: where it stood when it was read, None where it had expired; messages that can be found, by seq."""

    head: RunHead | None
    ids: dict[int, str]


class News(msgspec.Struct, frozen=True):
    """What was read of a linked run: ``snapshot`` is None where it expired; ``anew``: from its first event."""

    place: Place
    snapshot: Snapshot | None
    anew: bool = False

    def is_news(self, head: RunHead | None) -> bool:
        """Whether it says anything to who knows that the run stood there."""
        if head is None or self.snapshot is None or self.anew:
            return head is not None or self.snapshot is not None
        return self.snapshot.last_seq > head.version or self.snapshot.first_seq != head.first_seq


def read_new(places: Sequence[tuple[Place, RunHead | None]]) -> Steps[list[News]]:
    """What is new in linked runs. Those that stand where they did are left out, if the store can tell by one look."""
    known = [one for one in places if one[1] is not UNREAD]
    heads = (yield from peek(Peek(tuple([place for place, _ in known])))) if known else None
    if heads is not None:
        unread = [one for one in places if one[1] is UNREAD]
        places = [one for one, head in zip(known, heads, strict=True) if one[1] != head] + unread
    if not places:
        return []
    return (yield from each(_read(place, 0 if head is None else head.version) for place, head in places))


def _read(place: Place, after: int) -> Steps[News]:
    try:
        newer = yield from load(Load(*place, after, MESSAGE_TYPES))
    except RunExpired:
        return News(place, None)
    except CursorOutOfRange:  # the store has forgotten it
        newer = yield from load(Load(*place, 0, MESSAGE_TYPES))
        return News(place, newer, anew=True)
    return News(place, newer)
