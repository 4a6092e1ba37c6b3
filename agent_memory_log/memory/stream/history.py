"""The full history of a subject, folded from its stream: the active records and the closed ones.

Only rare calls need it: ``history``, ``as_of``, ``explain``, ``stats`` and erasures. They fold the stream on each call,
so that the cached state holds only active records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import cast

import msgspec

from agent_memory_log.events.event import Event
from agent_memory_log.memory.records.record import RESTORES, Evidence, Record, Status
from agent_memory_log.memory.stream.evidence import parts_of
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

CONSOLIDATED = "consolidated"
"""The reason of a record that is archived because a new record says the same as it and others."""


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
        log: The events that were folded.
        story: The events about each record, by the record's id, in seq order.
    """

    def __init__(self, stream: Snapshot, *, until: datetime | None = None) -> None:
        """Fold the stream. Events with a timestamp after ``until`` are ignored."""
        self.state = State()
        self.state.first_seq = stream.first_seq
        self.events = len(stream.log)
        self.closed: dict[str, Closed] = {}
        self.blocked: list[tuple[Event, MemoryBlocked]] = []
        self.log: list[Event] = []
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

    def by_id(self) -> dict[str, tuple[Live, Closed | None]]:
        """Return the records of ``lives`` by id."""
        return {live.id: (live, closed) for live, closed in self.lives()}

    def find(self, record: str) -> Live | None:
        """Return a record, active or closed, or None."""
        closed = self.closed.get(record)
        return self.state.records.get(record) if closed is None else closed.live

    def archived_parts(self, live: Live) -> list[Closed]:
        """Return the records that were archived because this record says the same, the oldest first.

        A restored record has the parts of the record that it repeats.
        """
        forms = {live.id, *(link.target for link in live.memory.links if link.type == RESTORES)}
        parts = (self.closed.get(part) for part in parts_of(live))
        archived = [part for part in parts if part is not None and part.by in forms and part.status == "archived"]
        return sorted(archived, key=lambda part: part.live.seq)

    def sources(self, lives: Sequence[Live]) -> set[Evidence]:
        """Return the evidence of records, without the evidence that belongs to consolidated parts that remain."""
        chosen = {live.id for live in lives}
        parts = {live.id: self.archived_parts(live) for live in lives}
        remaining = (part.live for group in parts.values() for part in group if part.live.id not in chosen)
        to_keep = {item for live in remaining for item in live.memory.evidence}
        return {item for live in lives for item in live.memory.evidence if item not in to_keep or not parts[live.id]}

    def first_evidence(self, live: Live) -> tuple[Evidence, ...]:
        """Return the evidence that a record had when it was made."""
        data = self.story[live.id][0].data
        return data.evidence if isinstance(data, MemoryRemembered) else ()

    def records(self, scope: str, now: datetime) -> Iterator[Record]:
        """Yield every record with its status at ``now``."""
        for live, closed in self.lives():
            yield record_of(live, closed, scope, now)

    def drop(self, records: Iterable[str]) -> None:
        """Remove records, active or closed."""
        for record in records:
            self.state.drop(record)
            self.closed.pop(record, None)

    def _fold(self, event: Event) -> None:
        data = event.data
        self.log.append(event)
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


def record_of(live: Live, closed: Closed | None, scope: str, now: datetime) -> Record:
    """Return a record, active or closed, with its status at ``now``."""
    return live.record(scope, now) if closed is None else live.record_as(scope, closed.status)


_STATUSES = frozenset({"superseded", "archived", "expired"})
