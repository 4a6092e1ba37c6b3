"""The full history of a subject, folded from its stream: the active records and the closed ones.

Only rare calls need it: ``history``, ``as_of``, ``explain``, ``stats`` and erasures. They fold the stream on each call,
so that the cached state holds only active records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    """A record that is no longer active.

    Attributes:
        live: The record as it was before it was closed.
        at: The time at which it was closed.
        status: Its status now.
        reason: The reason.
        by: The id of the record that replaced it, or ``""``.
    """

    live: Live
    at: datetime
    status: Status
    reason: str
    by: str


class Ledger:
    """The history of one stream.

    Attributes:
        state: The state, with the active records.
        events: The number of events in the stream.
        closed: The closed records by id.
        blocked: The events that record blocked candidates.
        story: The events about each record, by the record's id, in seq order.
    """

    def __init__(self, stream: Snapshot, *, until: datetime | None = None) -> None:
        """Fold the stream. Events with a timestamp after ``until`` are ignored."""
        self.state = State()
        self.state.first_seq = stream.first_seq
        self.events = len(stream.log)
        self.closed: dict[str, Closed] = {}
        self.blocked: list[tuple[Event, MemoryBlocked]] = []
        self.story: dict[str, list[Event]] = {}
        # Forgotten events are ignored for every ``until``, even if they are not redacted yet.
        erased = {seq for event in stream.log if isinstance(event.data, MemoryTombstone) for seq in event.data.erased}
        for event in stream.log:
            if event.seq not in erased and (until is None or event.timestamp <= until):
                self._fold(event)
        self.state.version = stream.last_seq

    def lives(self) -> Iterator[tuple[Live, Closed | None]]:
        """Return every record in the order of creation, with its ``Closed`` entry, or None for an active record."""
        pairs: list[tuple[Live, Closed | None]] = [(live, None) for live in self.state.records.values()]
        pairs.extend((closed.live, closed) for closed in self.closed.values())
        pairs.sort(key=lambda pair: pair[0].seq)
        return iter(pairs)

    def first_evidence(self, live: Live) -> tuple[Evidence, ...]:
        """Return the evidence that a record had when it was made."""
        data = self.story[live.id][0].data
        return data.evidence if isinstance(data, MemoryRemembered) else ()

    def records(self, scope: str, now: datetime) -> Iterator[Record]:
        """Yield every record with its status at ``now``."""
        for live, closed in self.lives():
            yield live.record(scope, now) if closed is None else live.record_as(scope, closed.status)

    def drop(self, records: Iterable[str]) -> None:
        """Remove records, active or closed."""
        for record in records:
            self.state.drop(record)
            self.closed.pop(record, None)

    def _fold(self, event: Event) -> None:
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
