"""Tells which evidence was erased, by the store's erasure journal, and which records have lost their evidence."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from agent_memory_log.errors import DecodeError, RunExpired
from agent_memory_log.events.reserved import is_reserved
from agent_memory_log.memory.records.record import MERGES, Evidence, RunId
from agent_memory_log.memory.stream.state import Live
from agent_memory_log.steps import Steps, erasures, find, peek
from agent_memory_log.store import Erasure


class ErasedPlaces:
    """The places that the journal names, by run."""

    def __init__(self, entries: Iterable[Erasure]) -> None:
        self.up_to: dict[RunId, int] = {}
        self.seqs: dict[RunId, set[int]] = {}
        for entry in entries:
            run_id = (entry.agent, entry.run)
            self.up_to[run_id] = max(entry.up_to, self.up_to.get(run_id, 0))
            self.seqs.setdefault(run_id, set()).update(entry.seqs)

    def has(self, run_id: RunId, seq: int) -> bool:
        """Return whether the event at ``seq`` was redacted, or deleted with its run."""
        return seq in self.seqs.get(run_id, ()) or seq <= self.up_to.get(run_id, 0)


def erased_evidence(evidence: Iterable[Evidence]) -> Steps[frozenset[Evidence]]:
    """Return the evidence whose events were redacted, or deleted with their runs. Expired events are not erased.

    An imported record may cite its event in another memory. That event is a copy of a statement, not its evidence.
    """
    by_run: dict[RunId, set[Evidence]] = {}
    for item in evidence:
        if is_reserved(item.agent):
            continue
        by_run.setdefault(item.run_id, set()).add(item)
    if not by_run:
        return frozenset()
    places = ErasedPlaces((yield from erasures(tuple(by_run))).entries)
    erased: set[Evidence] = set()
    for run_id in places.up_to:
        for item in by_run[run_id]:
            if (yield from _is_erased(item, places)):
                erased.add(item)
    return frozenset(erased)


def _is_erased(item: Evidence, places: ErasedPlaces) -> Steps[bool]:
    """Return whether the event was erased. A copy may have renumbered it, so its id decides where it is."""
    if not item.event_id:
        return places.has(item.run_id, item.seq)
    try:
        event = yield from find(*item.run_id, item.event_id)
    except (RunExpired, DecodeError):
        return places.has(item.run_id, item.seq)
    if event is not None:
        return places.has(item.run_id, event.seq)
    # The seq is from another store if the run never reached it. Then only a deletion can explain the missing event.
    (head,) = yield from peek((item.run_id,))
    is_foreign = head is not None and item.seq > head.version and places.up_to[item.run_id] > 0
    return is_foreign or places.has(item.run_id, item.seq)


def unsupported(lives: Iterable[Live]) -> Steps[frozenset[str]]:
    """Return the ids of the records that have lost all their evidence. See ``fallen_with``."""
    by_id = {live.id: live for live in lives}
    erased = yield from erased_evidence(item for live in by_id.values() for item in live.memory.evidence)
    return fallen_with(erased, by_id.values())


def fallen_with(erased: AbstractSet[Evidence], lives: Iterable[Live]) -> frozenset[str]:
    """Return the ids of the records whose evidence is erased. A merged record falls with any of its parts.

    Its parts are the record that it was merged from, and the statement with the rest of its evidence. If it was
    imported without its parts, each event of its evidence may support another part. ``lives`` are in the order of
    creation. To judge merged records, they must include the closed records.
    """
    by_id = {live.id: live for live in lives}
    fallen: set[str] = set()
    for live in by_id.values() if erased else ():
        parts = parts_of(live)
        of_parts = {item for part in parts if part in by_id for item in by_id[part].memory.evidence}
        lost = [item in erased for item in live.memory.evidence if item not in of_parts]
        is_lost = all(lost) if by_id.keys() >= parts else any(lost)
        if ((lost and is_lost) or not fallen.isdisjoint(parts)) and not live.stated:
            fallen.add(live.id)
    return frozenset(fallen)


def parts_of(live: Live) -> frozenset[str]:
    """Return the ids of the records that a record was merged from."""
    return frozenset(link.target for link in live.memory.links if link.type == MERGES)
