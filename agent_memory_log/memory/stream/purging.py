"""Erases memories that have lost their evidence, with every copy of them that the log knows of."""

from __future__ import annotations

from datetime import datetime

from agent_memory_log.errors import CursorOutOfRange, RunExpired, VersionConflict
from agent_memory_log.events.context_payloads import InjectedContext
from agent_memory_log.events.event import new_event
from agent_memory_log.memory.records.messages import RunEvent, names_any
from agent_memory_log.memory.records.record import RunId
from agent_memory_log.memory.stream.evidence import ErasedPlaces, erased_evidence, unsupported
from agent_memory_log.memory.stream.history import Ledger
from agent_memory_log.memory.stream.payloads import MemoryTombstone
from agent_memory_log.memory.stream.subjects import Subject, by_run
from agent_memory_log.memory.stream.vectors import erase_orphans
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.steps import Steps, each, erasures, load

_ATTEMPTS = 500


def settle(subject: Subject, now: datetime) -> Steps[int]:
    """Erase memories that have lost their evidence, and finish interrupted erasures. Call ``refresh`` first.

    Returns how many events of the subject's streams were redacted.
    """
    has_purged = subject.may_owe_erasure and (yield from _purge(subject, now))
    erased = yield from subject.finish_erasure(now)
    if has_purged:
        erased += yield from erase_orphans(subject)
    return erased


def owes_erasure(subject: Subject) -> Steps[bool]:
    """Return whether the subject's stream still holds memories that have lost their evidence."""
    yield from subject.refresh()
    return subject.may_owe_erasure and (yield from _tombstone((yield from subject.load_all()))) is not None


def _purge(subject: Subject, now: datetime) -> Steps[bool]:
    """Append a tombstone for memories without evidence. Returns False if there is no such memory."""
    for attempt in range(1, _ATTEMPTS + 1):
        subject.may_owe_erasure = False  # before the read, so that an erasure during it counts again
        try:
            stream = yield from subject.load_all()
            tombstone = yield from _tombstone(stream)
            if tombstone is None:
                return False
            yield from subject.commit([new_event(tombstone, timestamp=now)], stream.version)
        except VersionConflict:
            if attempt == _ATTEMPTS:
                raise
        except BaseException:
            subject.may_owe_erasure = True
            raise
        else:
            yield from subject.refresh()
            return True
    raise AssertionError("the loop returns or raises")


def _tombstone(stream: Snapshot) -> Steps[MemoryTombstone | None]:
    ledger = Ledger(stream)
    pairs = list(ledger.lives())
    fallen = yield from unsupported(live for live, _ in pairs)
    lives = [live for live, _ in pairs if live.id in fallen]
    cited = {item for _, note in ledger.blocked for item in note.evidence}
    erased = yield from erased_evidence(cited)
    notes = [event.seq for event, note in ledger.blocked if note.evidence and erased.issuperset(note.evidence)]
    copies = yield from _copies(tuple(ledger.state.linked), fallen)
    if not (lives or notes or copies):
        return None
    seqs = {*(seq for live in lives for seq in (live.seq, *live.changed)), *notes}
    return MemoryTombstone(
        erased=tuple(sorted(seqs | ledger.state.chunks)) if seqs else (),
        sources=tuple(sorted(ledger.sources(lives))),
        in_runs=by_run(copies),
    )


def _copies(linked: tuple[RunId, ...], records: frozenset[str]) -> Steps[list[RunEvent]]:
    """Return the injected contexts of linked runs that name one of the records, or an erased message."""
    places = ErasedPlaces((yield from erasures(linked)).entries)
    by_linked_run = yield from each(_copies_in(run_id, records, places) for run_id in linked)
    return [run_event for copies in by_linked_run for run_event in copies]


def _copies_in(run_id: RunId, records: frozenset[str], places: ErasedPlaces) -> Steps[list[RunEvent]]:
    try:
        snapshot = yield from load(*run_id, types=(InjectedContext.event_type,))
    except (CursorOutOfRange, RunExpired):  # the run is gone
        return []
    return [
        (*run_id, event.seq)
        for event in snapshot.log
        if names_any(event, records, lambda message: places.has(message[:2], message[2]))
    ]
