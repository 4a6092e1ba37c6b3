"""What becomes of a candidate, given what is remembered: which events say it, and the outcome that is reported.

The rules: a candidate that rests on a forgotten statement is left out. One that says what is known adds its evidence
and renews the end. An older statement never takes the place of a newer one. Otherwise it is a new record, and the one
whose key it has is superseded; where there is a merger, by what that makes of both. A subject holds so many keyed
records; beyond that the one that was updated the longest ago is archived.

Nothing is written here: the events hold for the state they were decided on, and are appended at its version or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from heapq import nsmallest

import msgspec

from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.payloads import EventData
from agent_memory_log.memory.learning.merging import MERGED, MERGES, Merging, can_merge, of_both
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.kinds import fold_key, fold_text
from agent_memory_log.memory.records.record import Evidence, Link, Record, envelope_of
from agent_memory_log.memory.records.reports import Action, Outcome
from agent_memory_log.memory.stream.payloads import (
    MemoryBlocked,
    MemoryChanged,
    MemoryClosed,
    MemoryRefreshed,
    MemoryRemembered,
)
from agent_memory_log.memory.stream.state import Live, State
from agent_memory_log.steps import Steps

SUPERSEDES = "supersedes"


class Decisions:
    """What is decided on a state, candidate by candidate; each sees what was decided for those before it."""

    def __init__(
        self,
        state: State,
        scope: str,
        now: datetime,
        max_keyed: int | None,
        agent: str = "",
        merging: Merging | None = None,
    ) -> None:
        """Nothing yet. ``state`` must not change until all is decided. ``agent`` is the stream's.

        Where ``question`` is not None at the end, nothing is decided: a merger has to be asked first.
        """
        self.question: Callable[[], Steps[None]] | None = None
        self._merging = merging
        self.events: list[Event] = []
        self.outcomes: list[Outcome] = []
        self._state = state
        self._scope = scope
        self._now = now
        self._max_keyed = max_keyed
        self._agent = agent
        # What is different from the state by now: lives by id (None: closed), ids by key.
        self._lives: dict[str, Live | None] = {}
        self._keys: dict[tuple[str, str], str | None] = {}

    def add(self, payload: EventData) -> str:
        """Take in an event; returns its id."""
        event = new_event(payload, timestamp=self._now)
        self.events.append(event)
        return event.event_id

    def block(self, candidate: Candidate, reason: str, *, phase: str) -> None:
        """The candidate is not to be stored."""
        self._note_blocked(candidate, reason, candidate.scope, phase)
        self._report("blocked", candidate, reason=reason)

    def write(self, candidate: Candidate, *, phase: str) -> None:
        """Decide about a candidate that may be stored."""
        if self.question is not None:
            return
        if any(self._state.is_forgotten(one) for one in candidate.evidence):
            self._report("forgotten", candidate)
            return
        known = self._known(candidate)
        end = candidate.end(self._now)
        if end is not None and end <= self._now:
            self._leave_out(candidate, known, "expired", phase)
        elif known is not None and self._says_the_same(known, candidate):
            if not known.is_expired(self._now):
                self._refresh(known, candidate)
            elif candidate.evidence and known.memory.evidence and not self._fresh_evidence(known, candidate):
                self._report("outdated", candidate, record=self._record(known), reason="expired")
            else:
                self._remember(candidate, known)
        elif known is not None and self._is_older(candidate, known):
            self._leave_out(candidate, known, "outdated", phase)
        elif known is not None and self._is_part_of(candidate, known):
            self._report("unchanged", candidate, record=self._record(known))
        elif known is not None and self._merging is not None and self._can_merge(known, candidate):
            self._merge(candidate, known, self._merging)
        else:
            self._remember(candidate, known)

    @staticmethod
    def _is_part_of(candidate: Candidate, live: Live) -> bool:
        """Whether a record was merged from what the candidate says: derived again, it says nothing new."""
        evidence = set(candidate.evidence)
        is_merged = any(link.type == MERGES for link in live.memory.links)
        return is_merged and bool(evidence) and evidence <= set(live.memory.evidence)

    def _can_merge(self, live: Live, candidate: Candidate) -> bool:
        return not live.is_expired(self._now) and can_merge(live.data, candidate.data)

    def _merge(self, candidate: Candidate, known: Live, merging: Merging) -> None:
        """Remember what a merger made of both values; or leave the question, where it was not asked yet."""
        record = self._record(known)
        merged = merging.of(record, candidate)
        if merged is None:
            self.question = partial(merging.ask, record, candidate)
        elif merged.reason != MERGED:
            self._remember(merged.candidate, known, reason=merged.reason)
        elif self._says_the_same(known, merged.candidate):
            self._refresh(known, merged.candidate)
        else:
            self._remember(of_both(record, merged.candidate), known, reason=MERGED)

    def _leave_out(self, candidate: Candidate, known: Live | None, reason: str, phase: str) -> None:
        """It held once. Noted, so that an erasure knows where it was said."""
        self._note_blocked(candidate, reason, self._scope, phase)
        self._report("outdated", candidate, record=None if known is None else self._record(known), reason=reason)

    def _note_blocked(self, candidate: Candidate, reason: str, scope: str, phase: str) -> None:
        self.add(
            MemoryBlocked(
                reason=reason,
                key=candidate.key,
                kind=candidate.data.kind,
                scope=scope,
                phase=phase,
                source=candidate.source,
                evidence=candidate.evidence,
            )
        )

    def change(self, live: Live, candidate: Candidate, names: Iterable[str]) -> None:
        """Change the named fields of a record in place; supersede it where its value or key differs, be it in case."""
        if live.data != candidate.data:
            self._remember(candidate, live)
            return
        wanted = envelope_of(candidate, valid_until=candidate.end(self._now))
        changes = {name: wanted[name] for name in names if wanted[name] != getattr(live.memory, name)}
        if not changes:
            self._report("unchanged", candidate, record=self._record(live))
            return
        self.add(MemoryChanged(record=live.id, changed=tuple(changes), **changes))
        self._report("changed", candidate, record=self._record(self._replace(live, changes)))

    def close(self, lives: Sequence[Live], status: str, *, by: str = "", reason: str = "") -> None:
        """Records are active no longer."""
        self.add(MemoryClosed(records=tuple(live.id for live in lives), status=status, by=by, reason=reason))
        for live in lives:
            self._lives[live.id] = None
            if self._find(live.memory.kind, live.memory.key) == live.id:
                self._keys[live.memory.kind, fold_key(live.memory.key)] = None

    def _known(self, candidate: Candidate) -> Live | None:
        """The active record that the candidate is about."""
        if candidate.key:
            record = self._find(candidate.data.kind, candidate.key)
            return None if record is None else self._live(record)
        text = candidate.words
        decided = [
            live
            for live in self._lives.values()
            if live is not None and not live.memory.key and fold_text(live.memory.text) == fold_text(text)
        ]
        stored = [live for live in self._state.twins(candidate.data.kind, text) if self._live(live.id) is not None]
        return next((live for live in (*decided, *stored) if self._says_the_same(live, candidate)), None)

    def _find(self, kind: str, key: str) -> str | None:
        folded = (kind, fold_key(key))
        return self._keys[folded] if folded in self._keys else self._state.keys.get(folded)

    def _live(self, record: str) -> Live | None:
        return self._lives[record] if record in self._lives else self._state.records.get(record)

    @staticmethod
    def _says_the_same(live: Live, candidate: Candidate) -> bool:
        return live.memory.kind == candidate.data.kind and live.data.same_as(candidate.data)

    @staticmethod
    def _is_older(candidate: Candidate, live: Live) -> bool:
        return candidate.valid_from is not None and candidate.valid_from < (live.memory.valid_from or live.created)

    @staticmethod
    def _fresh_evidence(live: Live, candidate: Candidate) -> list[Evidence]:
        known = set(live.memory.evidence)
        return [evidence for evidence in dict.fromkeys(candidate.evidence) if evidence not in known]

    def _refresh(self, live: Live, candidate: Candidate) -> None:
        # A record that comes back from an export has itself as evidence, and is none for itself.
        fresh = tuple(one for one in self._fresh_evidence(live, candidate) if one.agent != self._agent)
        if candidate.source.kind == "import":  # a copy of what was said, which says nothing anew
            end = _later(live.memory.valid_until, candidate.valid_until and candidate.end(self._now))
            anew = end != live.memory.valid_until
        else:
            end = candidate.end(self._now)
            anew = not candidate.evidence
        confidence = max(candidate.confidence, live.memory.confidence)
        if not (fresh or anew):
            self._report("unchanged", candidate, record=self._record(live))
            return
        self.add(MemoryRefreshed(record=live.id, confidence=confidence, evidence=fresh, valid_until=end))
        after = self._replace(
            live, {"confidence": confidence, "evidence": (*live.memory.evidence, *fresh), "valid_until": end}
        )
        self._report("refreshed", candidate, record=self._record(after))

    def _remember(self, candidate: Candidate, known: Live | None, *, reason: str = "") -> None:
        links = tuple(link for link in candidate.links if link.type not in {SUPERSEDES, MERGES})
        if known is not None:
            links = (*links, Link(SUPERSEDES, known.id))
            if reason == MERGED:
                links = (*links, Link(MERGES, known.id))
        memory = MemoryRemembered(
            candidate.data.kind,
            candidate.data.to_map(),
            candidate.key,
            **envelope_of(
                candidate,
                text=candidate.text if candidate.key else candidate.words,
                memory_type=candidate.own_memory_type,
                evidence=tuple(dict.fromkeys(candidate.evidence)),
                links=links,
                valid_until=candidate.end(self._now),
            ),
        )
        record = self.add(memory)
        if known is not None:
            status = "expired" if known.is_expired(self._now) else "superseded"
            self.close([known], status, by=record, reason=status)
        live = Live(record, 0, self._now, self._now, memory)
        self._lives[record] = live
        if memory.key:
            self._keys[memory.kind, fold_key(memory.key)] = record
        superseded = "" if known is None else known.id
        self._report("written", candidate, record=self._record(live), superseded=superseded, reason=reason)
        if memory.key:
            self._make_room(record)

    def _make_room(self, kept: str) -> None:
        if self._max_keyed is None:
            return
        taken = len(self._state.keys)
        for folded, record in self._keys.items():
            taken += (record is not None) - (folded in self._state.keys)
        if taken <= self._max_keyed:
            return
        # In tuples, which need no key to be sorted by: each write to a subject that is full looks at all it holds.
        held = [
            (
                live.memory.valid_until is None or live.memory.valid_until > self._now,
                live.updated,
                live.seq or _LAST,
                place,
                live,
            )
            for place, live in enumerate({**self._state.records, **self._lives}.values())
            if live is not None and live.memory.key and live.id != kept
        ]
        for *_, live in nsmallest(taken - self._max_keyed, held):
            expired = live.is_expired(self._now)
            self.close([live], "expired" if expired else "archived", reason="" if expired else "subject_full")
            if not expired:
                archived = live.record_as(self._scope, "archived")
                self.outcomes.append(
                    Outcome("archived", self._scope, archived.kind, archived.key, archived, reason="subject_full")
                )

    def _replace(self, live: Live, changes: Mapping[str, object]) -> Live:
        memory = msgspec.structs.replace(live.memory, **changes)
        self._lives[live.id] = after = msgspec.structs.replace(live, updated=self._now, memory=memory)
        return after

    def _record(self, live: Live) -> Record:
        return live.record(self._scope, self._now)

    def _report(
        self,
        action: Action,
        candidate: Candidate,
        *,
        record: Record | None = None,
        superseded: str = "",
        reason: str = "",
    ) -> None:
        scope = candidate.scope or self._scope
        kind, key, evidence = candidate.data.kind, candidate.key, candidate.evidence
        self.outcomes.append(Outcome(action, scope, kind, key, record, superseded, reason, evidence))


def _later(known: datetime | None, other: datetime | None) -> datetime | None:
    """The later end of two; what has none keeps none, and what is not said changes nothing."""
    return known if known is None or other is None else max(known, other)


_LAST = 2**63
