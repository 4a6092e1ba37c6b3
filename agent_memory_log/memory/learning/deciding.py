"""What becomes of a candidate, given what is remembered: which events say it, and the outcome that is reported.

The rules: a candidate that rests on a forgotten statement is left out. One that says what is known adds its evidence
and renews the end. An older statement never takes the place of a newer one. Otherwise it is a new record, and the one
whose key it has is superseded; where there is a merger, by what that makes of both. A subject holds so many keyed
records; beyond that the one that was updated the longest ago is archived.

Nothing is written here: the events hold for the state they were decided on, and are appended at its version or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from heapq import nsmallest

import msgspec

from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.payloads import EventData
from agent_memory_log.memory.learning.merging import MERGED, MERGES, Merging, Question, can_merge, of_both
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.kinds import fold_key, fold_text, read_kind
from agent_memory_log.memory.records.record import Evidence, Link, Record
from agent_memory_log.memory.records.reports import Action, Outcome
from agent_memory_log.memory.stream.payloads import (
    Changes,
    MemoryBlocked,
    MemoryChanged,
    MemoryClosed,
    MemoryRefreshed,
    MemoryRemembered,
)
from agent_memory_log.memory.stream.state import Live, State, record_of

SUPERSEDES = "supersedes"


class Draft:
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
        """Nothing yet. ``state`` must not change until the draft is done. ``agent`` is the stream's.

        Where ``question`` is not None at the end, the draft is none: a merger has to be asked first.
        """
        self.question: Question | None = None
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
        self.add(
            MemoryBlocked(
                reason=reason,
                key=candidate.key,
                kind=candidate.data.kind,
                scope=candidate.scope,
                phase=phase,
                source=candidate.source,
                evidence=candidate.evidence,
            )
        )
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
            elif candidate.evidence and known.told.evidence and not set(candidate.evidence) - set(known.told.evidence):
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
        said = set(candidate.evidence)
        return bool(said) and said <= set(live.told.evidence) and any(link.type == MERGES for link in live.told.links)

    def _can_merge(self, live: Live, candidate: Candidate) -> bool:
        return not live.is_expired(self._now) and can_merge(read_kind(live.told.kind, live.told.data), candidate.data)

    def _merge(self, candidate: Candidate, known: Live, merging: Merging) -> None:
        """Remember what a merger made of both values; or leave the question, where it was not asked yet."""
        found = merging.of(self._record(known), candidate)
        if isinstance(found, Question):
            self.question = found
        elif found.reason != MERGED:
            self._remember(found.candidate, known, reason=found.reason)
        elif self._says_the_same(known, found.candidate):
            self._refresh(known, found.candidate)
        else:
            self._remember(of_both(self._record(known), found.candidate), known, reason=MERGED)

    def _leave_out(self, candidate: Candidate, known: Live | None, reason: str, phase: str) -> None:
        """It held once. Noted, so that an erasure knows where it was said."""
        self.add(
            MemoryBlocked(
                reason=reason,
                key=candidate.key,
                kind=candidate.data.kind,
                scope=self._scope,
                phase=phase,
                source=candidate.source,
                evidence=candidate.evidence,
            )
        )
        self._report("outdated", candidate, record=None if known is None else self._record(known), reason=reason)

    def change(self, live: Live, candidate: Candidate, changes: Changes) -> None:
        """Change a record in place, or, where its value or key differs, be it in case, supersede it."""
        if live.told.kind != candidate.data.kind or read_kind(live.told.kind, live.told.data) != candidate.data:
            self._remember(candidate, live)
            return
        if changes == Changes():
            self._report("unchanged", candidate, record=self._record(live))
            return
        self.add(MemoryChanged(record=live.id, changes=changes))
        told = {name: value for name in changes.__struct_fields__ if (value := getattr(changes, name)) is not None}
        after = self._replace(live, told)
        self._report("changed", candidate, record=self._record(after))

    def close(self, lives: Sequence[Live], status: str, *, by: str = "", reason: str = "") -> None:
        """Records are active no longer."""
        self.add(MemoryClosed(records=tuple(live.id for live in lives), status=status, by=by, reason=reason))
        for live in lives:
            self._lives[live.id] = None
            place = (live.told.kind, fold_key(live.told.key))
            if self._find(place) == live.id:
                self._keys[place] = None

    def _known(self, candidate: Candidate) -> Live | None:
        """The active record that the candidate is about."""
        if candidate.key:
            found = self._find((candidate.data.kind, fold_key(candidate.key)))
            return None if found is None else self._live(found)
        text = candidate.words
        drafted = [
            live
            for live in self._lives.values()
            if live is not None and not live.told.key and fold_text(live.told.text) == fold_text(text)
        ]
        stored = [live for live in self._state.twins(candidate.data.kind, text) if self._live(live.id) is not None]
        for live in (*drafted, *stored):
            if self._says_the_same(live, candidate):
                return live
        return None

    def _find(self, place: tuple[str, str]) -> str | None:
        return self._keys[place] if place in self._keys else self._state.keys.get(place)

    def _live(self, record: str) -> Live | None:
        return self._lives[record] if record in self._lives else self._state.records.get(record)

    @staticmethod
    def _says_the_same(live: Live, candidate: Candidate) -> bool:
        told = live.told
        return told.kind == candidate.data.kind and read_kind(told.kind, told.data).same_as(candidate.data)

    @staticmethod
    def _is_older(candidate: Candidate, live: Live) -> bool:
        said = live.told.valid_from or live.created
        return candidate.valid_from is not None and candidate.valid_from < said

    def _refresh(self, live: Live, candidate: Candidate) -> None:
        known = set(live.told.evidence)
        # A record that comes back from an export has itself as evidence, and is none for itself.
        fresh = tuple(dict.fromkeys(one for one in candidate.evidence if one not in known and one.agent != self._agent))
        if candidate.source.kind == "import":  # a copy of what was said, which says nothing anew
            end = _later(live.told.valid_until, candidate.valid_until and candidate.end(self._now))
            anew = end != live.told.valid_until
        else:
            end = candidate.end(self._now)
            anew = not candidate.evidence
        confidence = max(candidate.confidence, live.told.confidence)
        if not (fresh or anew):
            self._report("unchanged", candidate, record=self._record(live))
            return
        self.add(MemoryRefreshed(record=live.id, confidence=confidence, evidence=fresh, valid_until=end))
        after = self._replace(
            live, {"confidence": confidence, "evidence": (*live.told.evidence, *fresh), "valid_until": end}
        )
        self._report("refreshed", candidate, record=self._record(after))

    def _remember(self, candidate: Candidate, known: Live | None, *, reason: str = "") -> None:
        links = tuple(link for link in candidate.links if link.type not in {SUPERSEDES, MERGES})
        if known is not None:
            links = (*links, Link(SUPERSEDES, known.id))
            if reason == MERGED:
                links = (*links, Link(MERGES, known.id))
        told = MemoryRemembered(
            kind=candidate.data.kind,
            data=candidate.data.to_map(),
            key=candidate.key,
            text=candidate.text if candidate.key else candidate.words,
            confidence=candidate.confidence,
            importance=candidate.importance,
            source=candidate.source,
            evidence=tuple(dict.fromkeys(candidate.evidence)),
            entities=candidate.entities,
            tags=candidate.tags,
            links=links,
            valid_from=candidate.valid_from,
            valid_until=candidate.end(self._now),
        )
        record = self.add(told)
        if known is not None:
            status = "expired" if known.is_expired(self._now) else "superseded"
            self.close([known], status, by=record, reason=status)
        live = Live(record, 0, self._now, self._now, told)
        self._lives[record] = live
        if told.key:
            self._keys[told.kind, fold_key(told.key)] = record
        superseded = "" if known is None else known.id
        self._report("written", candidate, record=self._record(live), superseded=superseded, reason=reason)
        if told.key:
            self._make_room(record)

    def _make_room(self, kept: str) -> None:
        if self._max_keyed is None:
            return
        taken = len(self._state.keys)
        for place, record in self._keys.items():
            taken += (record is not None) - (place in self._state.keys)
        if taken <= self._max_keyed:
            return
        # In tuples, which need no key to be sorted by: each write to a subject that is full looks at all it holds.
        held = [
            (
                live.told.valid_until is None or live.told.valid_until > self._now,
                live.updated,
                live.seq or _LAST,
                place,
                live,
            )
            for place, live in enumerate({**self._state.records, **self._lives}.values())
            if live is not None and live.told.key and live.id != kept
        ]
        for *_, live in nsmallest(taken - self._max_keyed, held):
            expired = live.is_expired(self._now)
            self.close([live], "expired" if expired else "archived", reason="" if expired else "subject_full")
            if not expired:
                self.outcomes.append(
                    Outcome(
                        "archived",
                        self._scope,
                        live.told.kind,
                        live.told.key,
                        record_of(live, self._scope, "archived"),
                        reason="subject_full",
                    )
                )

    def _replace(self, live: Live, told: Mapping[str, object]) -> Live:
        after = Live(
            live.id,
            live.seq,
            live.created,
            self._now,
            msgspec.structs.replace(live.told, **told),
            live.changed,
        )
        self._lives[live.id] = after
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
        evidence: tuple[Evidence, ...] = candidate.evidence
        self.outcomes.append(
            Outcome(
                action,
                candidate.scope or self._scope,
                candidate.data.kind,
                candidate.key,
                record,
                superseded,
                reason,
                evidence,
            )
        )


def _later(known: datetime | None, other: datetime | None) -> datetime | None:
    """The later end of two; what has none keeps none, and what is not said changes nothing."""
    return known if known is None or other is None else max(known, other)


_LAST = 2**63
