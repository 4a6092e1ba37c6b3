"""The whole history of a subject: the records that are active, and all that no longer are, from its stream alone.

What is asked rarely (history, what was believed on a day, what an erasure must reach) is folded from the stream when it
is asked, so that what is kept warm is no larger than what is remembered.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import cast

import msgspec

from agent_memory_log.events.event import Event
from agent_memory_log.memory.records.record import Evidence, Record, Status
from agent_memory_log.memory.stream.payloads import (
    MemoryBlocked,
    MemoryChanged,
    MemoryClosed,
    MemoryRefreshed,
    MemoryRemembered,
    MemoryTombstone,
)
from agent_memory_log.memory.stream.state import Live, State
from agent_memory_log.snapshot import Snapshot


class Closed(msgspec.Struct, frozen=True):
    """A record that is active no longer: what it was, when it ended, as what and why, and which took its place."""

    live: Live
    at: datetime
    status: Status
    reason: str
    by: str


class Ledger:
    """A stream, folded with everything that was closed.

    - ``state``: what is active; ``closed``: what was, by id; ``blocked``: the events that say what was not stored.
    - ``events``: how many events the stream has.
    - ``story``: the events about each record, by its id, in the order they came.
    """

    def __init__(self, stream: Snapshot, *, until: datetime | None = None) -> None:
        """``until`` leaves out the events that happened after it."""
        self.state = State()
        self.state.first_seq = stream.first_seq
        self.events = len(stream.log)
        self.closed: dict[str, Closed] = {}
        self.blocked: list[tuple[Event, MemoryBlocked]] = []
        self.story: dict[str, list[Event]] = {}
        # What was forgotten is not to be seen on any day, be it redacted yet or not.
        erased = {seq for event in stream.log if isinstance(event.data, MemoryTombstone) for seq in event.data.erased}
        for event in stream.log:
            if event.seq not in erased and (until is None or event.timestamp <= until):
                self._take(event)
        self.state.version = stream.last_seq

    def lives(self) -> Iterator[tuple[Live, Closed | None]]:
        """Every record that still says something, by the seq it came with."""
        both: list[tuple[Live, Closed | None]] = [(live, None) for live in self.state.records.values()]
        both.extend((one.live, one) for one in self.closed.values())
        both.sort(key=lambda pair: pair[0].seq)
        return iter(both)

    def first_evidence(self, live: Live) -> tuple[Evidence, ...]:
        """What a record rested on when it came to be."""
        data = self.story[live.id][0].data
        return data.evidence if isinstance(data, MemoryRemembered) else ()

    def records(self, scope: str, now: datetime) -> Iterator[Record]:
        """All of them as records, as they stand at ``now``."""
        for live, closed in self.lives():
            yield live.record(scope, now) if closed is None else live.record_as(scope, closed.status)

    def _take(self, event: Event) -> None:
        data = event.data
        if isinstance(data, MemoryRemembered):
            self.story[event.event_id] = [event]
        elif isinstance(data, (MemoryChanged, MemoryRefreshed)):
            self.story.setdefault(data.record, []).append(event)
        elif isinstance(data, MemoryClosed):
            for record in data.records:
                live = self.state.records.get(record)
                self.story.setdefault(record, []).append(event)
                if live is not None:
                    status = data.status if data.status in _STATUSES else "archived"
                    self.closed[record] = Closed(live, event.timestamp, cast("Status", status), data.reason, data.by)
        elif isinstance(data, MemoryBlocked):
            self.blocked.append((event, data))
        self.state.fold((event,), event.seq)


_STATUSES = frozenset({"superseded", "archived", "expired"})
