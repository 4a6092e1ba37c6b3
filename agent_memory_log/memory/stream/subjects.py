"""The stream of one subject with its cached state. The first call opens it; later calls read only new events."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from agent_memory_log.errors import AgentMemoryLogError, CursorOutOfRange, EventTooLarge, RunExpired, VersionConflict
from agent_memory_log.events.event import Event, new_event
from agent_memory_log.memory.records.principals import STREAM_RUN, SubjectId, stream_of, subject_of
from agent_memory_log.memory.records.record import RunId
from agent_memory_log.memory.stream import snapshots
from agent_memory_log.memory.stream.evidence import parts_of, unsupported
from agent_memory_log.memory.stream.history import Ledger
from agent_memory_log.memory.stream.payloads import MemoryErasedInRuns, MemorySnapshot, RunEvents
from agent_memory_log.memory.stream.state import Live, State
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.steps import Steps, all_runs, append, erasures, load, redact

_Answer = TypeVar("_Answer")

FORGOTTEN = "forgotten"
_REPLACED = "replaced by a newer snapshot"
_PARTS_AT_ONCE = 8
_LEAST_PART_BYTES = 1024

USES_APART = timedelta(minutes=1)
"""The least time between two events that note used records."""


class Subject:
    """A subject's stream and its cached state.

    Any number of tasks and threads may share a subject. All code outside this class reads the state with ``ask``.
    """

    def __init__(self, subject: SubjectId) -> None:
        """Set up the subject without reading the store."""
        self.id = subject
        self.agent = stream_of(subject)
        self.may_owe_erasure = False
        """True if the stream may still hold a memory that has lost its evidence."""
        self._state: State | None = None
        self._journal: int | None = None
        self._used: dict[str, None] = {}
        self._lock = threading.RLock()

    def ask(self, question: Callable[[State], _Answer]) -> _Answer:
        """Return the result of ``question`` for the cached state. The state does not change during the call."""
        with self._lock:
            if self._state is None:
                raise AssertionError("call refresh before ask")
            return question(self._state)

    def note_use(self, records: Iterable[str]) -> None:
        """Note that records were put into a context. The next write to the stream stores it, because reads do not."""
        with self._lock:
            self._used.update(dict.fromkeys(self.ask(lambda state: [id_ for id_ in records if id_ in state.records])))

    def uses_to_store(self, now: datetime) -> tuple[str, ...]:
        """Return the used records that the next write stores, or none if the last ones are less than a minute old."""
        with self._lock:
            self._used = self.ask(lambda state: {record: None for record in self._used if record in state.records})
            stored_at = self.ask(lambda state: state.used_at)
            is_due = stored_at is None or now - stored_at >= USES_APART
            return tuple(self._used) if is_due else ()

    def drop_uses(self, records: Iterable[str]) -> None:
        """Drop noted uses that are stored now."""
        with self._lock:
            for record in records:
                self._used.pop(record, None)

    @property
    def has_uses(self) -> bool:
        """Return whether a use of a record is noted and not stored."""
        return bool(self._used)

    def refresh(self) -> Steps[None]:
        """Read the new events, or open the stream the first time. Leave out records whose evidence was erased.

        Raises the errors of ``Store.load_run``.
        """
        yield from self._read()
        yield from self._leave_out_unsupported()

    def _read(self) -> Steps[None]:
        while True:
            state = self._state
            if state is None:
                yield from self._open()
                return
            after = state.version
            try:
                newer = yield from load(self.agent, STREAM_RUN, after)
            except CursorOutOfRange:  # the stream is gone from the store
                yield from self.reopen()
                return
            with self._lock:
                state = self._state or state
                if state.version >= after:
                    if state.first_seq == newer.first_seq:
                        state.fold(newer.log, newer.last_seq)
                    else:
                        state.stale = True  # the stream was deleted
                    break
            # Another task opened the stream meanwhile, and holds a state without all events up to ``after``.
        if state.stale:
            yield from self.reopen()

    def _leave_out_unsupported(self) -> Steps[None]:
        """Leave out the records that have lost their evidence. It costs one look-up if the journal has not grown."""
        unchecked, cited, version = self.ask(lambda state: (tuple(state.unchecked), state.cited_runs(), state.version))
        journal = yield from erasures(unchecked)
        entries, read = journal.entries, self._journal
        if read is not None and read != journal.position:
            # A lower position means that another store is at this place now.
            after = read if read < journal.position else 0
            entries += (yield from erasures(cited, after)).entries
        if entries:
            self.may_owe_erasure = True
            yield from self._leave_out({(entry.agent, entry.run) for entry in entries})
        with self._lock:
            self._journal = journal.position
            if self._state is not None:
                for run_id in unchecked:
                    if self._state.unchecked.get(run_id, version + 1) <= version:
                        del self._state.unchecked[run_id]

    def _leave_out(self, runs: set[RunId]) -> Steps[None]:
        lives = self.ask(
            lambda state: [
                msgspec.structs.replace(live)
                for live in state.records.values()
                if any(item.run_id in runs for item in live.memory.evidence)
            ]
        )
        if any(map(parts_of, lives)):  # the parts of a merged record are closed, so only the stream has them
            stream = yield from self.load_all()
            fallen = yield from unsupported(live for live, _ in Ledger(stream).lives())
        else:
            fallen = yield from unsupported(lives)
        with self._lock:
            state = self._state
            if state is not None and not fallen.isdisjoint(state.records):
                same = {live.id for live in lives if self._has_evidence(state, live)}
                self._state = state.without(fallen & same)

    @staticmethod
    def _has_evidence(state: State, seen: Live) -> bool:
        """Return whether a record still has the evidence that was looked up. New evidence is looked up next time."""
        live = state.records.get(seen.id)
        return live is not None and live.memory.evidence == seen.memory.evidence

    def reopen(self) -> Steps[State]:
        """Fold the stream from its first event, without its snapshots."""
        stream = yield from self.load_all()
        fresh = folded(stream)
        self.hold(fresh)
        return fresh

    def hold(self, state: State) -> None:
        """Replace the cached state."""
        with self._lock:
            self._state = state

    def load_all(self) -> Steps[Snapshot]:
        """Load the whole stream."""
        return (yield from load(self.agent, STREAM_RUN))

    def ledger(self, until: datetime | None = None) -> Steps[Ledger]:
        """Return the whole history, up to a time, without the records that have lost their evidence."""
        ledger = Ledger((yield from self.load_all()), until=until)
        ledger.drop((yield from unsupported(live for live, _ in ledger.lives())))
        return ledger

    def commit(self, events: Sequence[Event], expected_version: int) -> Steps[tuple[Event, ...]]:
        """Append events and fold them into the cached state. Return them as stored.

        Raises ``VersionConflict`` if the stream has another version, and the other errors of ``Store.append_events``.
        """
        result = yield from append(self.agent, STREAM_RUN, events, expected_version=expected_version, reserved=True)
        with self._lock:
            state = self._state
            if state is not None and state.version == expected_version:
                # The version of the result is later if the append was repeated and another writer came in between.
                state.fold(result.events, result.events[-1].seq)
        return result.events

    def finish_erasure(self, now: datetime) -> Steps[int]:
        """Redact the events of all tombstones that are not yet redacted. Return how many are in this stream.

        Call ``refresh`` first.
        """
        pending = self.ask(lambda state: tuple(sorted(state.pending)))
        if pending:
            yield from redact(self.agent, STREAM_RUN, pending, FORGOTTEN)
            yield from self.refresh()
        if self.ask(lambda state: state.in_runs):
            yield from self._erase_in_runs(now)
        return len(pending)

    def _erase_in_runs(self, now: datetime) -> Steps[None]:
        in_runs, version = self.ask(lambda state: (dict(state.in_runs), state.version))
        # One tombstone at a time, because a run may have been deleted and restarted between two tombstones.
        for tombstone in sorted(set(in_runs.values())):
            for events in by_run(event for event, written_by in in_runs.items() if written_by == tombstone):
                with suppress(CursorOutOfRange, RunExpired):  # the run is gone
                    yield from redact(events.agent, events.run, events.seqs, FORGOTTEN)
        with suppress(VersionConflict):  # the faster writer, or the next one, appends this note
            yield from self.commit([new_event(MemoryErasedInRuns(max(in_runs.values())), timestamp=now)], version)

    def keep_opening_fast(self, now: datetime) -> Steps[None]:
        """Write a snapshot if one is due. Errors are ignored, because the stream is complete without it."""
        if self.ask(snapshots.is_due):
            with suppress(AgentMemoryLogError):
                yield from self._write_snapshot(now)

    def _write_snapshot(self, now: datetime) -> Steps[None]:
        part_bytes = snapshots.PART_BYTES
        while True:
            try:
                yield from self._write_parts(now, part_bytes)
            except EventTooLarge:
                if part_bytes <= _LEAST_PART_BYTES:
                    raise
                part_bytes //= 4
            else:
                return

    def _write_parts(self, now: datetime, part_bytes: int) -> Steps[None]:
        old, version, parts = self.ask(
            lambda state: (tuple(sorted(state.chunks)), state.version, snapshots.parts_of(state, now, part_bytes))
        )
        for begin in range(0, len(parts), _PARTS_AT_ONCE):
            stored = yield from self.commit(parts[begin : begin + _PARTS_AT_ONCE], version)
            version = stored[-1].seq
        if old:
            yield from redact(self.agent, STREAM_RUN, old, _REPLACED)

    def _open(self) -> Steps[None]:
        parts = yield from load(self.agent, STREAM_RUN, types=(MemorySnapshot.event_type,))
        state = snapshots.latest(parts.log)
        if state is None or state.first_seq != parts.first_seq:
            yield from self.reopen()
            return
        rest = yield from load(self.agent, STREAM_RUN, state.version)
        state.fold(rest.log, rest.last_seq)
        if state.stale or rest.first_seq != state.first_seq:
            yield from self.reopen()
            return
        with self._lock:
            if self._state is None or self._state.version < state.version:
                self._state = state


def folded(stream: Snapshot) -> State:
    """Return the state of a stream that was loaded from its first event."""
    state = State()
    state.first_seq = stream.first_seq
    state.fold(stream.log, stream.last_seq)
    state.stale = False
    return state


def by_run(events: Iterable[tuple[str, str, int]]) -> tuple[RunEvents, ...]:
    """Group events by run. Each event is an agent, a run and a seq."""
    seqs: dict[tuple[str, str], list[int]] = {}
    for agent, run, seq in sorted(events):
        seqs.setdefault((agent, run), []).append(seq)
    return tuple(RunEvents(*run_id, tuple(run_seqs)) for run_id, run_seqs in seqs.items())


def list_subjects(tenant: str | None) -> Steps[tuple[SubjectId, ...]]:
    """Return the subjects whose streams hold events, sorted."""
    runs = yield from all_runs(include_reserved=True)
    subjects = {subject for run in runs if (subject := subject_of(run.agent)) is not None}
    return tuple(sorted(subject for subject in subjects if tenant in (None, subject.tenant)))
