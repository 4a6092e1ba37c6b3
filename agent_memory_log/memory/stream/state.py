"""The fold: a memory stream's events, one after the other, into what is remembered now.

Pure and deterministic: no clock, no policy, times from the events. What an event says is what happens; whether it may
was decided when it was written. The law: folding a stream from its first event, or from a snapshot, or growing what was
folded before by what is new, gives equal bytes.

Only active records are held. What they were before, and those that are active no longer, is in ``history.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, ClassVar

import msgspec

from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.events.payloads import EventData, Redacted, Redaction
from agent_memory_log.memory.records.kinds import RecordData, fold_key, fold_text, read_kind
from agent_memory_log.memory.records.record import (
    ENVELOPE_FIELDS,
    Evidence,
    Record,
    RunId,
    Status,
)
from agent_memory_log.memory.stream.payloads import (
    MemoryChanged,
    MemoryClosed,
    MemoryDerived,
    MemoryErasedInRuns,
    MemoryRefreshed,
    MemoryRemembered,
    MemorySnapshot,
    MemoryTombstone,
    Until,
)

_WORDS = frozenset({"text", "entities", "tags"})
"""What a record is found by, of what can be changed in place."""


class Live(msgspec.Struct, array_like=True, gc=False):
    """An active record: its id, the seq it came with, its times, the memory as it is now, the seqs that changed it.

    ``worded``: the seq of the last change to its words (0: none).
    """

    id: str
    seq: int
    created: datetime
    updated: datetime
    memory: MemoryRemembered
    changed: tuple[int, ...] = ()
    worded: int = 0

    @property
    def data(self) -> RecordData:
        """What it is about, read."""
        return read_kind(self.memory.kind, self.memory.data)

    def record(self, scope: str, now: datetime) -> Record:
        """The record, as it stands at a time."""
        return self.record_as(scope, "expired" if self.is_expired(now) else "active")

    def record_as(self, scope: str, status: Status) -> Record:
        """The record with a status."""
        memory = self.memory
        data = read_kind(memory.kind, memory.data)
        fields = msgspec.structs.asdict(memory)  # all of them are a record's fields
        fields["data"] = data
        if not memory.text:
            fields["text"] = data.describe()
        if not memory.memory_type:
            fields["memory_type"] = data.memory_type
        fields["id"], fields["scope"], fields["status"] = self.id, scope, status
        fields["created"], fields["updated"] = self.created, self.updated
        return Record(**fields)

    def is_expired(self, now: datetime) -> bool:
        """Whether its end has come."""
        return self.memory.valid_until is not None and self.memory.valid_until <= now


class Held(msgspec.Struct, frozen=True, array_like=True):
    """What a state holds besides records, in the order in which it is written."""

    version: int = 0
    first_seq: int = 1
    positions: tuple[Until, ...] = ()
    until: tuple[Until, ...] = ()
    forgotten: tuple[Evidence, ...] = ()
    chunks: tuple[int, ...] = ()
    pending: tuple[int, ...] = ()
    linked: tuple[RunId, ...] = ()
    in_runs: tuple[tuple[str, str, int, int], ...] = ()


class State:
    """What a subject remembers, as of a version of its stream.

    - ``records``: the active ones by id, in the order they came; ``keys``: the id for each kind and folded key;
      ``kinds``: the kinds that have had keys.
    - ``positions``: how far each run was read; ``linked``: the runs whose messages can be found.
    - ``until``, ``forgotten``: what is not to be learnt again, nor found.
    - ``chunks``: the seqs of snapshots that hold content; ``pending``: those that are to be redacted and are not yet.
    - ``in_runs``: events of other runs that are to be redacted and are not yet, each with the seq of its tombstone.
    - ``stale``: something was redacted from outside of memory, so that only a fold from the first event is right.
    """

    def __init__(self, held: Held | None = None, lives: Iterable[Live] = ()) -> None:
        """Nothing, or what was held at a version."""
        held = held or Held()
        self.version = held.version
        self.first_seq = held.first_seq
        self.positions: dict[RunId, int] = {(one.agent, one.run): one.seq for one in held.positions}
        self.until: dict[RunId, int] = {(one.agent, one.run): one.seq for one in held.until}
        self.forgotten: dict[tuple[str, str, int], set[str]] = {}
        for one in held.forgotten:
            self.forgotten.setdefault((one.agent, one.run, one.seq), set()).add(one.item)
        self.linked: dict[RunId, None] = dict.fromkeys(held.linked)
        self.chunks = set(held.chunks)
        self.pending = set(held.pending)
        self.in_runs: dict[tuple[str, str, int], int] = {(agent, run, seq): by for agent, run, seq, by in held.in_runs}
        self.stale = False
        self.records: dict[str, Live] = {live.id: live for live in lives}
        self.keys: dict[tuple[str, str], str] = {}
        self.kinds: set[str] = set()
        self.holders: dict[int, str] = {}
        self._twins: dict[tuple[str, str], dict[str, None]] | None = None
        for live in self.records.values():
            self._index(live)

    def held(self) -> Held:
        """All but the records."""
        return Held(
            self.version,
            self.first_seq,
            tuple(Until(*place, seq) for place, seq in sorted(self.positions.items())),
            tuple(Until(*place, seq) for place, seq in sorted(self.until.items())),
            tuple(Evidence(*place, item) for place, items in sorted(self.forgotten.items()) for item in sorted(items)),
            tuple(sorted(self.chunks)),
            tuple(sorted(self.pending)),
            tuple(sorted(self.linked)),
            tuple((agent, run, seq, by) for (agent, run, seq), by in sorted(self.in_runs.items())),
        )

    def to_bytes(self) -> bytes:
        """The whole state as JSON: equal for equal states."""
        return encode_json([self.held(), list(self.records.values())])

    def fold(self, events: Iterable[Event], version: int) -> None:
        """Take in what follows, up to ``version``; events at or before this state's version are left out."""
        known = self.version
        apply = self._APPLY.get
        for event in events:
            if event.seq > known:
                take = apply(type(event.data))
                if take is not None:
                    take(self, event, event.data)
        self.version = max(known, version)

    def active(self, record: str, now: datetime) -> Live | None:
        """An active record that has not expired, by its id."""
        live = self.records.get(record)
        return None if live is None or live.is_expired(now) else live

    def find(self, kind: str, key: str) -> Live | None:
        """The active record of a kind with a key."""
        found = self.keys.get((kind, fold_key(key)))
        return None if found is None else self.records[found]

    def twins(self, kind: str, text: str) -> list[Live]:
        """The active records of a kind, without keys, that have the same text but for case and white space."""
        if self._twins is None:
            self._twins = {}
            for live in self.records.values():
                self._note_twin(live)
        return [self.records[one] for one in self._twins.get((kind, fold_text(text)), ())]

    def is_forgotten(self, evidence: Evidence) -> bool:
        """Whether a statement is one that was forgotten, or may be: another extractor counts statements otherwise."""
        if evidence.seq <= self.until.get((evidence.agent, evidence.run), 0):
            return True
        items = self.forgotten.get((evidence.agent, evidence.run, evidence.seq))
        if items is None:
            return False
        name = evidence.item.rpartition("/")[0]
        return any(
            not item or not evidence.item or item == evidence.item or item.rpartition("/")[0] != name for item in items
        )

    def may_find(self, agent: str, run: str, seq: int) -> bool:
        """Whether an event of a run can be found: the run is linked, and what it says there was not forgotten."""
        place, event = (agent, run), (agent, run, seq)
        return (
            place in self.linked
            and seq > self.until.get(place, 0)
            and event not in self.forgotten
            and event not in self.in_runs
        )

    def _index(self, live: Live) -> None:
        memory = live.memory
        self.holders[live.seq] = live.id
        for seq in live.changed:
            self.holders[seq] = live.id
        if memory.key:
            self.keys[memory.kind, fold_key(memory.key)] = live.id
            self.kinds.add(memory.kind)
        if self._twins is not None:
            self._note_twin(live)

    def _note_twin(self, live: Live) -> None:
        if self._twins is not None and not live.memory.key:
            self._twins.setdefault((live.memory.kind, fold_text(live.memory.text)), {})[live.id] = None

    def _forget_twin(self, live: Live) -> None:
        if self._twins is not None and not live.memory.key:
            self._twins.get((live.memory.kind, fold_text(live.memory.text)), {}).pop(live.id, None)

    def _drop(self, record: str) -> None:
        live = self.records.pop(record, None)
        if live is None:
            return
        for seq in (live.seq, *live.changed):
            self.holders.pop(seq, None)
        place = (live.memory.kind, fold_key(live.memory.key))
        if self.keys.get(place) == record:
            del self.keys[place]
        self._forget_twin(live)

    def _remembered(self, event: Event, data: MemoryRemembered) -> None:
        time = event.timestamp
        live = Live(event.event_id, event.seq, time, time, data)
        self.records[event.event_id] = live
        self._index(live)

    def _refreshed(self, event: Event, data: MemoryRefreshed) -> None:
        live = self.records.get(data.record)
        if live is None:
            return
        live.memory = msgspec.structs.replace(
            live.memory,
            confidence=data.confidence,
            evidence=(*live.memory.evidence, *data.evidence),
            valid_until=data.valid_until,
        )
        live.updated = event.timestamp

    def _changed(self, event: Event, data: MemoryChanged) -> None:
        live = self.records.get(data.record)
        if live is None:
            return
        # A newer release may have changed fields that this one does not know.
        changes = {name: getattr(data, name) for name in data.changed if name in ENVELOPE_FIELDS}
        self._forget_twin(live)
        live.memory = msgspec.structs.replace(live.memory, **changes)
        live.updated = event.timestamp
        live.changed = (*live.changed, event.seq)
        if not changes.keys().isdisjoint(_WORDS):
            live.worded = event.seq
        self.holders[event.seq] = live.id
        self._note_twin(live)

    def _closed(self, _: Event, data: MemoryClosed) -> None:
        for record in data.records:
            self._drop(record)

    def _derived(self, _: Event, data: MemoryDerived) -> None:
        place = (data.agent, data.run)
        self.positions[place] = max(data.seq, self.positions.get(place, 0))
        if data.linked:
            self.linked[place] = None

    def _tombstone(self, event: Event, data: MemoryTombstone) -> None:
        for seq in data.erased:
            self.pending.add(seq)
            self.chunks.discard(seq)
            record = self.holders.get(seq)
            if record is not None:
                self._drop(record)
        for source in data.sources:
            self.forgotten.setdefault((source.agent, source.run, source.seq), set()).add(source.item)
        for one in data.until:
            place = (one.agent, one.run)
            self.until[place] = max(one.seq, self.until.get(place, 0))
        for events in data.in_runs:
            self.in_runs.update(((events.agent, events.run, seq), event.seq) for seq in events.seqs)

    def _erased_in_runs(self, _: Event, data: MemoryErasedInRuns) -> None:
        self.in_runs = {event: by for event, by in self.in_runs.items() if by > data.seq}

    def _snapshot(self, event: Event, _: MemorySnapshot) -> None:
        self.chunks.add(event.seq)

    def _redacted(self, event: Event, data: Redacted) -> None:
        # A part of a snapshot that went since: the marker that says so comes later, and is not one from outside.
        if data.original_type == MemorySnapshot.event_type:
            self.chunks.add(event.seq)

    def _redaction(self, _: Event, data: Redaction) -> None:
        outside = False
        for seq in data.seqs:
            if seq in self.pending:
                self.pending.discard(seq)
            elif seq in self.chunks:
                self.chunks.discard(seq)
            else:
                outside = True
        if outside:
            self.stale = True
            self.pending |= self.chunks
            self.chunks.clear()

    _APPLY: ClassVar[dict[type[EventData], Callable[[State, Event, Any], None]]] = {
        MemoryRemembered: _remembered,
        MemoryRefreshed: _refreshed,
        MemoryChanged: _changed,
        MemoryClosed: _closed,
        MemoryDerived: _derived,
        MemoryTombstone: _tombstone,
        MemoryErasedInRuns: _erased_in_runs,
        MemorySnapshot: _snapshot,
        Redacted: _redacted,
        Redaction: _redaction,
    }
