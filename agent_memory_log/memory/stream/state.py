"""The fold of a memory stream's events into the current state of the subject.

The fold is deterministic: it uses no clock and no policy, and all times come from the events. The writer has already
made each decision. A fold from the first event, a fold from a snapshot, and a fold of the new events into an older
state all give a state with equal bytes.

The state holds only active records. ``history.py`` has their earlier values and the closed records.
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
from agent_memory_log.memory.records.record import ENVELOPE_FIELDS, Evidence, Record, RunId, Status
from agent_memory_log.memory.stream.payloads import (
    MemoryChanged,
    MemoryClosed,
    MemoryDerived,
    MemoryErasedInRuns,
    MemoryMaintained,
    MemoryRefreshed,
    MemoryRemembered,
    MemorySnapshot,
    MemoryTombstone,
    MemoryUsed,
    Until,
)

_WORDS = frozenset({"text", "entities", "tags"})
"""The fields that can be changed in place and that a search compares."""


class Live(msgspec.Struct, array_like=True, gc=False):
    """An active record.

    Attributes:
        id: The id.
        seq: The seq of the event that made the record.
        created: The time of that event.
        updated: The time of the latest event that changed the record.
        memory: The current content.
        changed: The seqs of the ``MemoryChanged`` events of the record.
        worded: The seq of the last change of its words. 0: they never changed.
        stated: Whether a caller stated it directly, without evidence. It then rests on itself.
        used: The last 16 days on which it was put into a context, as ordinals of the day in UTC.
    """

    id: str
    seq: int
    created: datetime
    updated: datetime
    memory: MemoryRemembered
    changed: tuple[int, ...] = ()
    worded: int = 0
    stated: bool = False
    used: tuple[int, ...] = ()

    @property
    def data(self) -> RecordData:
        """The data as a struct of its kind."""
        return read_kind(self.memory.kind, self.memory.data)

    def record(self, scope: str, now: datetime) -> Record:
        """Return the record with its status at ``now``."""
        return self.record_as(scope, "expired" if self.is_expired(now) else "active")

    def record_as(self, scope: str, status: Status) -> Record:
        """Return the record with the status."""
        memory = self.memory
        data = read_kind(memory.kind, memory.data)
        fields = msgspec.structs.asdict(memory)  # a record has all of these fields
        fields["data"] = data
        if not memory.text:
            fields["text"] = data.describe()
        if not memory.memory_type:
            fields["memory_type"] = data.memory_type
        fields["id"], fields["scope"], fields["status"] = self.id, scope, status
        fields["created"], fields["updated"] = self.created, self.updated
        return Record(**fields)

    def is_expired(self, now: datetime) -> bool:
        """Return whether the record has expired at ``now``."""
        return self.memory.valid_until is not None and self.memory.valid_until <= now


class StateFields(msgspec.Struct, frozen=True, array_like=True):
    """The fields of a state except the records, in the order of the snapshot format. See ``State``."""

    version: int = 0
    first_seq: int = 1
    positions: tuple[Until, ...] = ()
    until: tuple[Until, ...] = ()
    forgotten: tuple[Evidence, ...] = ()
    chunks: tuple[int, ...] = ()
    pending: tuple[int, ...] = ()
    linked: tuple[RunId, ...] = ()
    in_runs: tuple[tuple[str, str, int, int], ...] = ()
    cited: tuple[RunId, ...] | None = None
    used_at: datetime | None = None
    maintained: MemoryMaintained | None = None


class State:
    """The state of a subject at a version of its stream.

    Attributes:
        version: The version.
        first_seq: The first seq of the stream. It changes if the stream is deleted.
        records: The active records by id, in the order in which they were made.
        keys: The id of the active record of each kind and folded key.
        kinds: The kinds that have, or had, a record with a key.
        holders: The record whose content each event holds, by the event's seq.
        positions: The seq up to which each run was read.
        linked: The runs whose messages a search finds.
        until: The seq up to which each run was forgotten.
        forgotten: The forgotten items of each event.
        chunks: The seqs of snapshot parts that are not redacted.
        pending: The seqs of events that must still be redacted.
        in_runs: The events of other runs that must still be redacted, with the seq of their tombstone.
        cited: The other runs that records cite or cited. With ``positions``, it names every run of their evidence.
        used_at: The time of the last event that notes used records.
        maintained: The position of the last round of ``maintain``.
        unchecked: The cited and read runs to look up in the erasure journal, with the last seq that names each.
        unsupported: The records that were left out because their evidence was erased.
        stale: Whether other code redacted events of the stream. Then only a fold from the first event is correct.
    """

    def __init__(self, fields: StateFields | None = None, lives: Iterable[Live] = ()) -> None:
        """Make an empty state, or the state of a snapshot."""
        fields = fields or StateFields()
        self.version = fields.version
        self.first_seq = fields.first_seq
        self.positions: dict[RunId, int] = {(run.agent, run.run): run.seq for run in fields.positions}
        self.until: dict[RunId, int] = {(run.agent, run.run): run.seq for run in fields.until}
        self.forgotten: dict[tuple[str, str, int], set[str]] = {}
        for source in fields.forgotten:
            self.forgotten.setdefault((source.agent, source.run, source.seq), set()).add(source.item)
        self.linked: dict[RunId, None] = dict.fromkeys(fields.linked)
        self.chunks = set(fields.chunks)
        self.pending = set(fields.pending)
        self.in_runs: dict[tuple[str, str, int], int] = {
            (agent, run, seq): tombstone for agent, run, seq, tombstone in fields.in_runs
        }
        self.cited: dict[RunId, None] = dict.fromkeys(fields.cited or ())
        self.unchecked: dict[RunId, int] = dict.fromkeys((*self.cited, *self.positions), self.version)
        self.unsupported: frozenset[str] = frozenset()
        self.used_at, self.maintained = fields.used_at, fields.maintained
        self.stale = False
        self.records: dict[str, Live] = {live.id: live for live in lives}
        self.keys: dict[tuple[str, str], str] = {}
        self.kinds: set[str] = set()
        self.holders: dict[int, str] = {}
        self._twins: dict[tuple[str, str], dict[str, None]] | None = None
        for live in self.records.values():
            self._index(live)
            self._cite(live.memory.evidence, self.version)

    def fields(self) -> StateFields:
        """Return all fields except the records."""
        return StateFields(
            self.version,
            self.first_seq,
            tuple(Until(*run_id, seq) for run_id, seq in sorted(self.positions.items())),
            tuple(Until(*run_id, seq) for run_id, seq in sorted(self.until.items())),
            tuple(Evidence(*event, item) for event, items in sorted(self.forgotten.items()) for item in sorted(items)),
            tuple(sorted(self.chunks)),
            tuple(sorted(self.pending)),
            tuple(sorted(self.linked)),
            tuple((*event, tombstone) for event, tombstone in sorted(self.in_runs.items())),
            tuple(sorted(self.cited.keys() - self.positions.keys())),
            self.used_at,
            self.maintained,
        )

    def cited_runs(self) -> tuple[RunId, ...]:
        """Return every run that the evidence of a record may name."""
        return (*self.positions, *(run_id for run_id in self.cited if run_id not in self.positions))

    def without(self, records: frozenset[str]) -> State:
        """Return a copy without some records."""
        lives = [msgspec.structs.replace(live) for live in self.records.values() if live.id not in records]
        copy = State(self.fields(), lives)
        copy.stale = self.stale
        copy.unsupported = self.unsupported | records
        return copy

    def to_bytes(self) -> bytes:
        """Return the state as JSON. Equal states have equal bytes. ``cited`` may name runs of erased records too."""
        return encode_json([msgspec.structs.replace(self.fields(), cited=None), list(self.records.values())])

    def fold(self, events: Iterable[Event], version: int) -> None:
        """Fold events up to ``version`` into the state. Events up to the state's own version are ignored."""
        old_version = self.version
        apply_for = self._APPLY.get
        for event in events:
            if event.seq > old_version:
                apply = apply_for(type(event.data))
                if apply is not None:
                    apply(self, event, event.data)
        self.version = max(old_version, version)

    def active(self, record: str, now: datetime) -> Live | None:
        """Return the active record with this id, or None if it is not active or has expired."""
        live = self.records.get(record)
        return None if live is None or live.is_expired(now) else live

    def find(self, kind: str, key: str) -> Live | None:
        """Return the active record of a kind with a key, or None."""
        record = self.keys.get((kind, fold_key(key)))
        return None if record is None else self.records[record]

    def twins(self, kind: str, text: str) -> list[Live]:
        """Return the active records of a kind without keys that have this text. Case and white space are ignored."""
        if self._twins is None:
            self._twins = {}
            for live in self.records.values():
                self._note_twin(live)
        return [self.records[record] for record in self._twins.get((kind, fold_text(text)), ())]

    def is_forgotten(self, evidence: Evidence) -> bool:
        """Return whether a statement is forgotten.

        Extractors number statements differently. So after one extractor's statement is forgotten, the statements of
        other extractors in the same event count as forgotten too.
        """
        if evidence.seq <= self.until.get((evidence.agent, evidence.run), 0):
            return True
        items = self.forgotten.get((evidence.agent, evidence.run, evidence.seq))
        if items is None:
            return False
        extractor = evidence.item.rpartition("/")[0]
        return any(
            not item or not evidence.item or item == evidence.item or item.rpartition("/")[0] != extractor
            for item in items
        )

    def may_find(self, agent: str, run: str, seq: int) -> bool:
        """Return whether a search may find an event: its run is linked, and the event is not forgotten."""
        run_id, event = (agent, run), (agent, run, seq)
        return (
            run_id in self.linked
            and seq > self.until.get(run_id, 0)
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

    def _cite(self, evidence: Iterable[Evidence], seq: int) -> None:
        for item in evidence:
            self.cited[item.run_id] = None
            self.unchecked[item.run_id] = seq

    def drop(self, record: str) -> None:
        """Remove an active record."""
        live = self.records.pop(record, None)
        if live is None:
            return
        for seq in (live.seq, *live.changed):
            self.holders.pop(seq, None)
        key = (live.memory.kind, fold_key(live.memory.key))
        if self.keys.get(key) == record:
            del self.keys[key]
        self._forget_twin(live)

    def _remembered(self, event: Event, data: MemoryRemembered) -> None:
        time = event.timestamp
        live = Live(event.event_id, event.seq, time, time, data, stated=not data.evidence)
        self.records[event.event_id] = live
        self._index(live)
        self._cite(data.evidence, event.seq)

    def _refreshed(self, event: Event, data: MemoryRefreshed) -> None:
        live = self.records.get(data.record)
        if live is None:
            self.stale = self.stale or data.record in self.unsupported  # the new evidence may support it again
            return
        self._cite(data.evidence, event.seq)
        live.memory = msgspec.structs.replace(
            live.memory,
            confidence=data.confidence,
            evidence=(*live.memory.evidence, *data.evidence),
            valid_until=data.valid_until,
        )
        live.updated = event.timestamp
        live.stated = live.stated or data.stated

    def _changed(self, event: Event, data: MemoryChanged) -> None:
        live = self.records.get(data.record)
        if live is None:
            return
        # A newer release may have changed fields that this release does not have.
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
            self.drop(record)

    def _derived(self, event: Event, data: MemoryDerived) -> None:
        run_id = (data.agent, data.run)
        self.positions[run_id] = max(data.seq, self.positions.get(run_id, 0))
        self.unchecked[run_id] = event.seq  # its injected contexts may quote erased events
        if data.linked:
            self.linked[run_id] = None

    def _tombstone(self, event: Event, data: MemoryTombstone) -> None:
        for seq in data.erased:
            self.pending.add(seq)
            self.chunks.discard(seq)
            record = self.holders.get(seq)
            if record is not None:
                self.drop(record)
        for source in data.sources:
            self.forgotten.setdefault((source.agent, source.run, source.seq), set()).add(source.item)
        for run in data.until:
            run_id = (run.agent, run.run)
            self.until[run_id] = max(run.seq, self.until.get(run_id, 0))
        for events in data.in_runs:
            self.in_runs.update(((events.agent, events.run, seq), event.seq) for seq in events.seqs)

    def _erased_in_runs(self, _: Event, data: MemoryErasedInRuns) -> None:
        self.in_runs = {event: tombstone for event, tombstone in self.in_runs.items() if tombstone > data.seq}

    def _used(self, event: Event, data: MemoryUsed) -> None:
        self.used_at, day = event.timestamp, event.timestamp.toordinal()
        for live in (self.records[record] for record in data.records if record in self.records):
            live.used = tuple(dict.fromkeys((*live.used, day)))[-16:]

    def _maintained(self, _: Event, data: MemoryMaintained) -> None:
        self.maintained = data

    def _snapshot(self, event: Event, _: MemorySnapshot) -> None:
        self.chunks.add(event.seq)

    def _redacted(self, event: Event, data: Redacted) -> None:
        # A redacted snapshot part. Its redaction marker follows later, and must not make the state stale.
        if data.original_type == MemorySnapshot.event_type:
            self.chunks.add(event.seq)

    def _redaction(self, _: Event, data: Redaction) -> None:
        by_other_code = False
        for seq in data.seqs:
            if seq in self.pending:
                self.pending.discard(seq)
            elif seq in self.chunks:
                self.chunks.discard(seq)
            else:
                by_other_code = True
        if by_other_code:
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
        MemoryUsed: _used,
        MemoryMaintained: _maintained,
        MemorySnapshot: _snapshot,
        Redacted: _redacted,
        Redaction: _redaction,
    }
